"""Every place that the glossary names is there."""

import re

from docs.generate import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PLACES = re.findall(r"\| `((?:app|docs|tests)/[\w/.]+)` \|$", PAGE, re.MULTILINE)
WORDS = re.findall(r"^\| (?!word \||---)([^|]+) \|", PAGE, re.MULTILINE)


def test_each_word_has_a_place_that_exists() -> None:
    assert [place for place in PLACES if not (ROOT / place).exists()] == []
    assert len(PLACES) == len(WORDS)


def test_each_word_is_listed_once() -> None:
    assert sorted(WORDS) == sorted({*WORDS})
