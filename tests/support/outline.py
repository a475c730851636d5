"""What stands on a page: its elements, attributes and words."""

import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser

import httpx2

VOID = frozenset({"meta", "link", "img", "input", "br"})


class Outline(HTMLParser):
    """Elements and attributes of a page, and that every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.shapes = Counter[tuple[str, ...]]()
        """Elements with the names of their attributes."""
        self.kept: list[str] = []
        """What forms send back as it came: texts that are edited, and values that nobody sees."""
        self.inputs: list[tuple[str, str]] = []
        """Names and values of all input elements."""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "input":
            self.inputs.append((dict(attrs).get("name") or "", dict(attrs).get("value") or ""))
        self.shapes[(tag, *sorted(name for name, _ in attrs))] += 1
        if tag == "option" or ("type", "hidden") in attrs or ("type", "radio") in attrs:
            self.kept += [value or "" for name, value in attrs if name in {"name", "value"}]

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open[-1:] == ["textarea"]:
            self.kept.append(data)

    def links(self) -> list[str]:
        return [value for tag, name, value in self.attributes if (tag, name) == ("a", "href")]

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page(response: httpx2.Response, status: int = 200) -> Outline:
    assert (response.status_code, response.headers["content-type"]) == (status, "text/html; charset=utf-8")
    outline = Outline(response.text)
    assert outline.open == []
    return outline


def find_said(html: str) -> str:
    """The one thing that a page says."""
    (said,) = re.findall(r'<p class="says" id="says">([^<]*)</p>', html)
    return unescape(said)
