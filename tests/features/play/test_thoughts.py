"""Thoughts before a reply are told from it, wherever a stream is cut."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from app.features.play.service import ThoughtSplitter, split_thoughts
from app.toolkit.answers import LONGEST_TAG, THINKING_TAG, THINKING_TAGS, TURN_END, TURN_ENDS

TEXTS = yaml.load(Path(__file__).with_name("thoughts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


@pytest.mark.parametrize(("text", "thought", "said"), TEXTS)
def test_thoughts_are_told_from_what_is_said_wherever_a_stream_is_cut(text: str, thought: str, said: str) -> None:
    assert (split_thoughts(text), split_pieces(text), split_pieces([text])) == ((thought, said),) * 3


def test_nothing_behind_the_end_of_a_turn_takes_back_what_was_said() -> None:
    splitter = ThoughtSplitter()
    told = [splitter.feed(part) for part in ("Aye.<|im_", "end|>No.<think>", "He lies.", "</think>")]
    assert (told, splitter.text, splitter.end()) == ([("", "Aye."), *[("", "")] * 3], "Aye.<|im_end|>", ("", ""))


def test_a_closing_tag_alone_says_too_late_what_was_thought() -> None:
    text = "He lies.</think>\n\nAye."
    assert (split_thoughts(text), split_pieces(text)) == (("He lies.", "Aye."), ("", "He lies.\n\nAye."))


def test_all_tags_are_of_one_table() -> None:
    assert all(THINKING_TAG.fullmatch(tag) and len(tag) + 4 <= LONGEST_TAG for tag in THINKING_TAGS)
    assert all(TURN_END.fullmatch(end) and len(end) <= LONGEST_TAG for end in TURN_ENDS)


def split_pieces(pieces: Iterable[str]) -> tuple[str, str]:
    splitter = ThoughtSplitter()
    parts = [*map(splitter.feed, pieces), splitter.end()]
    return "".join(thought for thought, _ in parts), "".join(said for _, said in parts)
