"""Plays episodes: model and environment take turns until the environment ends the episode."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from app.domain.tasks import Completion, Message, ToolSpec, Turn, is_truncated
from app.inference.wire import SampledMessage

Ask = Callable[[Sequence[Message], Sequence[ToolSpec]], Awaitable[SampledMessage]]
Step = Callable[[tuple[Message, ...]], Awaitable[Turn]]
"""Gets all messages after the prompt."""


@dataclass(frozen=True)
class ChatEpisode:
    """`messages` is everything after the prompt; `said` holds the model's messages in order, and `places` their
    indices."""

    messages: tuple[Message, ...]
    said: tuple[SampledMessage, ...]
    places: tuple[int, ...]
    multi_turn: bool

    def add_message(self, said: SampledMessage) -> "ChatEpisode":
        places = (*self.places, len(self.messages))
        return ChatEpisode((*self.messages, said.message), (*self.said, said), places, self.multi_turn)

    @property
    def completion(self) -> Completion:
        """As plain text where that is enough."""
        last = self.said[-1]
        if self.multi_turn or last.message.tool_calls:
            return Completion(messages=self.messages, finish_reason=last.finish_reason)
        return Completion(text=last.message.content or "", finish_reason=last.finish_reason)


def build_single_turn(said: SampledMessage) -> ChatEpisode:
    return ChatEpisode((said.message,), (said,), (0,), multi_turn=False)


async def play_episode(
    opening: Sequence[Message], tools: Sequence[ToolSpec], max_turns: int, ask: Ask, step: Step
) -> ChatEpisode:
    """Ends when the environment is done, after `max_turns` model messages, or with a truncated message."""
    now = ChatEpisode((), (), (), multi_turn=True)
    while True:
        said = await ask((*opening, *now.messages), tools)
        if max_turns == 1:
            return build_single_turn(said)
        now = now.add_message(said)
        if is_truncated(said.finish_reason) or len(now.said) >= max_turns:
            return now
        turn = await step(now.messages)
        if turn.done:
            return now
        now = replace(now, messages=(*now.messages, *turn.messages))
