"""Sessions of OpenEnv's clients: one episode after the other, from the reset to the score.

A reset chooses or leases a task. Each step is one message of the model, which is advanced by the environment; the last
one is held in its group until it is scored, and counts as answered once its result was sent. Whatever fails before
that leaves the episode as it was, so that the same step can be sent again. An unfinished episode whose connection ended
is remembered for a while, for the caller who played it.
"""

import asyncio
import json
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, cast

from pydantic import ConfigDict, Field, JsonValue, ValidationError, model_validator

from app.domain.access import Caller, find_bounds
from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.faults import describe_faults
from app.domain.groups import TaskRecord
from app.domain.runs import Policy, Purpose
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, ToolCall, ToolSpec, is_broken_off, is_truncated
from app.domain.values import (
    FiniteJson,
    FiniteNumber,
    Frozen,
    Name,
    Split,
    WholeNumber,
    canonical_json,
    replace_in_json,
    replace_lone_surrogates,
)
from app.http.compat.one_sample import MAX_GROUP
from app.http.web.bodies import LARGE_BYTES, MOST_VALUES, require_few_values
from app.http.web.problems import RefusedBody
from app.service.access import BoundsCheck, check_hand_out
from app.service.catalogue import Catalogue
from app.service.handout import Dispatcher
from app.service.pending_groups import SampleService, SampleToScore
from app.service.requests import (
    Cursor,
    GroupReply,
    HandedOutTask,
    LeaseSeconds,
    NextBatch,
    StepRequest,
    TaskId,
    TaskSelection,
)
from app.service.retrieval import EpisodeStepper
from app.service.task_cache import TaskCache
from app.toolkit.texts import run_in_turn

# What is sent: frames of the web socket, JSON objects with a `type`, one answer to each.

_Code = Literal[
    "INVALID_JSON",
    "UNKNOWN_TYPE",
    "VALIDATION_ERROR",
    "EXECUTION_ERROR",
    "CAPACITY_REACHED",
    "FACTORY_ERROR",
    "SESSION_ERROR",
]
"""The error codes of OpenEnv's own server."""

_TYPES: Final = ("reset", "step", "state", "close", "mcp")


class FrameRefused(Exception):
    """An error that is sent to the client; the session continues."""

    def __init__(self, code: _Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Frame:
    type: str
    data: dict[str, JsonValue]


class Observation(Frozen):
    """The model's next observation."""

    messages: tuple[Message, ...] = ()
    """After a reset the prompt; after a step only the messages that follow the model's."""
    text: str = ""
    """The contents of `messages` joined by empty lines, for clients that need one string."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call; sent only after a reset."""
    task_id: str
    turns_left: int
    """Maximum number of further messages of the model."""
    metadata: dict[str, JsonValue] = {}
    """After a reset the task's public metadata; at the end the score. The same as the outer `metadata`."""


class StepResult(Frozen):
    """The response to a reset or a step."""

    observation: Observation
    reward: Annotated[
        FiniteNumber | None,
        Field(description="Null before the end of the episode, but for turns of a run with `turn_rewards`."),
    ] = None
    done: bool = False
    metadata: dict[str, JsonValue] = {}


class State(Frozen):
    episode_id: str | None = None
    step_count: int = 0
    environment: str
    task_id: str | None = None
    turns_left: int | None = None
    done: bool = False


def read_frame(text: str | bytes) -> Frame:
    """Parses a frame. Raises FrameRefused if it is invalid. NaN and lone surrogates are accepted, because a model may
    have written them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FrameRefused("INVALID_JSON", f"invalid JSON{where}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise FrameRefused("VALIDATION_ERROR", 'a frame must be an object such as {"type": "reset", "data": {}}')
    if value["type"] not in _TYPES:
        raise FrameRefused("UNKNOWN_TYPE", f"unknown type; the types are {', '.join(_TYPES)}")
    data = value.get("data", {})
    if not isinstance(data, dict):
        raise FrameRefused("VALIDATION_ERROR", "data: expected an object")
    return Frame(value["type"], cast("dict[str, JsonValue]", data))


async def read_any_frame(text: str | bytes) -> Frame:
    """As `read_frame`; a large one in a thread, with as many values as a body may hold."""
    return read_frame(text) if len(text) < LARGE_BYTES else await run_in_turn("bodies", _read_large_frame, text)


def _read_large_frame(text: str | bytes) -> Frame:
    try:
        require_few_values(text.encode(errors="surrogatepass") if isinstance(text, str) else text, MOST_VALUES)
    except RefusedBody as refused:
        raise FrameRefused("VALIDATION_ERROR", refused.detail) from None
    return read_frame(text)


def asks_for_tools(action: Mapping[str, JsonValue]) -> bool:
    """Whether a step asks which tools there are. It is no message of the model and uses up no turn."""
    return action.get("type") == "list_tools" and action.keys() <= {"type", "metadata"}


def build_observation_frame(stepped: StepResult) -> str:
    return f'{{"type":"observation","data":{stepped.model_dump_json()}}}'


def write_tool_listing(tools: Sequence[ToolSpec]) -> str:
    """The data of the answer: an observation with `tools`, in the form that OpenEnv gives them."""
    listed = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in (one.function for one in tools)
    ]
    return json.dumps({"observation": {"tools": listed}, "reward": None, "done": False, "metadata": {}})


def build_listing_frame(tools: Sequence[ToolSpec]) -> str:
    return f'{{"type":"observation","data":{write_tool_listing(tools)}}}'


def build_state_frame(state: State) -> str:
    return f'{{"type":"state","data":{state.model_dump_json()}}}'


def build_rpc_frame(answer: str) -> str:
    return f'{{"type":"mcp","data":{answer}}}'


def build_error_frame(code: _Code, message: str, **more: int) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})


# Resets.

_Printable = Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Siblings(Frozen):
    """Episodes over the same task that are judged together."""

    key: Annotated[_Printable, Field(max_length=200)] = ""
    """Separates groups over the same task; resets with the same key get the same task."""
    size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)]


class Reset(Frozen):
    """Every field is optional. `task_id`, `index` or `seed` selects the task; with only a `run`, a task is leased."""

    seed: Annotated[WholeNumber, Field(ge=0, lt=2**64)] | None = None
    """The same seed always gives the same task."""
    episode_id: _Printable | None = None
    """Returned by `state`; generated if it is missing. Of an episode whose connection was lost: continues it."""
    run: Name | None = None
    """Run name to store results under."""
    split: Split = "train"
    params: dict[str, FiniteJson] = {}
    """The environment's params; see its entry in the catalogue."""
    select: TaskSelection = TaskSelection()
    task_id: TaskId | None = None
    """A task that was handed out before, over any API."""
    index: Cursor | None = None
    """Position in the order of tasks; a test split ends after its last task."""
    group: Siblings | None = None
    group_size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)] | None = None
    """`group` without a key."""
    policy: Policy | None = None
    purpose: Purpose = "train"
    lease_seconds: LeaseSeconds = 600.0
    gather_seconds: Annotated[FiniteNumber, Field(ge=0, le=600)] = 20.0
    """How long to wait for the other members of a group, from the first one's last step."""
    wait_seconds: Annotated[FiniteNumber, Field(gt=0, le=600)] = 50.0
    """Maximum seconds until the last step is answered. OpenEnv's clients time out after 60."""
    unscored: Literal["error", "null"] = "error"
    """The response to the last step if there is no score: an error, after which the same step can be sent again, or a
    reward of null."""

    @model_validator(mode="after")
    def _check_task_choice(self) -> Self:
        named = [name for name in ("task_id", "index", "seed") if getattr(self, name) is not None]
        if self.task_id is not None and self.index is not None:
            raise ValueError("give either task_id or index")
        if self.group is not None and self.group_size is not None:
            raise ValueError("give either group or group_size")
        if self.siblings.size > 1 and not named and not self.siblings.key:
            raise ValueError(
                "members of a group need the same task: give all of them the same seed, index, task_id or group.key"
            )
        if self.purpose == "eval" and not named:
            raise ValueError("an evaluation needs a seed, an index or a task_id")
        return self

    @property
    def siblings(self) -> Siblings:
        return self.group or Siblings(size=self.group_size or 1)


def read_reset(data: dict[str, JsonValue]) -> Reset:
    """Parses a reset; null counts as absent. Raises FrameRefused naming the unknown or invalid fields."""
    try:
        return Reset.model_validate({name: value for name, value in data.items() if value is not None})
    except (ValidationError, RecursionError) as error:
        raise FrameRefused("VALIDATION_ERROR", _describe_faults(error, Reset)) from None


def _describe_faults(error: ValidationError | RecursionError, kind: object) -> str:
    return "data is nested too deeply" if isinstance(error, RecursionError) else describe_faults(error, kind)


# Episodes, and those whose connection has ended, so that they can go on.


@dataclass(frozen=True)
class OpenEnvEpisode:
    """An episode so far. `messages` are all after the prompt."""

    task: HandedOutTask
    reset: Reset
    episode_id: str
    messages: tuple[Message, ...] = ()
    steps: int = 0
    done: bool = False

    @property
    def turns_left(self) -> int:
        return 0 if self.done else self.task.max_turns - self.steps

    def advance(self, *messages: Message, done: bool = False) -> "OpenEnvEpisode":
        return OpenEnvEpisode(self.task, self.reset, self.episode_id, (*self.messages, *messages), self.steps + 1, done)


@dataclass(frozen=True)
class _Dropped:
    episode: OpenEnvEpisode
    lost: bool
    at: float


class DroppedEpisodes:
    """Unfinished episodes whose connection has ended, by environment and caller. One per process; the oldest are
    forgotten first."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._episodes: OrderedDict[tuple[str, str], _Dropped] = OrderedDict()

    def keep(self, owner: str, episode: OpenEnvEpisode, *, lost: bool) -> None:
        """`lost` if the client did not close the session. Of two episodes with the same id neither is kept."""
        key = (owner, episode.episode_id)
        if self._forget_old().pop(key, None) is None:
            self._episodes[key] = _Dropped(episode, lost, time.monotonic())
        while len(self._episodes) > self._most:
            self._episodes.popitem(last=False)

    def take(self, owner: str, episode_id: str) -> OpenEnvEpisode | None:
        dropped = self._forget_old().pop((owner, episode_id), None)
        return None if dropped is None else dropped.episode

    def take_lost(self, owner: str, reset: Reset) -> OpenEnvEpisode | None:
        """The episode that a reset continues: its connection was lost, and the reset says the same as its first one or
        only names it. Any other episode with this id is forgotten."""
        dropped = self._forget_old().pop((owner, reset.episode_id or ""), None)
        same = dropped is not None and (reset.model_fields_set == {"episode_id"} or reset == dropped.episode.reset)
        return dropped.episode if dropped is not None and dropped.lost and same else None

    def _forget_old(self) -> OrderedDict[tuple[str, str], _Dropped]:
        oldest = time.monotonic() - self._seconds
        while self._episodes and next(iter(self._episodes.values())).at < oldest:
            self._episodes.popitem(last=False)
        return self._episodes


# The task of a reset.

_CURSOR_RANGE: Final = 2**40
_MAX_SHARED_TASKS: Final = 20_000
"""Maximum number of groups whose task is remembered; the oldest are forgotten first."""


@dataclass
class _SharedTask:
    dealing: "asyncio.Task[HandedOutTask]"
    left: int


class TaskAssigner:
    """One per process. It remembers the next cursor of resets without a run, and the tasks of groups."""

    def __init__(
        self, *, catalogue: Catalogue, dispatcher: Dispatcher, task_cache: TaskCache, checks: BoundsCheck
    ) -> None:
        self._catalogue = catalogue
        self._dispatcher = dispatcher
        self._task_cache = task_cache
        self._checks = checks
        self._walks: Counter[tuple[str, str]] = Counter()
        self._shared: OrderedDict[tuple[str, str], _SharedTask] = OrderedDict()

    async def assign_task(self, environment: str, reset: Reset, caller: Caller | None = None) -> HandedOutTask:
        """The task for a reset. Raises InvalidRequest or NotFound naming the field, Forbidden beyond the caller's
        bounds, or Conflict if the run has no task left."""
        bounds = find_bounds(caller)
        if reset.task_id is not None:
            bounds.require_run(reset.run)
            await self._checks.require_tasks(bounds, [reset.task_id], "task_id")
            return await self._load_task(environment, reset.task_id)
        check_hand_out(bounds, environment, reset.run, reset.params)
        if reset.index is not None or reset.seed is not None or not reset.siblings.key:
            return await self._request_task(environment, reset)
        return await self._assign_group_task(environment, reset)

    async def _load_task(self, environment: str, task_id: str) -> HandedOutTask:
        record = (await self._task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != environment:
            raise NotFound(f"{task_id} was never handed out by {environment}", field="task_id")
        return _build_handed_out(record)

    async def _assign_group_task(self, environment: str, reset: Reset) -> HandedOutTask:
        """The task of the group's first member, for all its members."""
        # Whatever chooses the task: members that ask for different ones are in different groups.
        choice = reset.model_dump_json(include={"run", "split", "params", "select", "purpose", "group"})
        name = (environment, choice)
        shared = self._shared.get(name)
        if shared is None or (shared.dealing.done() and shared.dealing.exception() is not None):
            shared = _SharedTask(asyncio.create_task(self._request_task(environment, reset)), reset.siblings.size)
            self._shared[name] = shared
            while len(self._shared) > _MAX_SHARED_TASKS:
                self._shared.popitem(last=False)
        shared.left -= 1
        if shared.left == 0:
            self._shared.pop(name, None)
        # A member whose client leaves must not end what the others wait for.
        return await asyncio.shield(shared.dealing)

    async def _request_task(self, environment: str, reset: Reset) -> HandedOutTask:
        batch = await self._dispatcher.next_batch(
            environment,
            NextBatch(
                batch_size=1,
                run=reset.run,
                split=reset.split,
                params=reset.params,
                select=reset.select,
                purpose=reset.purpose,
                lease_seconds=reset.lease_seconds,
                cursor=self._choose_cursor(environment, reset),
            ),
        )
        if batch.tasks:
            return batch.tasks[0]
        if reset.index is not None or reset.seed is not None:
            raise InvalidRequest("the split has no such task", field="index")
        if batch.exhausted:
            raise Conflict("the run has finished this split")
        raise Conflict("the remaining tasks of this split are leased to other holders; retry later")

    def _choose_cursor(self, environment: str, reset: Reset) -> int | None:
        if reset.index is not None:
            return reset.index
        if reset.seed is not None:
            return self._wrap_cursor(environment, reset, reset.seed)
        if reset.run is not None:
            return None
        walk = (environment, canonical_json([reset.split, reset.params, reset.select.model_dump(mode="json")]))
        if len(self._walks) >= _MAX_SHARED_TASKS:  # bounds the memory: these walks begin again
            self._walks.clear()
        self._walks[walk] += 1
        return self._wrap_cursor(environment, reset, self._walks[walk] - 1)

    def _wrap_cursor(self, environment: str, reset: Reset, position: int) -> int:
        """Seeds beyond the end of a split wrap around."""
        if reset.split == "train":
            return position % _CURSOR_RANGE
        hosted = self._catalogue.get_environment_or_current(environment)
        return position % (hosted.environment.size(reset.split, hosted.validate_params(reset.params)) or _CURSOR_RANGE)


def _build_handed_out(record: TaskRecord) -> HandedOutTask:
    prompt = record.prompt
    return HandedOutTask(
        task_id=record.task_id,
        lease_id=None,
        environment=record.key.environment,
        messages=prompt.messages,
        tools=prompt.tools,
        max_turns=prompt.max_turns,
        metadata=prompt.metadata,
        lease_expires_at=None,
    )


# The model's message in a client's action.
#
# Clients build actions differently. Some choose their own key for the model's text. Some decode text that happens to be
# JSON, so that `42` arrives as a number and `{"name": "Ada"}` as the action itself. So an unknown object counts as the
# JSON text that it was. An action that says nothing, and tool calls that cannot be read, count as silence: as a text
# they could earn a reward that no reply earned, and an error would let a model do without a score by writing `{}`.

_TEXTS: Final = ("text", "message", "content")
"""Keys that may hold the model's text; `message` may also be a whole message in OpenAI's format."""

_BESIDE: Final = {"tool_calls", "finish_reason", "reasoning_content", "metadata"}
"""Keys that may stand beside the text."""

_EMPTY: Final[tuple[JsonValue, ...]] = (None, [], {})


class OpenEnvAction(Frozen):
    """One message of the model. Generic clients fill the only required field."""

    # Clients take a server whose action is titled `Action` or `CallToolAction` for one that offers MCP tools.
    model_config = ConfigDict(title="ModelMessage")

    text: str
    """What the model said; empty if it only called tools."""
    tool_calls: tuple[ToolCall, ...] = ()
    """In OpenAI's format."""
    finish_reason: Annotated[str | None, Field(max_length=100)] = None
    """From the inference server. `length` marks a truncated message, which ends the episode."""
    reasoning_content: str | None = None
    """The model's reasoning, if the server separates it from the answer. Stored, never scored."""


@dataclass(frozen=True)
class ParsedAction:
    message: Message
    finish_reason: str | None = None
    read_as: Literal["json", "nothing"] | None = None
    """`json` if the action was unknown, so that its JSON counts as the text; `nothing` if it counts as silence."""
    fault: str = ""
    """Why it counts as silence, naming the field."""

    def to_completion(self, before: tuple[Message, ...], *, multi_turn: bool) -> Completion:
        """The completion with this message; plain text if that is enough."""
        if multi_turn or self.message.tool_calls or self.message.reasoning_content is not None:
            return Completion(messages=(*before, self.message), finish_reason=self.finish_reason)
        return Completion(text=self.message.content or "", finish_reason=self.finish_reason)


def parse_action(data: dict[str, JsonValue]) -> ParsedAction:
    """Parses a JSON object as an action. Never raises: the object may be what a model wrote."""
    message = data.get("message")
    whole = message if isinstance(message, dict) and message.get("role") == "assistant" else {}
    calls = any(one.get("tool_calls") not in _EMPTY for one in (data, whole))
    if not calls and not set(data) - _BESIDE:
        return _take_as_silence('text: missing; an action is {"text": "what the model said"}')
    named = [name for name in _TEXTS if data.get(name) is not None]
    if calls and len(named) > 1:
        return _take_as_silence(f"{named[1]}: give the text once, as text, message or content")
    if not calls and (len(named) > 1 or not any(name in data for name in _TEXTS)):
        return _take_as_json(data)
    try:
        return _read_message(data, named, whole)
    except (ValidationError, RecursionError) as error:
        if calls:
            return _take_as_silence(_describe_faults(error, None))
        return _take_as_json(data)


def _read_message(data: dict[str, JsonValue], named: list[str], whole: dict[str, JsonValue]) -> ParsedAction:
    spoken = None if not named or whole else data[named[0]]
    beside = {name: value for name, value in data.items() if value not in _EMPTY and name != "metadata"}
    for name in named:
        beside.pop(name, None)
    text = "" if spoken is None else spoken if isinstance(spoken, str) else _write_json(spoken)
    action = OpenEnvAction.model_validate(replace_in_json({**beside, "text": text}))
    if whole:
        message = Message.model_validate(replace_in_json(whole))
        update = {"tool_calls": action.tool_calls} if action.tool_calls else {}
        return ParsedAction(message.model_copy(update=update), action.finish_reason)
    return ParsedAction(_build_message(action, silent=spoken is None), action.finish_reason)


def _build_message(action: OpenEnvAction, *, silent: bool) -> Message:
    return Message(
        role="assistant",
        content=None if silent and action.tool_calls else action.text,
        tool_calls=action.tool_calls,
        reasoning_content=action.reasoning_content,
    )


def _take_as_json(data: dict[str, JsonValue]) -> ParsedAction:
    return ParsedAction(Message(role="assistant", content=replace_lone_surrogates(_write_json(data))), read_as="json")


def _take_as_silence(fault: str) -> ParsedAction:
    return ParsedAction(Message(role="assistant", content=""), read_as="nothing", fault=fault)


def _write_json(value: JsonValue) -> str:
    """JSON text as a model most likely wrote it."""
    return json.dumps(value, ensure_ascii=False)


# Sessions.

_CONTRACT = "openenv"

_ObserveUnscored = Callable[[str, str, str, str], None]
"""Called for each last step without a score: contract, environment, reason, `error` or `null`."""


class NotScored(FrameRefused):
    """The service has no score at the moment."""

    def __init__(self, message: str) -> None:
        super().__init__("EXECUTION_ERROR", message)


@dataclass(frozen=True)
class SessionContext:
    """What all sessions share."""

    catalogue: Catalogue
    stepper: EpisodeStepper
    samples: SampleService
    assigner: TaskAssigner
    unscored: _ObserveUnscored


class OpenEnvSession:
    def __init__(
        self,
        environment: str,
        context: SessionContext,
        episode: OpenEnvEpisode | None = None,
        dropped: DroppedEpisodes | None = None,
        caller: Caller | None = None,
    ) -> None:
        """Episodes that were dropped are continued by their own caller alone."""
        self._environment = environment
        self._context = context
        self._episode = episode
        self._dropped = dropped
        self._caller = caller
        self._owner = environment if caller is None else f"{caller.name}/{environment}"

    @property
    def state(self) -> State:
        episode = self._episode
        if episode is None:
            return State(environment=self._environment)
        return State(
            episode_id=episode.episode_id,
            step_count=episode.steps,
            environment=self._environment,
            task_id=episode.task.task_id,
            turns_left=episode.turns_left,
            done=episode.done,
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
            task = await self._context.assigner.assign_task(self._environment, reset, self._caller)
            self._episode = OpenEnvEpisode(task, reset, reset.episode_id or f"episode_{secrets.token_hex(16)}")
        else:
            self._episode = continued
        return _build_start(self._episode, continued=continued is not None)

    def drop_episode(self, *, lost: bool) -> None:
        """Ends the session. An unfinished episode can be continued in another; `lost` if the client did not close this
        one."""
        episode, self._episode = self._episode, None
        if episode is not None and not episode.done and self._dropped is not None:
            self._dropped.keep(self._owner, episode, lost=lost)

    @asynccontextmanager
    async def step(self, data: dict[str, JsonValue]) -> AsyncIterator[StepResult]:
        """Plays one step; the result is sent inside the context. If it is not sent, or after FrameRefused, the episode
        is unchanged, and the same step can be sent again."""
        data = self._find_episode(data)
        episode = self._episode
        if episode is None:
            raise FrameRefused("EXECUTION_ERROR", "there is no episode: reset first")
        if episode.done:
            raise FrameRefused("EXECUTION_ERROR", "the episode is over: reset to start another")
        action = parse_action(data)
        after, reward = await self._advance_episode(episode, action)
        if not after.done:
            # The caller sends inside: the episode moves on only when the result has left.
            yield _build_step(after, after.messages[len(episode.messages) + 1 :], action, reward)
            self._episode = after
            return
        completion = action.to_completion(episode.messages, multi_turn=episode.task.max_turns > 1)
        async with self._hold_sample(episode, completion) as reply:
            yield self._build_final_step(after, reply, after.messages[len(episode.messages) + 1 :], action)
            self._episode = after

    def _find_episode(self, data: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """The action without the id of its episode. A session without an episode continues the one that is named."""
        episode_id = data.get("episode_id")
        if not isinstance(episode_id, str):
            return data
        if self._episode is None and self._dropped is not None:
            self._episode = self._dropped.take(self._owner, episode_id)
        if self._episode is None:
            raise FrameRefused("EXECUTION_ERROR", "episode_id: no such episode was dropped here: reset first")
        if episode_id == self._episode.episode_id:
            return {name: value for name, value in data.items() if name != "episode_id"}
        if data.keys() & {*_TEXTS, "tool_calls"}:
            raise FrameRefused("VALIDATION_ERROR", "episode_id: this session plays another episode")
        return data

    async def _advance_episode(
        self, episode: OpenEnvEpisode, action: ParsedAction
    ) -> tuple[OpenEnvEpisode, float | None]:
        """The episode after a message, and what is known of the message's own reward. The episode ends when the
        environment ends it, after the last turn, or after a message that was cut off or broke off."""
        message, reason = action.message, action.finish_reason
        is_cut = is_truncated(reason) or is_broken_off(reason, says_nothing=message.says_nothing)
        if episode.turns_left == 1 or is_cut:
            return episode.advance(message, done=True), None
        messages = (*episode.messages, message)
        request = StepRequest(task_id=episode.task.task_id, messages=messages, run=episode.reset.run)
        turn = await self._context.stepper.step(self._environment, request)
        return episode.advance(message, *turn.messages, done=turn.done), turn.reward

    @asynccontextmanager
    async def _hold_sample(self, episode: OpenEnvEpisode, completion: Completion) -> AsyncIterator[GroupReply]:
        """Holds the sample in its group. Samples of an evaluation are groups of one, which are not compared."""
        reset = episode.reset
        sample = SampleToScore(
            environment=self._environment,
            task_id=episode.task.task_id,
            completion=completion,
            run=reset.run,
            key=reset.siblings.key,
            size=1 if reset.purpose == "eval" else reset.siblings.size,
            policy=reset.policy,
            purpose=reset.purpose,
        )
        held = self._context.samples.score_sample(
            sample, gather_seconds=min(reset.gather_seconds, reset.wait_seconds), wait_seconds=reset.wait_seconds
        )
        async with held as reply:
            yield reply

    def _build_final_step(
        self, after: OpenEnvEpisode, reply: GroupReply, messages: tuple[Message, ...], action: ParsedAction
    ) -> StepResult:
        score = reply.score
        if score.reward is None:
            reason = score.reason or "pending"
            response = "null" if after.reset.unscored == "null" else "error"
            self._context.unscored(_CONTRACT, self._environment, reason, response)
            if response == "error":
                raise NotScored(f"unscored: {reason}: {_explain_missing_score(score)}; the same step may be sent again")
        metadata = _describe_reply(reply) | _describe_reading(action)
        return StepResult(
            observation=_build_observation(after, messages, metadata),
            reward=score.last_reward,
            done=True,
            metadata=metadata,
        )


def _build_start(episode: OpenEnvEpisode, *, continued: bool) -> StepResult:
    """What a reset shows: the prompt, and all that was said since in an episode that is continued."""
    task = episode.task
    messages = (*task.messages, *episode.messages)
    metadata: dict[str, JsonValue] = {**task.metadata, "continued": True} if continued else task.metadata
    observation = _build_observation(episode, messages, metadata).model_copy(update={"tools": task.tools})
    return StepResult(observation=observation, metadata=metadata)


def _build_step(
    after: OpenEnvEpisode, messages: tuple[Message, ...], action: ParsedAction, reward: float | None
) -> StepResult:
    metadata = _describe_reading(action)
    return StepResult(observation=_build_observation(after, messages, metadata), reward=reward, metadata=metadata)


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


def _describe_reading(action: ParsedAction) -> dict[str, JsonValue]:
    reading: dict[str, JsonValue] = {"read_as": action.read_as, "fault": action.fault}
    return {name: value for name, value in reading.items() if value}


def _describe_reply(reply: GroupReply) -> dict[str, JsonValue]:
    score: dict[str, JsonValue] = reply.score.model_dump(mode="json", include=_SHOWN)
    return {**score, "group_id": reply.group_id, "group_flags": list(reply.flags), "advantage": reply.advantages[0]}


_SHOWN = {"outcome", "reason", "gate", "absolute", "relative", "criteria", "flags", "rationale", "judges"}


def _explain_missing_score(score: Score) -> str:
    return score.rationale or ("it is still being scored" if score.outcome == "pending" else "the service failed")


def _join_contents(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(message.content for message in messages if message.content)
