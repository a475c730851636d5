"""Replay of episodes from their transcripts, which rejects forged observations.

No state is kept between turns, so any replica can serve any of them: the episode is played again from its start, and
every observation in the transcript must be the one that this gives.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Message, Turn


class Stage(Protocol):
    """The state of an episode after its transcript."""

    @property
    def done(self) -> bool: ...

    @property
    def observed(self) -> tuple[Message, ...]:
        """Observations after the model's last message; empty when the episode is over."""


StageT = TypeVar("StageT", bound=Stage)


def replay_episode(start: StageT, move: Callable[[StageT, Message], StageT], messages: Sequence[Message]) -> StageT:
    """Replays all messages after the prompt; `move` applies each message of the model. InvalidRequest naming the first
    `messages[i]` that is out of turn, is forged, or comes after the end."""
    stage, played = _replay_to_end(start, move, messages)
    if played < len(messages):
        raise InvalidRequest("the episode was over before", field=f"messages[{played}]")
    return stage


def replay_for_score(
    start: StageT, move: Callable[[StageT, Message], StageT], messages: Sequence[Message]
) -> tuple[StageT, tuple[str, ...]]:
    """As `replay_episode`, with the score's flags. What comes after the end is ignored and flagged: the episode counts
    as it ended, and nothing that it gave is forged."""
    stage, played = _replay_to_end(start, move, messages)
    flags = ("after_end",) if played < len(messages) else ()
    return stage, flags


def list_stages(start: StageT, move: Callable[[StageT, Message], StageT], messages: Sequence[Message]) -> list[StageT]:
    """The stage after each message of the model, up to the end or to what is out of turn or forged."""
    stages: list[StageT] = []

    def move_and_note(stage: StageT, message: Message) -> StageT:
        stages.append(move(stage, message))
        return stages[-1]

    with suppress(InvalidRequest):
        _replay_to_end(start, move_and_note, messages)
    return stages


def _replay_to_end(
    start: StageT, move: Callable[[StageT, Message], StageT], messages: Sequence[Message]
) -> tuple[StageT, int]:
    """The stage and the number of messages up to the end of the episode or of the transcript."""
    now = start
    due: list[Message] = []
    for index, message in enumerate(messages):
        field = f"messages[{index}]"
        if due:
            observation = due.pop(0)
            if (message.role, message.content) != (observation.role, observation.content):
                raise InvalidRequest("this is not what was said here", field=field)
            continue
        if now.done:
            return now, index
        if message.role != "assistant":
            raise InvalidRequest("here the model speaks: an assistant message", field=field)
        now = move(now, message)
        due = [*now.observed]
    return now, len(messages)


def iterate_turns(messages: Sequence[Message], most_replies: int) -> Iterator[tuple[str, Message]]:
    """The messages of an episode in which a character and a player speak in turn, each with its field. InvalidRequest
    at the first that is out of turn, comes after the last reply or, of the player, has more than words."""
    for index, message in enumerate(messages):
        field = f"messages[{index}]"
        if index % 2:
            if message != Message(role="user", content=message.content or ""):
                raise InvalidRequest("here the player speaks: a user message with nothing but words", field=field)
        elif message.role != "assistant":
            raise InvalidRequest("here the character speaks: an assistant message", field=field)
        elif index == 2 * most_replies:
            raise InvalidRequest("the episode was over before", field=field)
        yield field, message


def score_forgery(refused: InvalidRequest) -> Score:
    """The score of a completion whose transcript was refused."""
    return Score.gated("forged_observation", rationale=f"{refused.field}: {refused.detail}")


def build_turn(stage: Stage, messages: Sequence[Message]) -> Turn:
    """The turn after `messages`, which led to `stage`. InvalidRequest when the last message is not the model's."""
    if not messages or messages[-1].role != "assistant":
        field = f"messages[{len(messages) - 1}]" if messages else "messages"
        raise InvalidRequest("the last message must be the model's", field=field)
    return Turn(messages=stage.observed, done=stage.done)
