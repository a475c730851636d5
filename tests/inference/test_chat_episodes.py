"""How long an episode goes on."""

from collections.abc import Sequence

import pytest

from app.domain.tasks import Message, ToolSpec, Turn
from app.inference.policies import play_episode
from app.inference.wire import SampledMessage
from tests.support.event_loop import finish

OPENING = Message(role="system", content="Count.")
MORE = Message(role="user", content="more")


@pytest.mark.parametrize(
    ("most", "done_after", "cut_after", "count"), [(1, 9, 9, 1), (2, 9, 9, 2), (3, 9, 9, 3), (3, 2, 9, 2), (3, 9, 2, 2)]
)
def test_an_episode_ends_with_its_last_turn_its_environment_or_a_cut(
    most: int, done_after: int, cut_after: int, count: int
) -> None:
    async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> SampledMessage:
        turn = len(messages) // 2 + 1
        return SampledMessage(_say(turn), "length" if turn == cut_after else "stop")

    async def step(messages: tuple[Message, ...]) -> Turn:
        return Turn(messages=(MORE,), done=len(messages) // 2 + 1 == done_after)

    episode = finish(play_episode((OPENING,), (), most, ask, step))
    said = tuple(message for turn in range(1, count + 1) for message in (_say(turn), MORE))[:-1]
    assert (episode.messages, episode.places) == (said, tuple(range(0, 2 * count, 2)))


def _say(turn: int) -> Message:
    return Message(role="assistant", content=str(turn))
