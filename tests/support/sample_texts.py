"""What somebody might write to break a page."""

HOSTILE = """<script>document.title = "owned"; fetch("/owned")</script>
<img src=x onerror="document.title='owned'"><svg onload=alert(1)></svg>
</pre></details></article></main><a href="javascript:alert(1)">click</a>
{{ 7 * 7 }} {% include "/etc/passwd" %} &lt;b&gt;not bold&lt;/b&gt; <style>body{display:none}</style>
\u202eright to left\u202c zero\u200bwidth nul\x00 bell\x07 half\ud800"""
HOSTILE_JSON = HOSTILE.replace("\ud800", "")
HOSTILE_LINES = (
    """"><script>owned()</script><img src=x onerror=owned()>\u202e\u061c""",
    """' onx='owned()' autofocus onfocus='owned()' {{7*7}} ${7*7}\u200b""",
    """javascript:owned()//`</title></textarea><svg onload=owned()>\x07""",
    """&lt;b&gt; &#60;i&#62; <!-- </pre></dd></main>\u2066\x1b[31m""",
    """\r\nSet-Cookie: owned=1\r\n\r\n<style>*{display:none}</style>""",
    """{% include "/etc/passwd" %} data-x="</script>" \U000e0041\xad\x00""",
)
"""Markup, ways out of attributes, addresses, templates, headers, and signs that nobody sees."""
HOSTILE_WORDS = (
    *("<script>owned()</script>", "onfocus='owned()'", "javascript:owned()//`</title>", "&#60;i&#62;"),
    *("<style>*{display:none}</style>", "%} data-x="),
)
"""One of each, without blanks and what is written otherwise in other notations."""
INVISIBLE = "\u202e\u061c\u200b\x07\u2066\x1b\r\U000e0041\xad\x00"
"""Those that they hold."""
SIGNS = str.maketrans(
    {
        **dict.fromkeys("<{", "("),
        **dict.fromkeys(">}", ")"),
        **dict.fromkeys("\"'`", "*"),
        **dict.fromkeys("&;", "+"),
        **dict.fromkeys(INVISIBLE, "\u200b"),
    }
)
"""What makes them harmless, sign by sign, so that they are cut, judged and compared alike."""
