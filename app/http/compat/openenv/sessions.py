"""One client's episodes, one after the other: the task, the messages, and the result."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, ToolSpec
from app.http.compat.openenv.actions import Said, said_in
from app.http.compat.openenv.dealing import Dealer
from app.http.compat.openenv.frames import FrameRefused, Observation, State, Stepped
from app.http.compat.openenv.resets import Reset, read_reset
from app.service.gateway import Gateway
from app.service.parts import Sample, SampleReply
from app.service.requests import HandedOut, StepRequest

CONTRACT = "openenv"

Unscored = Callable[[str, str, str, str], None]
"""Called for each last step without a score: contract, environment, reason, `error` or `null`."""


class NotScored(FrameRefused):
    """The service has no score at the moment."""

    def __init__(self, message: str) -> None:
        super().__init__("EXECUTION_ERROR", message)


@dataclass(frozen=True)
class Episode:
    """An episode so far. `said` has all messages after the prompt."""

    task: HandedOut
    reset: Reset
    episode_id: str
    said: tuple[Message, ...] = ()
    steps: int = 0
    done: bool = False

    @property
    def turns_left(self) -> int:
        return 0 if self.done else self.task.max_turns - self.steps

    def then(self, *messages: Message, done: bool = False) -> "Episode":
        return Episode(self.task, self.reset, self.episode_id, (*self.said, *messages), self.steps + 1, done)


@dataclass(frozen=True)
class Playing:
    """Shared by all sessions."""

    gateway: Gateway
    dealer: Dealer
    unscored: Unscored


class Session:
    def __init__(self, environment: str, playing: Playing, episode: Episode | None = None) -> None:
        self._environment = environment
        self._playing = playing
        self._episode = episode

    @property
    def state(self) -> State:
        now = self._episode
        if now is None:
            return State(environment=self._environment)
        return State(
            episode_id=now.episode_id,
            step_count=now.steps,
            environment=self._environment,
            task_id=now.task.task_id,
            turns_left=now.turns_left,
            done=now.done,
        )

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the current task."""
        return () if self._episode is None else self._episode.task.tools

    async def reset(self, data: dict[str, JsonValue]) -> Stepped:
        """Starts an episode. A current one ends without a score."""
        reset = read_reset(data)
        task = await self._playing.dealer.task(self._environment, reset)
        self._episode = Episode(task, reset, reset.episode_id or f"episode_{secrets.token_hex(16)}")
        observation = Observation(
            messages=task.messages,
            text=_text(task.messages),
            tools=task.tools,
            task_id=task.task_id,
            turns_left=task.max_turns,
            metadata=task.metadata,
        )
        return Stepped(observation=observation, metadata=task.metadata)

    @asynccontextmanager
    async def stepped(self, data: dict[str, JsonValue]) -> AsyncIterator[Stepped]:
        """Plays one step; the result is sent inside the context. After FrameRefused the episode is unchanged, and the
        same step can be sent again."""
        now = self._episode
        if now is None:
            raise FrameRefused("EXECUTION_ERROR", "there is no episode: reset first")
        if now.done:
            raise FrameRefused("EXECUTION_ERROR", "the episode is over: reset to start another")
        said = said_in(data)
        after = await self._after(now, said)
        if not after.done:
            self._episode = after
            yield _between(after, after.said[len(now.said) + 1 :], said)
            return
        completion = said.then(now.said, multi_turn=now.task.max_turns > 1)
        async with self._held(now, completion) as reply:
            final = self._final(after, reply, after.said[len(now.said) + 1 :], said)
            self._episode = after
            yield final

    async def _after(self, now: Episode, said: Said) -> Episode:
        """The episode after a message. It ends when the environment ends it, after the last turn, or after a truncated
        message."""
        if now.turns_left == 1 or said.finish_reason == "length":
            return now.then(said.message, done=True)
        messages = (*now.said, said.message)
        request = StepRequest(task_id=now.task.task_id, messages=messages)
        turn = await self._playing.gateway.stepper.step(self._environment, request)
        return now.then(said.message, *turn.messages, done=turn.done)

    @asynccontextmanager
    async def _held(self, now: Episode, completion: Completion) -> AsyncIterator[SampleReply]:
        """Holds the sample in its group. Samples of an evaluation are groups of one, which are not compared."""
        reset = now.reset
        sample = Sample(
            environment=self._environment,
            task_id=now.task.task_id,
            completion=completion,
            run=reset.run,
            key=reset.siblings.key,
            size=1 if reset.purpose == "eval" else reset.siblings.size,
            policy=reset.policy,
            purpose=reset.purpose,
        )
        held = self._playing.gateway.parts.held(
            sample, gather_seconds=min(reset.gather_seconds, reset.wait_seconds), wait_seconds=reset.wait_seconds
        )
        async with held as reply:
            yield reply

    def _final(self, after: Episode, reply: SampleReply, messages: tuple[Message, ...], said: Said) -> Stepped:
        score = reply.score
        if score.reward is None:
            reason = score.reason or "pending"
            told = "null" if after.reset.unscored == "null" else "error"
            self._playing.unscored(CONTRACT, self._environment, reason, told)
            if told == "error":
                raise NotScored(f"unscored: {reason}: {_why(score)}; the same step may be sent again")
        metadata = _told(reply) | _noticed(said)
        return Stepped(
            observation=_observation(after, messages, metadata), reward=score.reward, done=True, metadata=metadata
        )


def _between(after: Episode, messages: tuple[Message, ...], said: Said) -> Stepped:
    metadata = _noticed(said)
    return Stepped(observation=_observation(after, messages, metadata), metadata=metadata)


def _observation(after: Episode, messages: tuple[Message, ...], metadata: dict[str, JsonValue]) -> Observation:
    return Observation(
        messages=messages,
        text=_text(messages),
        task_id=after.task.task_id,
        turns_left=after.turns_left,
        metadata=metadata,
    )


def _noticed(said: Said) -> dict[str, JsonValue]:
    return {"read_as": "json"} if said.as_json else {}


def _told(reply: SampleReply) -> dict[str, JsonValue]:
    score: dict[str, JsonValue] = reply.score.model_dump(mode="json", include=_SHOWN)
    return {**score, "group_id": reply.group_id, "group_flags": list(reply.flags), "advantage": reply.advantage}


_SHOWN = {"outcome", "reason", "gate", "absolute", "relative", "criteria", "flags", "rationale", "judges"}


def _why(score: Score) -> str:
    return score.rationale or ("it is still being scored" if score.outcome == "pending" else "the service failed")


def _text(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(message.content for message in messages if message.content)
