"""The site of docs/: its order is that of the index, and links keep leading somewhere. `make check` builds it."""

import re
from collections.abc import Iterator

import pytest
import yaml
from pydantic import JsonValue

from docs.parts.architecture import APP, read_layers
from docs.site_links import OUTSIDE, REPOSITORY, find_link, redirect_links
from docs.words import PageWords, count_words
from tests.support.serving import ROOT
from tests.support.tables import read_table

DECISION = re.compile(r"^### (\d{4})\n\n(\*\*.+)$", re.MULTILINE)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def walk(entries: JsonValue) -> Iterator[str]:
    """The pages below an entry of the navigation, in its order."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, list):
        for one in entries:
            yield from walk(one)
    elif isinstance(entries, dict):
        for one in entries.values():
            yield from walk(one)


def test_the_navigation_has_the_parts_and_pages_of_the_index() -> None:
    text = read("mkdocs.yml")
    _, *parts = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    sections = re.split(r"^## ", read("docs/README.md"), flags=re.MULTILINE)[1:]
    listed = [
        (section.split(":")[0], re.findall(r"^\| \[.*?\]\((.*?\.md)\)", section, re.MULTILINE)) for section in sections
    ]
    from_root = {f"../{source}": name for source, name in OUTSIDE.items()}
    assert [(name, list(walk(entries))) for part in parts for name, entries in part.items()] == [
        (name, [from_root.get(page, page) for page in pages]) for name, pages in listed
    ]


@pytest.mark.parametrize(
    ("page", "target", "link"),
    [
        *read_table(__file__, "site_links.yaml", list[tuple[str, str, str]]),
        ("trl.md", "../examples/trl_grpo.py", f"{REPOSITORY}/examples/trl_grpo.py"),
        ("CONTRIBUTING.md", "docs/generate.py", f"{REPOSITORY}/docs/generate.py"),
    ],
)
def test_links_lead_to_the_site_or_to_the_repository(page: str, target: str, link: str) -> None:
    assert find_link(page, target) == link


def test_links_in_code_and_to_other_hosts_stay() -> None:
    page = "[a](b.md#c) [d](https://e/f.md) [g](#h)\n```\n[a](b.md)\n```\n![i](j.png)\n"
    assert redirect_links(page, str.upper) == (
        "[a](B.MD#c) [d](https://e/f.md) [g](#h)\n```\n[a](b.md)\n```\n![i](J.PNG)\n"
    )


def test_every_room_has_a_place_in_the_picture() -> None:
    drawn = {room for layer in read_layers() for room in layer}
    found = {path.stem for path in APP.iterdir() if not path.name.startswith("_") and path.suffix in ("", ".py")}
    assert drawn == found


def test_a_decision_is_a_paragraph() -> None:
    """Found by its number; longer ones are not read."""
    found = DECISION.findall(read("docs/decisions.md"))
    assert len({number for number, _ in found}) == len(found) == read("docs/decisions.md").count("\n### ")
    assert [(number, len(text.split())) for number, text in found if not 60 <= len(text.split()) <= 110] == []


@pytest.mark.parametrize(("pages", "most"), read_table(__file__, "words.yaml", list[tuple[list[str], int]]))
def test_pages_keep_their_size(pages: list[str], most: int) -> None:
    """What is not generated or read by tests. Whoever adds a sentence takes one away."""
    counted = {page: count_words(read(f"docs/{page}.md")) for page in pages}
    assert sum(one.prose for one in counted.values()) <= most
    assert {page: one.long_share for page, one in counted.items() if one.long_share > 0.05} == {}


def test_words_are_counted_as_a_reader_meets_them() -> None:
    page = (
        "# A page of words\n\n"
        + "word " * 26
        + "end. Two words.\n\n| a | `b c` |\n| --- | --- |\n\n```\nin a block\n```\n\n"
        "<!-- generated: x -->\nmade by code\n<!-- end -->\n\n<!-- y: read by the tests -->\n| read |\n"
    )
    assert count_words(page) == PageWords(kept=15, prose=36, sentences=4, long_sentences=1)
