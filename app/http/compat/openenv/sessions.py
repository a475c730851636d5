"""One client's episodes, one after the other: the task, the messages, and the result."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from app.domain.access import Caller
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, ToolSpec, is_truncated
from app.http.compat.openenv.actions import TEXTS, ParsedAction, parse_action
from app.http.compat.openenv.episodes import DroppedEpisodes, OpenEnvEpisode
from app.http.compat.openenv.frames import FrameRefused, Observation, State, StepResult
from app.http.compat.openenv.resets import read_reset
from app.http.compat.openenv.task_assignment import TaskAssigner
from app.service.gateway import Gateway
from app.service.request_models import StepRequest
from app.service.sample_intake import SampleReply, SampleToScore

CONTRACT = "openenv"

ObserveUnscored = Callable[[str, str, str, str], None]
"""Called for each last step without a score: contract, environment, reason, `error` or `null`."""


class NotScored(FrameRefused):
    """The service has no score at the moment."""

    def __init__(self, message: str) -> None:
        super().__init__("EXECUTION_ERROR", message)


@dataclass(frozen=True)
class SessionContext:
    """Shared by all sessions."""

    gateway: Gateway
    dealer: TaskAssigner
    unscored: ObserveUnscored


class OpenEnvSession:
    def __init__(
        self,
        environment: str,
        playing: SessionContext,
        episode: OpenEnvEpisode | None = None,
        dropped: DroppedEpisodes | None = None,
        caller: Caller | None = None,
    ) -> None:
        """Episodes that were dropped are continued by their own caller alone."""
        self._environment = environment
        self._playing = playing
        self._episode = episode
        self._dropped = dropped
        self._caller = caller
        self._owner = environment if caller is None else f"{caller.name}/{environment}"

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

    async def reset(self, data: dict[str, JsonValue]) -> StepResult:
        """Starts an episode, or continues one that was lost. A current one ends without a score."""
        reset = read_reset(data)
        continued = None if self._dropped is None else self._dropped.take_lost(self._owner, reset)
        if continued is None:
            task = await self._playing.dealer.assign_task(self._environment, reset, self._caller)
            self._episode = OpenEnvEpisode(task, reset, reset.episode_id or f"episode_{secrets.token_hex(16)}")
        else:
            self._episode = continued
        return _build_start(self._episode, continued=continued is not None)

    def drop_episode(self, *, lost: bool) -> None:
        """Ends the session. An unfinished episode can be continued in another; `lost` if the client did not close this
        one."""
        now, self._episode = self._episode, None
        if now is not None and not now.done and self._dropped is not None:
            self._dropped.keep(self._owner, now, lost=lost)

    @asynccontextmanager
    async def step(self, data: dict[str, JsonValue]) -> AsyncIterator[StepResult]:
        """Plays one step; the result is sent inside the context. If it is not sent, or after FrameRefused, the episode
        is unchanged, and the same step can be sent again."""
        data = self._find_episode(data)
        now = self._episode
        if now is None:
            raise FrameRefused("EXECUTION_ERROR", "there is no episode: reset first")
        if now.done:
            raise FrameRefused("EXECUTION_ERROR", "the episode is over: reset to start another")
        said = parse_action(data)
        after = await self._advance_episode(now, said)
        if not after.done:
            yield _build_step(after, after.said[len(now.said) + 1 :], said)
            self._episode = after
            return
        completion = said.to_completion(now.said, multi_turn=now.task.max_turns > 1)
        async with self._hold_sample(now, completion) as reply:
            yield self._build_final_step(after, reply, after.said[len(now.said) + 1 :], said)
            self._episode = after

    def _find_episode(self, data: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """The action without the id of its episode. A session without an episode continues the one that is named."""
        asked = data.get("episode_id")
        if not isinstance(asked, str):
            return data
        if self._episode is None and self._dropped is not None:
            self._episode = self._dropped.take(self._owner, asked)
        if self._episode is None:
            raise FrameRefused("EXECUTION_ERROR", "episode_id: no such episode was dropped here: reset first")
        if asked == self._episode.episode_id:
            return {name: value for name, value in data.items() if name != "episode_id"}
        if data.keys() & {*TEXTS, "tool_calls"}:
            raise FrameRefused("VALIDATION_ERROR", "episode_id: this session plays another episode")
        return data

    async def _advance_episode(self, now: OpenEnvEpisode, said: ParsedAction) -> OpenEnvEpisode:
        """The episode after a message. It ends when the environment ends it, after the last turn, or after a truncated
        message."""
        if now.turns_left == 1 or is_truncated(said.finish_reason):
            return now.advance(said.message, done=True)
        messages = (*now.said, said.message)
        request = StepRequest(task_id=now.task.task_id, messages=messages)
        turn = await self._playing.gateway.stepper.step(self._environment, request)
        return now.advance(said.message, *turn.messages, done=turn.done)

    @asynccontextmanager
    async def _hold_sample(self, now: OpenEnvEpisode, completion: Completion) -> AsyncIterator[SampleReply]:
        """Holds the sample in its group. Samples of an evaluation are groups of one, which are not compared."""
        reset = now.reset
        sample = SampleToScore(
            environment=self._environment,
            task_id=now.task.task_id,
            completion=completion,
            run=reset.run,
            key=reset.siblings.key,
            size=1 if reset.purpose == "eval" else reset.siblings.size,
            policy=reset.policy,
            purpose=reset.purpose,
        )
        held = self._playing.gateway.samples.score_sample(
            sample, gather_seconds=min(reset.gather_seconds, reset.wait_seconds), wait_seconds=reset.wait_seconds
        )
        async with held as reply:
            yield reply

    def _build_final_step(
        self, after: OpenEnvEpisode, reply: SampleReply, messages: tuple[Message, ...], said: ParsedAction
    ) -> StepResult:
        score = reply.score
        if score.reward is None:
            reason = score.reason or "pending"
            told = "null" if after.reset.unscored == "null" else "error"
            self._playing.unscored(CONTRACT, self._environment, reason, told)
            if told == "error":
                raise NotScored(f"unscored: {reason}: {_explain_missing_score(score)}; the same step may be sent again")
        metadata = _describe_reply(reply) | _describe_reading(said)
        return StepResult(
            observation=_build_observation(after, messages, metadata), reward=score.reward, done=True, metadata=metadata
        )


def _build_start(episode: OpenEnvEpisode, *, continued: bool) -> StepResult:
    """What a reset shows: the prompt, and all that was said since in an episode that is continued."""
    task = episode.task
    messages = (*task.messages, *episode.said)
    metadata: dict[str, JsonValue] = {**task.metadata, "continued": True} if continued else task.metadata
    observation = _build_observation(episode, messages, metadata).model_copy(update={"tools": task.tools})
    return StepResult(observation=observation, metadata=metadata)


def _build_step(after: OpenEnvEpisode, messages: tuple[Message, ...], said: ParsedAction) -> StepResult:
    metadata = _describe_reading(said)
    return StepResult(observation=_build_observation(after, messages, metadata), metadata=metadata)


def _build_observation(
    after: OpenEnvEpisode, messages: tuple[Message, ...], metadata: dict[str, JsonValue]
) -> Observation:
    return Observation(
        messages=messages,
        text=_join_contents(messages),
        task_id=after.task.task_id,
        turns_left=after.turns_left,
        metadata=metadata,
    )


def _describe_reading(said: ParsedAction) -> dict[str, JsonValue]:
    told: dict[str, JsonValue] = {"read_as": said.read_as, "fault": said.fault}
    return {name: value for name, value in told.items() if value}


def _describe_reply(reply: SampleReply) -> dict[str, JsonValue]:
    score: dict[str, JsonValue] = reply.score.model_dump(mode="json", include=_SHOWN)
    return {**score, "group_id": reply.group_id, "group_flags": list(reply.flags), "advantage": reply.advantage}


_SHOWN = {"outcome", "reason", "gate", "absolute", "relative", "criteria", "flags", "rationale", "judges"}


def _explain_missing_score(score: Score) -> str:
    return score.rationale or ("it is still being scored" if score.outcome == "pending" else "the service failed")


def _join_contents(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(message.content for message in messages if message.content)
