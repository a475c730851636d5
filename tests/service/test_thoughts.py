"""Thoughts before a reply are told from it, wherever a stream is cut."""

import pytest

from app.service.play.thoughts import ThoughtSplitter, split_thoughts

TEXTS = {
    "Aye.": ("", "Aye."),
    " <b>Aye</b>": ("", " <b>Aye</b>"),
    "<think>He lies.</think>\n\nAye. <think>": ("He lies.", "Aye. <think>"),
    "\n<think></think>Aye.": ("", "Aye."),
    "<think>a < b </thin": ("a < b </thin", ""),
    "<thi": ("", "<thi"),
    "": ("", ""),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_thoughts_are_told_from_what_is_said(text: str, expected: tuple[str, str]) -> None:
    assert split_thoughts(text) == expected


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_a_stream_may_be_cut_anywhere(text: str, expected: tuple[str, str]) -> None:
    splitter = ThoughtSplitter()
    parts = [*map(splitter.feed, text), splitter.end()]
    assert ("".join(thought for thought, _ in parts), "".join(said for _, said in parts)) == expected
