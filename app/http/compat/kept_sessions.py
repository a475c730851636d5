"""Sessions that are kept in the store, lists of tasks, and ports of their own: what interfaces of others share.

NeMo Gym's agents and clients of the Open Reward Standard send one call or one reply at a time, to any replica, and send
it again when its answer was lost. So an episode is one row in the store, which is changed only from the state that was
read: of two replicas that play at once one is told to try again. The row has the fingerprint of its last message. A
message with the same fingerprint is answered as it was, and carried out once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlencode

from pydantic import Field, JsonValue
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from app.domain.errors import Conflict, InvalidRequest, NotFound, Unavailable
from app.domain.tasks import FunctionCall, KeptEpisode, Message, ToolCall, is_broken_off, is_truncated
from app.domain.values import Frozen, Split, WholeNumber
from app.service.catalogue import Catalogue
from app.service.requests import StepRequest
from app.service.retrieval import EpisodeStepper
from app.service.task_cache import TaskCache
from app.store.tasks import EpisodeStore

_TRIES: Final = 20
"""Calls of one session may come at once, and each changes the row that the others have read."""
OVER: Final = "The episode is over: nothing more is carried out."
NOTED: Final = "Noted. This task is answered by the calls themselves: nothing is carried out."


@dataclass(frozen=True)
class PlayedStep:
    """An episode after a message of the model."""

    before: KeptEpisode
    after: KeptEpisode
    observed: tuple[Message, ...]
    done: bool
    reward: float | None = None
    """What is known of the message's own part of the reward, in a run with `turn_rewards`."""


@dataclass(frozen=True)
class KeptSessions:
    store: EpisodeStore
    stepper: EpisodeStepper
    cache: TaskCache

    async def begin(self, session: str, task_id: str) -> None:
        """Conflict for one that was closed or plays another task."""
        episode = await self.store.begin(session, KeptEpisode(task_id=task_id))
        if episode.closed or episode.task_id != task_id:
            raise Conflict("this session was closed, or plays another task", field="resources_session_id")

    async def close(self, session: str) -> None:
        """Also one that is unknown: it cannot begin afterwards."""
        episode = await self.store.begin(session, KeptEpisode(task_id="", closed=True))
        while not episode.closed and not await self.store.change(session, episode, episode.change(closed=True)):
            episode = await self.find(session)

    async def call(self, environment: str, session: str, tool: str, arguments: JsonValue) -> PlayedStep:
        """Carries out one call."""
        for _ in range(_TRIES):
            before = await self.find(session)
            position = sum(one.role == "assistant" for one in before.messages)
            call = ToolCall(id=f"call_{position}", function=FunctionCall(name=tool, arguments=arguments))
            message = Message(role="assistant", tool_calls=(call,))
            played = await self._play(environment, before, message, "", None)
            if await self.store.change(session, before, played.after):
                return played
        raise Unavailable("too many calls of this session at once")

    async def take_back(self, session: str, played: PlayedStep) -> None:
        """A call whose result was not taken, which will come again."""
        await self.store.change(session, played.after, played.after.change(messages=played.before.messages))

    async def step(
        self, environment: str, session: str, message: Message, finish_reason: str, fingerprint: str, run: str | None
    ) -> PlayedStep:
        """Plays one message for this run. One that comes again, since its answer was lost, is answered as it was."""
        before = await self.find(session)
        if before.last == fingerprint:
            last = max(index for index, one in enumerate(before.messages) if one.role == "assistant")
            earlier = before.model_copy(update={"messages": before.messages[:last]})
            return await self._advance(environment, earlier, before.messages[last], finish_reason, fingerprint, run)
        if before.closed:
            raise Conflict(OVER)
        played = await self._advance(environment, before, message, finish_reason, fingerprint, run)
        if not await self.store.change(session, before, played.after):
            raise Conflict("another message of this session is being played")
        return played

    async def end(self, session: str, message: Message, fingerprint: str) -> PlayedStep:
        """Takes a message as the last one. One that comes again is answered as it was."""
        before = await self.find(session)
        if before.last == fingerprint:
            return PlayedStep(before, before, (), done=True)
        return await self._append(session, before, message, fingerprint, closed=True)

    async def note(self, session: str, message: Message, fingerprint: str) -> PlayedStep:
        """Takes a message that is carried out by nobody."""
        before = await self.find(session)
        if before.last == fingerprint:
            return PlayedStep(before, before, (), done=False)
        return await self._append(session, before, message, fingerprint, closed=False)

    async def _append(
        self, session: str, before: KeptEpisode, message: Message, fingerprint: str, *, closed: bool
    ) -> PlayedStep:
        if before.closed:
            raise Conflict(OVER)
        after = before.change(messages=(*before.messages, message), last=fingerprint, closed=closed)
        if not await self.store.change(session, before, after):
            raise Conflict("another message of this session is being played")
        return PlayedStep(before, after, (), done=closed)

    async def find(self, session: str) -> KeptEpisode:
        """NotFound."""
        episode = await self.store.find(session)
        if episode is None:
            raise NotFound("there is no such session: begin one first")
        return episode

    async def _advance(
        self,
        environment: str,
        before: KeptEpisode,
        message: Message,
        finish_reason: str,
        fingerprint: str,
        run: str | None,
    ) -> PlayedStep:
        """The episode ends when the environment ends it, after the last turn, or after a message that was cut off or
        broke off."""
        record = (await self.cache.get([before.task_id]))[before.task_id]
        turns = 1 + sum(one.role == "assistant" for one in before.messages)
        is_cut = is_truncated(finish_reason) or is_broken_off(finish_reason, says_nothing=message.says_nothing)
        if turns >= record.prompt.max_turns or is_cut:
            after = before.change(messages=(*before.messages, message), last=fingerprint, closed=True)
            return PlayedStep(before, after, (), done=True)
        return await self._play(environment, before, message, fingerprint, run)

    async def _play(
        self, environment: str, before: KeptEpisode, message: Message, fingerprint: str, run: str | None
    ) -> PlayedStep:
        messages = (*before.messages, message)
        turn = await self.stepper.step(environment, StepRequest(task_id=before.task_id, messages=messages, run=run))
        after = before.change(
            messages=(*messages, *turn.messages),
            last=fingerprint,
            closed=before.closed or (turn.done and fingerprint != ""),
        )
        return PlayedStep(before, after, turn.messages, turn.done, turn.reward)


# Lists of tasks by their index, for OpenEnv and the Open Reward Standard.

_MAX_LISTED: Final = 10_000


class SplitReference(Frozen):
    split: Split


class SplitEntry(Frozen):
    name: Split
    type: Split


SPLITS: Final = [SplitEntry(name="train", type="train"), SplitEntry(name="test", type="test")]


class TaskReference(SplitReference):
    index: Annotated[WholeNumber, Field(ge=0, le=2**40)]


class TaskRange(SplitReference):
    start: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None
    stop: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None


class TaskListing(Frozen):
    """Each task can begin an episode."""

    tasks: tuple[TaskReference, ...]
    env_name: str


class TaskReply(Frozen):
    task: TaskReference


class TaskCount(Frozen):
    num_tasks: int


class TaskLister:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def count_tasks(self, environment: str, split: Split, params: dict[str, JsonValue]) -> int | None:
        """None for a split without end."""
        hosted = self._catalogue.get_environment_or_current(environment)
        return hosted.environment.size(split, hosted.validate_params(params))

    def get_task(self, environment: str, task: TaskReference, params: dict[str, JsonValue]) -> TaskReply:
        end = self.count_tasks(environment, task.split, params)
        if end is not None and task.index >= end:
            raise InvalidRequest(f"the split has {end} tasks", field="body.index")
        return TaskReply(task=task)

    def list_tasks(self, environment: str, span: TaskRange, params: dict[str, JsonValue]) -> TaskListing:
        counted = self.count_tasks(environment, span.split, params)
        ends = [end for end in (counted, span.stop) if end is not None]
        start, stop = span.start or 0, require_size(min(ends, default=None))
        if stop - start > _MAX_LISTED:
            raise InvalidRequest(f"at most {_MAX_LISTED} tasks can be listed at once", field="body.stop")
        listed = tuple(TaskReference(split=span.split, index=index) for index in range(start, stop))
        return TaskListing(tasks=listed, env_name=environment)


def require_size(size: int | None) -> int:
    if size is None:
        raise HTTPException(501, "this split is endless; every index is a task")
    return size


# Ports of their own, for clients whose address is only a host and a port.


@dataclass(frozen=True)
class PortRoot:
    """What stands before each path of a port, and the query parameters of all its requests."""

    path: str
    query: Mapping[str, str | int | float] = field(default_factory=dict)


class PortPaths:
    """Routes requests on a port in `roots` to what is served there; nothing else is reachable on it."""

    def __init__(self, app: ASGIApp, roots: Mapping[int, PortRoot]) -> None:
        self._app = app
        self._roots = roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = self._roots.get((scope.get("server") or ("", 0))[1]) if scope["type"] == "http" else None
        await self._app(scope if root is None else _rewrite(scope, root), receive, send)


def _rewrite(scope: Scope, root: PortRoot) -> Scope:
    raw = root.path.encode() + (scope.get("raw_path") or scope["path"].encode())
    # The port's own come last, since of equal names the last one counts.
    query = b"&".join(filter(None, (scope.get("query_string", b""), urlencode(root.query).encode())))
    return {**scope, "path": root.path + scope["path"], "raw_path": raw, "query_string": query}
