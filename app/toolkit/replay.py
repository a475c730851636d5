"""Transcripts of episodes, replayed move by move: whatever stands in them as the environment's must be what it said."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Message, Turn


class Stage(Protocol):
    """An episode as far as its transcript goes."""

    @property
    def done(self) -> bool: ...

    @property
    def observed(self) -> tuple[Message, ...]:
        """What follows the last message of the model; nothing when it is over."""


StageT = TypeVar("StageT", bound=Stage)


def replayed(start: StageT, move: Callable[[StageT, Message], StageT], messages: Sequence[Message]) -> StageT:
    """From everything after the prompt; `move` takes each message of the model's. InvalidRequest naming `messages[i]`
    for the first that is out of turn, is not what was said there, or comes after the end."""
    now = start
    due: list[Message] = []
    for place, message in enumerate(messages):
        field = f"messages[{place}]"
        if due:
            said = due.pop(0)
            if (message.role, message.content) != (said.role, said.content):
                raise InvalidRequest("this is not what was said here", field=field)
            continue
        if message.role != "assistant":
            raise InvalidRequest("here the model speaks: an assistant message", field=field)
        if now.done:
            raise InvalidRequest("the episode was over before", field=field)
        now = move(now, message)
        due = [*now.observed]
    return now


def forged(refused: InvalidRequest) -> Score:
    """Of a completion whose transcript was refused."""
    return Score.gated("forged_observation", rationale=f"{refused.field}: {refused.detail}")


def turn_after(stage: Stage, messages: Sequence[Message]) -> Turn:
    """What follows the last of `messages`, which led to `stage`. InvalidRequest when that one is not the model's."""
    if not messages or messages[-1].role != "assistant":
        field = f"messages[{len(messages) - 1}]" if messages else "messages"
        raise InvalidRequest("the last message must be the model's", field=field)
    return Turn(messages=stage.observed, done=stage.done)
