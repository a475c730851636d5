"""Replaying episodes: whose turn it is, and what may stand where."""

from dataclasses import dataclass

import pytest

from app.domain.errors import InvalidRequest
from app.domain.tasks import Message, Turn
from app.toolkit.replay import build_turn, replay_episode, replay_for_score
from tests.support.tables import read_table


@dataclass(frozen=True)
class Counting:
    """Says back how often it was spoken to; the third time ends it."""

    count: int = 0
    observed: tuple[Message, ...] = ()

    @property
    def done(self) -> bool:
        return self.count == 3


def said(text: str, role: str = "assistant") -> Message:
    return Message.model_validate({"role": role, "content": text})


def counted(stage: Counting, _: Message) -> Counting:
    count = stage.count + 1
    return Counting(count, () if count == 3 else (said(str(count), "tool"), said(f"{count}!", "user")))


TWICE = (said("a"), said("1", "tool"), said("1!", "user"), said("b"))
WHOLE = (*TWICE, said("2", "tool"), said("2!", "user"), said("c"))


def test_a_transcript_is_taken_move_by_move() -> None:
    stage = replay_episode(Counting(), counted, TWICE)
    assert build_turn(stage, TWICE) == Turn(messages=(said("2", "tool"), said("2!", "user")), done=False)


def test_an_end_is_an_end() -> None:
    assert build_turn(replay_episode(Counting(), counted, WHOLE), WHOLE) == Turn(messages=(), done=True)


@pytest.mark.parametrize(
    ("more", "flags"), read_table(__file__, "after_the_end.yaml", list[tuple[tuple[Message, ...], tuple[str, ...]]])
)
def test_for_a_score_what_comes_after_the_end_is_ignored(more: tuple[Message, ...], flags: tuple[str, ...]) -> None:
    assert replay_for_score(Counting(), counted, (*WHOLE, *more)) == (Counting(3), flags)


@pytest.mark.parametrize(
    ("messages", "field", "detail"),
    [
        ((said("a", "user"),), "messages[0]", "here the model speaks: an assistant message"),
        ((said("a"), said("b")), "messages[1]", "this is not what was said here"),
        ((said("a"), said("1", "user")), "messages[1]", "this is not what was said here"),
        ((said("a"), said("1", "tool"), said("2!", "user")), "messages[2]", "this is not what was said here"),
        ((*TWICE, said("2", "tool"), said("2!", "user"), said("c"), said("d")), "messages[7]", "the episode was over"),
        ((), "messages", "the last message must be the model's"),
        ((said("a"), said("1", "tool")), "messages[1]", "the last message must be the model's"),
    ],
)
def test_what_is_out_of_place_is_named(messages: tuple[Message, ...], field: str, detail: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_turn(replay_episode(Counting(), counted, messages), messages)
    assert (refused.value.field, refused.value.detail[: len(detail)]) == (field, detail)
