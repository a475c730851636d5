"""Thoughts are told from what is said, in every form of the table and wherever a stream is cut."""

from collections.abc import Iterable

import pytest

from app.domain.values import Frozen
from app.toolkit.thoughts import (
    FAMILIES,
    LONGEST_TAG,
    THINKING_TAG,
    THINKING_TAGS,
    TURN_END,
    TURN_ENDS,
    ThoughtFamily,
    ThoughtSplitter,
    shows_thought,
    split_thoughts,
    strip_leading_thoughts,
)
from tests.support.tables import read_table


class Texts(Frozen):
    """The tables of thoughts.yaml, which says what each holds."""

    split: dict[str, tuple[str, str]]
    leading: dict[str, str]


TEXTS = read_table(__file__, "thoughts.yaml", Texts)


@pytest.mark.parametrize(("text", "expected"), TEXTS.split.items())
def test_thoughts_are_told_from_what_is_said_wherever_a_stream_is_cut(text: str, expected: tuple[str, str]) -> None:
    assert (split_thoughts(text), split_pieces(text), split_pieces([text])) == (expected,) * 3


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


@pytest.mark.parametrize(("text", "seen"), TEXTS.leading.items())
def test_gates_and_judges_see_everything_but_leading_thoughts(text: str, seen: str) -> None:
    assert strip_leading_thoughts(text) == seen


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_is_read_alike_in_every_form(family: ThoughtFamily) -> None:
    ends = family.ends or ("",)
    forms = [
        opening.replace("*", ' done="true"') + "He lies." + closing + "Aye." + end
        for opening in family.opens
        for closing in family.closes
        for end in ends
    ]
    assert {(split_thoughts(one), strip_leading_thoughts(one), shows_thought(f"Aye. {one}")) for one in forms} == {
        (("He lies.", "Aye."), "Aye.", True)
    }


def split_pieces(pieces: Iterable[str]) -> tuple[str, str]:
    splitter = ThoughtSplitter()
    parts = [*map(splitter.feed, pieces), splitter.end()]
    return "".join(thought for thought, _ in parts), "".join(said for _, said in parts)
