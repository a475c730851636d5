"""The Open Reward Standard, as `openreward/environments/server.py` of 0.1.167 serves it: every environment is a server.

POST /compat/ors/{env}/call
{"name": "reply", "input": {"text": "Good evening."}}
event: end
data: {"ok":true,"output":{"blocks":[],"reward":0.7,"finished":true,"metadata":{…}}}

The model acts by calls alone: of the task's own tools, of `reply`, which says something, or of `answer`, which says the
last word. An episode is kept in the store, since its client may ask any replica. A call is answered as a stream, which
is kept alive while judges work; a call whose stream was lost comes again with the id that the stream began with.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator
from starlette.exceptions import HTTPException
from starlette.types import Message as AsgiMessage

from app.domain.errors import Conflict, EnvironmentUnavailable, GatewayError, InvalidRequest, NotFound
from app.domain.groups import TaskRecord
from app.domain.runs import Policy
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen, ModelWords, Split, WholeNumber
from app.http.compat.kept_sessions import (
    NOTED,
    SPLITS,
    KeptSessions,
    PlayedStep,
    SplitEntry,
    SplitReference,
    TaskCount,
    TaskLister,
    TaskListing,
    TaskRange,
    TaskReference,
    TaskReply,
)
from app.http.compat.one_sample import (
    GATHER_DESCRIPTION,
    LONGEST_WAIT,
    HeldSamples,
    RewardService,
    SampleLabel,
    SampleOptions,
    list_flags,
)
from app.http.web.api_keys import declare_access, get_bounds
from app.http.web.routes import JsonRoute
from app.service.access import check_hand_out
from app.service.catalogue import Catalogue
from app.service.handout import Dispatcher
from app.service.requests import GroupProblem, GroupReply, GroupToScore, NextBatch, ScoreRequest
from app.service.scoring import ScoringService
from app.service.task_cache import TaskCache

# What is sent to clients.

_REPLY: Final = "reply"
_ANSWER: Final = "answer"
"""The tool that a harness calls with the model's plain message, which ends the episode."""


class ServerStatus(Frozen):
    status: str = "ok"


class ServerVersion(Frozen):
    version: str = "0.1.167"
    """Of the package whose server this is like."""
    build_sha: str | None = None


class SessionReply(Frozen):
    sid: str


class NamedTask(TaskReply):
    env_name: str


class TextBlock(Frozen):
    text: str
    type: Literal["text"] = "text"


class ToolDescription(Frozen):
    name: str
    description: str
    input_schema: dict[str, JsonValue]


class TerminalTool(Frozen):
    name: str = _ANSWER
    arg: str = "text"
    description: str = "Says the last word: the episode ends and is scored."


class ToolListing(Frozen):
    tools: tuple[ToolDescription, ...]
    terminal_tool: TerminalTool = TerminalTool()
    supports_score_group: bool = True
    message_block_types: tuple[str, ...] = ("text", "reasoning", "tool_call", "tool_result")


class ShownMessage(Frozen):
    role: Literal["system", "user", "assistant"]
    blocks: tuple[TextBlock, ...]


class ToolOutput(Frozen):
    blocks: tuple[TextBlock, ...]
    reward: FiniteNumber | None = None
    """Null while the episode goes on, but for turns of a run with `turn_rewards`, and where there is no score."""
    finished: bool = False
    metadata: dict[str, JsonValue] | None = None


class CallReply(Frozen):
    ok: Literal[True] = True
    output: ToolOutput


class CallError(Frozen):
    ok: Literal[False] = False
    error: str
    reason: Literal["not_found", "input_validation", "episode_finished"] | None = None


class CandidateScore(Frozen):
    reward: FiniteNumber | None
    metadata: dict[str, JsonValue]


class GroupScores(Frozen):
    scores: tuple[CandidateScore, ...]


_REPLY_TOOL: Final = ToolDescription(
    name=_REPLY,
    description="Says something and returns the answer to it.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "All that is said."}},
        "required": ["text"],
    },
)


def _describe_tools(tools: Sequence[ToolSpec]) -> ToolListing:
    """A task's own, and `reply`."""
    own = tuple(
        ToolDescription(
            name=one.function.name, description=one.function.description, input_schema=dict(one.function.parameters)
        )
        for one in tools
    )
    return ToolListing(tools=(*own, _REPLY_TOOL))


def _show_messages(messages: Sequence[Message]) -> list[ShownMessage]:
    return [
        ShownMessage(
            role=one.role if one.role in {"system", "assistant"} else "user",
            blocks=(TextBlock(text=one.content or ""),),
        )
        for one in messages
    ]


def _show_observation(observed: Sequence[Message]) -> tuple[TextBlock, ...]:
    return tuple(TextBlock(text=one.content or "") for one in observed)


# What clients send.

_PARAMS: Final = TypeAdapter(dict[str, FiniteJson])


class OrsOptions(SampleOptions):
    contract: ClassVar[str] = "ors"

    gather_seconds: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description=GATHER_DESCRIPTION)
    ] = 300.0
    wait_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=LONGEST_WAIT,
            allow_inf_nan=False,
            description="Maximum seconds until a last call is answered. Until then the stream is kept alive.",
        ),
    ] = 900.0
    params: Annotated[
        str, Field(max_length=20_000, description="The environment's params, as a JSON object.", examples=["{}"])
    ] = "{}"

    def read_params(self) -> dict[str, JsonValue]:
        """InvalidRequest."""
        try:
            return _PARAMS.validate_json(self.params)
        except ValidationError:
            raise InvalidRequest("not a JSON object", field="params") from None


class _Sent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CreateRequest(_Sent):
    """A task by its place, or as it was listed."""

    env_name: str | None = None
    task_spec: TaskReference | None = None
    split: Split | None = None
    index: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None

    def find_task(self) -> TaskReference:
        """InvalidRequest naming the field."""
        if self.task_spec is not None:
            return self.task_spec
        if self.split is None or self.index is None:
            raise InvalidRequest("name a task by `split` and `index`, or by `task_spec`", field="task_spec")
        return TaskReference(split=self.split, index=self.index)


class ToolCallRequest(_Sent):
    name: Annotated[str, ModelWords(), Field(max_length=200)]
    input: Annotated[dict[str, JsonValue], ModelWords()] = {}
    task_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Of a call whose stream was lost: it is answered as it was."""


class Block(_Sent):
    type: Literal["text", "image", "reasoning", "tool_call", "tool_result"]
    text: Annotated[str, ModelWords()] = ""
    id: str | None = None
    name: Annotated[str, ModelWords()] = ""
    input: Annotated[JsonValue, ModelWords()] = None
    tool_call_id: str | None = None
    blocks: tuple["Block", ...] = ()


class CandidateTurn(_Sent):
    role: Literal["system", "user", "assistant"]
    blocks: tuple[Block, ...]


class GroupCandidate(_Sent):
    messages: Annotated[tuple[CandidateTurn, ...], Field(min_length=1, max_length=1000)]


class GroupRequest(_Sent):
    candidates: Annotated[tuple[GroupCandidate, ...], Field(min_length=1, max_length=256)]
    task_id: str | None = None
    """Not used: a group that is sent again has the scores that are stored."""

    @model_validator(mode="after")
    def _require_replies(self) -> "GroupRequest":
        for index, one in enumerate(self.candidates):
            if not any(turn.role == "assistant" for turn in one.messages):
                raise ValueError(f"candidate {index} has no message of the model")
        return self


def _read_call(call: ToolCallRequest) -> Message:
    """What the model said by a call. InvalidRequest for a reply without a text."""
    if call.name not in {_REPLY, _ANSWER}:
        own = ToolCall(id=call.task_id, function=FunctionCall(name=call.name, arguments=call.input))
        return Message(role="assistant", tool_calls=(own,))
    text = call.input.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"`{call.name}` takes a `text`", field="input.text")
    return Message(role="assistant", content=text)


def _read_candidate(candidate: GroupCandidate, single_reply: bool) -> Completion:
    """The last message of the model, or for several turns everything from its first one on."""
    messages = [message for turn in candidate.messages for message in _read_turn(turn)]
    own = [index for index, one in enumerate(messages) if one.role == "assistant"]
    return Completion(messages=tuple(messages[own[-1] : own[-1] + 1] if single_reply else messages[own[0] :]))


def _read_turn(turn: CandidateTurn) -> list[Message]:
    texts = "".join(one.text for one in turn.blocks if one.type == "text")
    if turn.role == "system":
        return [Message(role="system", content=texts)]
    if turn.role == "user":
        results = [
            Message(role="tool", content="".join(inner.text for inner in one.blocks), tool_call_id=one.tool_call_id)
            for one in turn.blocks
            if one.type == "tool_result"
        ]
        return results + ([Message(role="user", content=texts)] if texts or not results else [])
    calls = tuple(
        ToolCall(id=one.id, function=FunctionCall(name=one.name, arguments=one.input))
        for one in turn.blocks
        if one.type == "tool_call"
    )
    thought = "\n\n".join(one.text for one in turn.blocks if one.type == "reasoning")
    content = None if calls and not texts else texts
    return [Message(role="assistant", content=content, tool_calls=calls, reasoning_content=thought or None)]


# Streams of events, which are kept alive while the work goes on.

CHUNK: Final = 4096
"""Characters of an event: clients read lines of a limited length."""

_PING_SECONDS: Final = 10
"""Clients take a stream that is silent for 30 seconds for lost."""


@dataclass(frozen=True)
class _StreamResult:
    """What ends a stream, and what to do once it was sent or was not."""

    body: Frozen
    settle: Callable[[bool], Awaitable[None]] | None = None


def _stream_result(task_id: str, work: Callable[[], Awaitable[_StreamResult]]) -> Response:
    async def write() -> AsyncIterator[bytes]:
        yield _write_event("task_id", task_id)
        job = asyncio.ensure_future(work())
        sent = False
        try:
            while not (await asyncio.wait((job,), timeout=_PING_SECONDS))[0]:
                yield b": ping\n\n"
            for event in _write_end(job):
                yield event
            sent = True
        finally:
            await _settle(job, sent)

    # nginx would keep the pings back, and the client take the stream for lost.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(write(), media_type="text/event-stream", headers=headers)


def _write_end(job: "asyncio.Future[_StreamResult]") -> list[bytes]:
    try:
        return write_result(job.result().body)
    except GatewayError as error:
        return [_write_event("error", " ".join(error.detail.split()))]  # a line break would end the event


async def _settle(job: "asyncio.Future[_StreamResult]", sent: bool) -> None:
    job.cancel()
    if job.done() and not job.cancelled() and job.exception() is None and (settle := job.result().settle) is not None:
        await settle(sent)


def _write_event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def write_result(result: Frozen) -> list[bytes]:
    """The last events of a stream. No piece begins with a space, which clients would take off."""
    text = json.dumps(result.model_dump(mode="json"), separators=(",", ":"))
    pieces: list[str] = []
    while len(text) > CHUNK:
        cut = next((index for index in range(CHUNK, len(text)) if text[index] != " "), len(text))
        pieces.append(text[:cut])
        text = text[cut:]
    return [*(_write_event("chunk", one) for one in pieces), _write_event("end", text)]


# Turns and scores.


class _OrsEpisodes:
    def __init__(self, scoring: ScoringService, sessions: KeptSessions, reward_service: RewardService) -> None:
        self._scoring = scoring
        self._sessions = sessions
        self._reward_service = reward_service

    async def play(self, record: TaskRecord, call: ToolCallRequest, options: OrsOptions, session: str) -> _StreamResult:
        try:
            message = _read_call(call)
            played = await self._take(record, call, message, _name_session(session), options.run)
        except InvalidRequest as error:
            return _StreamResult(CallError(error=error.detail, reason="input_validation"))
        except Conflict as error:
            return _StreamResult(CallError(error=error.detail, reason="episode_finished"))
        if not played.done:
            noted = not played.observed and call.name not in {_REPLY, _ANSWER}
            blocks = (TextBlock(text=NOTED),) if noted else _show_observation(played.observed)
            return _StreamResult(CallReply(output=ToolOutput(blocks=blocks, reward=played.reward)))
        completion = Completion(messages=_merge_calls(played.after.messages), finish_reason="stop")
        return await self._score(record, completion, options, f"{_name_session(session)}.{call.task_id}", played)

    async def _take(
        self, record: TaskRecord, call: ToolCallRequest, message: Message, session: str, run: str | None
    ) -> PlayedStep:
        env, fingerprint = record.key.environment, call.task_id or ""
        single = await self._reward_service.stepper.is_single_reply(env, record.task_id)
        # A task with one reply is answered by all calls together: they are noted, and what is said ends it.
        if call.name == _ANSWER or (single and call.name == _REPLY):
            return await self._sessions.end(session, message, fingerprint)
        if single:
            return await self._sessions.note(session, message, fingerprint)
        return await self._sessions.step(env, session, message, "stop", fingerprint, run)

    async def _score(
        self, record: TaskRecord, completion: Completion, options: OrsOptions, fingerprint: str, played: PlayedStep
    ) -> _StreamResult:
        label = SampleLabel(task_id=record.task_id, purpose="eval" if record.key.split == "test" else "train")
        sample = options.build_sample(record.key.environment, label, completion, "X-Session-ID")
        named = replace(sample, fingerprint=sha256(fingerprint.encode()).hexdigest())
        held = HeldSamples(
            self._reward_service.parts,
            [named],
            min(options.gather_seconds, options.wait_seconds),
            options.wait_seconds,
        )
        (reply,) = await held.await_replies(_never_receive)
        if reply.score.reward is None:  # clients take null for no score, so nothing is refused
            self._reward_service.unscored("ors", record.key.environment, reply.score.reason or "pending", "null")
        output = ToolOutput(
            blocks=_show_observation(played.observed),
            reward=reply.score.last_reward,
            finished=True,
            metadata=_describe(reply),
        )
        return _StreamResult(CallReply(output=output), held.settle)

    async def score_candidates(self, record: TaskRecord, request: GroupRequest, options: OrsOptions) -> _StreamResult:
        env = record.key.environment
        single = await self._reward_service.stepper.is_single_reply(env, record.task_id)
        group = GroupToScore(
            task_id=record.task_id, completions=tuple(_read_candidate(one, single) for one in request.candidates)
        )
        to_score = ScoreRequest(
            groups=(group,),
            run=options.run,
            policy=None if options.model is None else Policy(model=options.model),
            purpose="eval" if record.key.split == "test" else "train",
            wait_seconds=min(options.wait_seconds, 600.0),
        )
        (scored,) = (await self._scoring.score(to_score, env)).groups
        if isinstance(scored, GroupProblem):
            raise InvalidRequest(scored.detail, field=scored.field)
        return _StreamResult(
            GroupScores(
                scores=tuple(
                    CandidateScore(
                        reward=score.reward,
                        metadata={
                            "group_id": scored.group_id,
                            "reason": score.reason,
                            "rationale": score.rationale,
                            "flags": list(score.flags),
                        },
                    )
                    for score in scored.scores
                )
            )
        )


def _name_session(session: str) -> str:
    return f"ors.{sha256(session.encode()).hexdigest()[:32]}"


def _merge_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Calls that were noted and what was said at last are one message of the model."""
    if len(messages) < 2 or any(one.role != "assistant" for one in messages):
        return messages
    calls = tuple(call for one in messages for call in one.tool_calls)
    return (messages[-1].model_copy(update={"tool_calls": calls}),)


def _describe(reply: GroupReply) -> dict[str, Any]:
    score = reply.score
    return {
        "group_id": reply.group_id,
        "reason": score.reason,
        "absolute": score.absolute,
        "criteria": {one.name: one.value for one in score.criteria},
        "flags": list(list_flags(reply)),
        "rationale": score.rationale,
    }


async def _never_receive() -> AsgiMessage:
    """The stream itself notices that its client left."""
    left: asyncio.Future[AsgiMessage] = asyncio.get_running_loop().create_future()
    return await left


# The routes.

PREFIX: Final = "/compat/ors"
_ENDLESS: Final = 1_000_000
"""How many tasks a split without end is said to have, since clients ask for a number."""


def read_options(options: Annotated[OrsOptions, Query()]) -> OrsOptions:
    """All routes take them: those of a port stand in each of its requests."""
    return options


Options = Annotated[OrsOptions, Depends(read_options)]
SessionId = Annotated[str, Header(alias="X-Session-ID", min_length=1, max_length=200)]


class _OrsRoute(JsonRoute):
    """An environment that is still starting is known by a header, which clients wait for."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()

        async def handle_starting(request: Request) -> Response:
            try:
                return await handle(request)
            except EnvironmentUnavailable as error:
                headers = {"Retry-After": str(error.retry_after), "X-Backend-State": "starting"}
                raise HTTPException(503, error.detail, headers) from error

        return handle_starting


class OrsServer:
    """The routes of all environments. Each is a server of its own; its name may stand before a path once more."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        dispatcher: Dispatcher,
        task_cache: TaskCache,
        scoring: ScoringService,
        sessions: KeptSessions,
        reward_service: RewardService,
    ) -> None:
        self._dispatcher = dispatcher
        self._task_cache = task_cache
        self._sessions = sessions
        self._reward_service = reward_service
        self._episodes = _OrsEpisodes(scoring, sessions, reward_service)
        self._lister = TaskLister(catalogue)
        self.router = APIRouter(
            prefix=f"{PREFIX}/{{env}}",
            tags=["ors"],
            route_class=_OrsRoute,
            dependencies=[Depends(read_options)],
            include_in_schema=False,
        )
        add, named = self._add, self._add_named
        add("GET", "/health", self.tell_health, "Whether an ORS server runs")
        add("GET", "/version", self.tell_version, "The version of an ORS server")
        add("GET", "/list_environments", self.list_environments, "The environment of an ORS server")
        add("POST", "/create_session", self.open_session, "Name a session of ORS")
        add("POST", "/create", self.create, "Begin an episode of ORS")
        add("POST", "/ping", self.ping, "Whether a session of ORS is there")
        add("POST", "/delete", self.delete, "End an episode of ORS")
        add("POST", "/delete_session", self.forget, "Forget the name of a session of ORS")
        named("GET", "/splits", self.list_splits, "Splits of ORS")
        named("POST", "/num_tasks", self.count_tasks, "How many tasks a split of ORS has")
        named("POST", "/tasks", self.list_tasks, "Tasks of a split of ORS")
        named("POST", "/task_range", self.list_tasks, "Some tasks of a split of ORS")
        named("POST", "/task", self.get_task, "A task of ORS")
        named("GET", "/tools", self.list_tools, "Tools that all tasks of ORS have")
        named("GET", "/task_tools", self.list_task_tools, "Tools of a session of ORS")
        named("GET", "/prompt", self.show_prompt, "The prompt of a session of ORS")
        named("GET", "/messages", self.show_conversation, "The prompt of a session of ORS, by messages")
        named("POST", "/call", self.call, "Call a tool of ORS")
        named("POST", "/score_group", self.score_group, "Scores of a group of ORS")
        declare_access(self.router.routes, "train", "handler")

    def _add(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self.router.add_api_route(path, answer, methods=[method], summary=summary)

    def _add_named(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self._add(method, path, answer, summary)
        self.router.add_api_route(f"/{{name}}{path}", answer, methods=[method])

    async def tell_health(self, env: str) -> ServerStatus:
        self._reward_service.require_environment(env)
        return ServerStatus()

    async def list_environments(self, env: str) -> list[str]:
        self._reward_service.require_environment(env)
        return [env]

    async def list_splits(self, env: str) -> list[SplitEntry]:
        self._reward_service.require_environment(env)
        return SPLITS

    async def tell_version(self, env: str) -> ServerVersion:
        self._reward_service.require_environment(env)
        return ServerVersion()

    async def count_tasks(self, env: str, asked: SplitReference, options: Options) -> TaskCount:
        """A number beyond every use for a split without end: each index is a task."""
        counted = self._lister.count_tasks(env, asked.split, options.read_params())
        return TaskCount(num_tasks=_ENDLESS if counted is None else counted)

    async def list_tasks(self, env: str, asked: TaskRange, options: Options) -> TaskListing:
        return self._lister.list_tasks(env, asked, options.read_params())

    async def get_task(self, env: str, asked: TaskReference, options: Options) -> NamedTask:
        task = self._lister.get_task(env, asked, options.read_params()).task
        return NamedTask(task=task, env_name=env)

    async def list_tools(self, env: str) -> ToolListing:
        """Those of a task are told by its session."""
        self._reward_service.require_environment(env)
        return _describe_tools(())

    async def open_session(self, env: str) -> Response:
        """The name is chosen here; the session begins with `/create`."""
        self._reward_service.require_environment(env)
        events = _write_event("task_id", str(uuid.uuid4())) + _write_event("end", "")
        return Response(events, media_type="text/event-stream")

    async def create(
        self, env: str, request: Request, asked: CreateRequest, options: Options, session: SessionId
    ) -> SessionReply:
        """Takes the task at a place of a split. The same again is the same session."""
        self._reward_service.require_environment(env)
        task, params, bounds = asked.find_task(), options.read_params(), await get_bounds(request)
        check_hand_out(bounds, env, options.run, params)
        look_up = NextBatch(batch_size=1, run=options.run, split=task.split, params=params, cursor=task.index)
        batch = await self._dispatcher.next_batch(env, look_up)
        if not batch.tasks:
            raise InvalidRequest("the split has no such task", field="index")
        await self._sessions.begin(_name_session(session), batch.tasks[0].task_id)
        return SessionReply(sid=session)

    async def ping(self, env: str, request: Request, options: Options, session: SessionId) -> ServerStatus:
        await self._find_task(env, request, options, session)
        return ServerStatus()

    async def delete(self, env: str, request: Request, options: Options, session: SessionId) -> SessionReply:
        """Also a session that is unknown or has ended."""
        self._reward_service.require_environment(env)
        (await get_bounds(request)).require_run(options.run)
        await self._sessions.close(_name_session(session))
        return SessionReply(sid=session)

    async def forget(self, env: str, session: SessionId) -> SessionReply:
        self._reward_service.require_environment(env)
        return SessionReply(sid=session)

    async def list_task_tools(self, env: str, request: Request, options: Options, session: SessionId) -> ToolListing:
        return _describe_tools((await self._find_task(env, request, options, session)).prompt.tools)

    async def show_prompt(self, env: str, request: Request, options: Options, session: SessionId) -> list[TextBlock]:
        prompt = (await self._find_task(env, request, options, session)).prompt
        return [block for message in _show_messages(prompt.messages) for block in message.blocks]

    async def show_conversation(
        self, env: str, request: Request, options: Options, session: SessionId
    ) -> list[ShownMessage]:
        return _show_messages((await self._find_task(env, request, options, session)).prompt.messages)

    async def call(
        self, env: str, request: Request, asked: ToolCallRequest, options: Options, session: SessionId
    ) -> Response:
        """Plays a turn. The last one is answered with the reward of the episode; null where there is none. A call whose
        stream was lost is sent again with its `task_id`, and answered as it was."""
        record = await self._find_task(env, request, options, session)
        call = _give_id(asked)
        return _stream_result(call.task_id or "", lambda: self._episodes.play(record, call, options, session))

    async def score_group(
        self, env: str, request: Request, asked: GroupRequest, options: Options, session: SessionId
    ) -> Response:
        """Scores replies to the session's task as one group, in their order; null where there is no score."""
        record = await self._find_task(env, request, options, session)
        return _stream_result(str(uuid.uuid4()), lambda: self._episodes.score_candidates(record, asked, options))

    async def _find_task(self, env: str, request: Request, options: OrsOptions, session: str) -> TaskRecord:
        """Of a session. NotFound; Forbidden beyond the caller's bounds."""
        self._reward_service.require_environment(env)
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        task_id = (await self._sessions.find(_name_session(session))).task_id
        await self._reward_service.bounds.require_tasks(bounds, [task_id], "X-Session-ID")
        record = (await self._task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != env:
            raise NotFound(f"there is no such session of {env}", field="X-Session-ID")
        return record


def _give_id(call: ToolCallRequest) -> ToolCallRequest:
    return call if call.task_id is not None else call.model_copy(update={"task_id": uuid.uuid4().hex})
