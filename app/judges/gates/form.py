"""Gates on form: empty or overlong replies, leaked markup, hidden characters, the wrong script."""

import re
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.text_normalisation import Reply, count_words, iterate_runs

IMMENSE_CHARACTERS: Final = 1_000_000
"""No context of a judge holds more."""
OVERLONG_FACTOR: Final = 1.5
"""A reply is overlong above this multiple of the allowed words."""
LONGEST_WORD: Final = 12
"""Characters per word above which a text without spaces is measured in characters."""

_MASTER_KEYS: Final = frozenset(
    (
        "thought process",
        "final answer",
        "here is my response",
        "here is my reply",
        "here is the response",
        "here s my response",
        "let s think step by step",
        "let s solve this step by step",
        "let s solve this problem step by step",
    )
)
"""Openers that judges reward even when nothing follows (arXiv 2507.08794)."""
_MASTER_LABELS: Final = frozenset(("thought", "thoughts", "solution", "answer", "response", "reply", "output"))
"""Single-word openers, which count only when followed by a colon."""

_TEMPLATE_MARKS: Final = (
    "[inst]",
    "[/inst]",
    "<<sys>>",
    "<</sys>>",
    "<bos>",
    "<eos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
    "<tool_call>",
    "</tool_call>",
    "<function_call>",
)
_STORY_MARKS: Final = (
    "</s>",
    "### instruction",
    "### response",
    "### assistant",
    "### human",
    "### system",
    "{{char}}",
    "{{user}}",
)
"""Only for characters: elsewhere these may be requested markup, headings and placeholders."""
_MARK_SIGN: Final = re.compile(r"[<\[#{:]")
"""One of these is in every mark, special token and role."""
_SPECIAL_TOKEN: Final = re.compile(r"<\|[^\s<>|]{1,40}\|>")
_ROLE_LINE: Final = re.compile(r"^[*_# ]{0,4}(assistant|system)[*_]{0,2}:", re.MULTILINE)

_HIDDEN: Final = re.compile("[\u180e\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_NEEDED_INVISIBLES: Final[dict[str, str]] = {
    **dict.fromkeys(("th", "km", "lo", "my"), "\u200b"),
    **dict.fromkeys(("ar", "fa", "he"), "\u202a\u202b\u202c\u2066\u2067\u2068\u2069"),
}
"""Invisible characters that languages need: line break opportunities and text direction marks."""
_TAGS: Final = re.compile("[\U000e0000-\U000e007f]")
_BLACK_FLAG: Final = "\U0001f3f4"
"""The flags of England, Scotland and Wales consist of it and tag characters."""
_LATIN: Final = "A-Za-z\u00c0-\u024f"
_JOINER_IN_LATIN: Final = re.compile(f"[{_LATIN}][\u200c\u200d][{_LATIN}]")
_CYRILLIC: Final = "\u0400-\u052f"
_GREEK_LOOKALIKES: Final = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορυχ"
_MIXED_WORD: Final = re.compile(
    f"[{_LATIN}][{_CYRILLIC}{_GREEK_LOOKALIKES}]|[{_CYRILLIC}{_GREEK_LOOKALIKES}][{_LATIN}]"
)

_SCRIPT_RANGES: Final[dict[str, str]] = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "kana": "\u3040-\u30ff",
    "han": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
}
_LATIN_LANGUAGES: Final = "cs da de en es fi fr hr hu id it nl no pl pt ro sk sl sv tr vi"
SCRIPTS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_LATIN_LANGUAGES.split(), ("latin",)),
    **dict.fromkeys(("be", "bg", "mk", "ru", "uk"), ("cyrillic",)),
    "sr": ("cyrillic", "latin"),
    "el": ("greek",),
    "he": ("hebrew",),
    "ar": ("arabic",),
    "fa": ("arabic",),
    "hi": ("devanagari",),
    "th": ("thai",),
    "ja": ("kana", "han"),
    "zh": ("han",),
    "ko": ("hangul", "han"),
}
_DENSE: Final = frozenset(("han", "kana", "hangul", "thai"))
"""Scripts in which one character carries about as much as two or three letters."""
_SCRIPT_OF: Final = {name: re.compile(f"[{ranges}]") for name, ranges in _SCRIPT_RANGES.items()}
_ONE_LETTER: Final = re.compile(r"(\w)\1{59}")
_LEAST_LETTERS: Final = 12
_LEAST_REPEATED: Final = 5
"""Words below which saying a line again is natural."""
_REPEATED_RUN: Final = 12
"""From this many consecutive words in common with an earlier line a reply repeats it."""
_LEAST_SHARE: Final = 0.7
"""Least share of letters in a script of the expected language."""


def is_empty(reply: Reply, facts: GateFacts) -> bool:
    words = reply.words
    if not words:
        return True
    if len(words) > 8:
        return False
    text = " ".join(words)
    return text in _MASTER_KEYS or (text in _MASTER_LABELS and reply.folded.rstrip("* \n").endswith(":"))


def is_overlong(reply: Reply, facts: GateFacts) -> bool:
    if is_immense(reply):
        return True
    limit = facts.max_words * OVERLONG_FACTOR
    return bool(facts.speaker) and (len(reply.visible) > limit * LONGEST_WORD or reply.length > limit)


def is_immense(reply: Reply) -> bool:
    """Longer than anything that a judge reads."""
    return len(reply.visible) > IMMENSE_CHARACTERS


def repeats_itself(reply: Reply, facts: GateFacts) -> bool:
    return _is_looping(reply) or any(_repeats_line(reply, line) for line in facts.history)


def leaks_template(reply: Reply, facts: GateFacts) -> bool:
    text = reply.folded
    if not _MARK_SIGN.search(text):
        return False
    if any(mark in text for mark in _TEMPLATE_MARKS) or _SPECIAL_TOKEN.search(text) is not None:
        return True
    if not facts.speaker:
        return False
    roles = (match.group(1) for match in _ROLE_LINE.finditer(text))
    return any(mark in text for mark in _STORY_MARKS) or any(
        role == "assistant" or not facts.is_machine for role in roles
    )


def hides_text(reply: Reply, facts: GateFacts) -> bool:
    text = reply.visible.removeprefix("\ufeff")
    if text.isascii():
        return False
    rightful = _NEEDED_INVISIBLES.get(_get_language_code(facts), "")
    return (
        any(character not in rightful for character in _HIDDEN.findall(text))
        or (_TAGS.search(text) is not None and _BLACK_FLAG not in text)
        or _JOINER_IN_LATIN.search(text) is not None
        or _MIXED_WORD.search(text) is not None
    )


def is_in_wrong_script(reply: Reply, facts: GateFacts) -> bool:
    """Checks the script only: English instead of German passes. Languages missing in SCRIPTS always pass."""
    language = _get_language_code(facts)
    expected = SCRIPTS.get(language)
    if expected is None or (expected == ("latin",) and reply.visible.isascii()):
        return False
    weights = {name: _weigh_script(name, reply.visible) for name in _SCRIPT_RANGES}
    total = sum(weights.values())
    if total < _LEAST_LETTERS:
        return False
    if language == "ja" and weights["kana"] == 0 and total > 3 * _LEAST_LETTERS:
        return True
    return sum(weights[name] for name in expected) < _LEAST_SHARE * total


def _get_language_code(facts: GateFacts) -> str:
    return facts.language.casefold().replace("_", "-").split("-")[0]


def _weigh_script(script: str, text: str) -> int:
    letters = len(_SCRIPT_OF[script].findall(text))
    return 3 * letters if script in _DENSE else letters


def _is_looping(reply: Reply) -> bool:
    """Whether a few words repeat over and over, or one letter does."""
    words = reply.words
    if _holds_one_letter(reply.folded):
        return True
    distinct = len(set(words))
    if reply.length < 30:
        return reply.length >= 12 and distinct <= 2
    if distinct > len(words) / 2 + 1 and reply.folded.isascii():
        return False  # nearly every word that is new begins a run that is new
    seen = list(iterate_runs(words, 3))
    return len(set(seen)) < len(seen) / 2


def _holds_one_letter(text: str) -> bool:
    """Whether a letter stands 60 times in a row. Such a row covers a whole piece of 30, so few texts are searched."""
    alike = (
        text[start] == text[start + 29] and len(set(text[start : start + 30])) == 1
        for start in range(0, len(text) - 29, 30)
    )
    return any(alike) and _ONE_LETTER.search(text) is not None


def _repeats_line(reply: Reply, line: str) -> bool:
    earlier, known = _read_line(line)
    if min(count_words(earlier), reply.length) < _LEAST_REPEATED:
        return False
    if reply.words == earlier:
        return True
    return bool(known) and any(" ".join(run) in known for run in iterate_runs(reply.words, _REPEATED_RUN))


@lru_cache(maxsize=256)
def _read_line(line: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Its words and its runs. Cached, because all candidates of a group share what was said before."""
    words = Reply(line).words
    return words, frozenset(map(" ".join, iterate_runs(words, _REPEATED_RUN)))
