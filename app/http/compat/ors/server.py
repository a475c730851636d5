"""The Open Reward Standard, as `openreward/environments/server.py` of 0.1.167 serves it: every environment is a server.

POST /compat/ors/{env}/call
{"name": "reply", "input": {"text": "Good evening."}}
event: end
data: {"ok":true,"output":{"blocks":[],"reward":0.7,"finished":true,"metadata":{…}}}
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Message as AsgiMessage

from app.domain.errors import Conflict, EnvironmentUnavailable, GatewayError, InvalidRequest, NotFound
from app.domain.groups import TaskRecord
from app.domain.parts import SampleName
from app.domain.runs import Policy
from app.domain.tasks import Completion, Message
from app.domain.values import Frozen
from app.http.compat.kept_sessions import NOTED, KeptSessions, PlayedStep
from app.http.compat.one_sample.held_samples import HeldSamples, LabelledSample
from app.http.compat.one_sample.labels import SampleLabel
from app.http.compat.one_sample.reward_service import RewardService
from app.http.compat.ors.wire import (
    ANSWER,
    REPLY,
    CallError,
    CallReply,
    CallRequest,
    CandidateScore,
    CreateRequest,
    GroupReply,
    GroupRequest,
    OrsOptions,
    ShownMessage,
    TextBlock,
    ToolListing,
    ToolOutput,
    describe_tools,
    read_call,
    read_candidate,
    show_messages,
    show_observation,
    write_event,
    write_result,
)
from app.http.compat.task_listing import (
    SPLITS,
    SplitEntry,
    SplitReference,
    TaskCount,
    TaskLister,
    TaskListing,
    TaskRange,
    TaskReference,
    TaskReply,
)
from app.http.web.api_keys import get_bounds
from app.http.web.bodies import JsonRoute
from app.service.gateway import Gateway
from app.service.key_bounds import check_hand_out
from app.service.request_models import GroupProblem, GroupToScore, NextBatch, ScoreRequest
from app.service.sample_intake import SampleReply

PREFIX: Final = "/compat/ors"
PING_SECONDS: Final = 10
"""Clients take a stream that is silent for 30 seconds for lost."""

ENDLESS: Final = 1_000_000
"""How many tasks a split without end is said to have, since clients ask for a number."""


def read_options(options: Annotated[OrsOptions, Query()]) -> OrsOptions:
    """All routes take them: those of a port stand in each of its requests."""
    return options


Options = Annotated[OrsOptions, Depends(read_options)]
SessionId = Annotated[str, Header(alias="X-Session-ID", min_length=1, max_length=200)]


class Healthy(Frozen):
    status: str = "ok"


class Version(Frozen):
    version: str = "0.1.167"
    """Of the package whose server this is like."""
    build_sha: str | None = None


class Sid(Frozen):
    sid: str


@dataclass(frozen=True)
class _Result:
    """What ends a stream, and what to do once it was sent or was not."""

    body: Frozen
    settle: Callable[[bool], Awaitable[None]] | None = None


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

    def __init__(self, gateway: Gateway, sessions: KeptSessions, desk: RewardService) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._desk = desk
        self._lister = TaskLister(gateway.catalogue)
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
        add("POST", "/create_session", self.name_session, "Name a session of ORS")
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

    def _add(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self.router.add_api_route(path, answer, methods=[method], summary=summary)

    def _add_named(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self._add(method, path, answer, summary)
        self.router.add_api_route(f"/{{name}}{path}", answer, methods=[method])

    async def tell_health(self, env: str) -> Healthy:
        self._desk.require_environment(env)
        return Healthy()

    async def list_environments(self, env: str) -> list[str]:
        self._desk.require_environment(env)
        return [env]

    async def list_splits(self, env: str) -> list[SplitEntry]:
        self._desk.require_environment(env)
        return SPLITS

    async def tell_version(self, env: str) -> Version:
        self._desk.require_environment(env)
        return Version()

    async def count_tasks(self, env: str, asked: SplitReference, options: Options) -> TaskCount:
        """A number beyond every use for a split without end: each index is a task."""
        counted = self._lister.count_tasks(env, asked.split, options.read_params())
        return TaskCount(num_tasks=ENDLESS if counted is None else counted)

    async def list_tasks(self, env: str, asked: TaskRange, options: Options) -> TaskListing:
        return self._lister.list_tasks(env, asked, options.read_params())

    async def get_task(self, env: str, asked: TaskReference, options: Options) -> TaskReply:
        return self._lister.get_task(env, asked, options.read_params())

    async def list_tools(self, env: str) -> ToolListing:
        """Those of a task are told by its session."""
        self._desk.require_environment(env)
        return describe_tools(())

    async def name_session(self, env: str) -> Response:
        """The name is chosen here; the session begins with `/create`."""
        self._desk.require_environment(env)
        events = write_event("task_id", str(uuid.uuid4())) + write_event("end", "")
        return Response(events, media_type="text/event-stream")

    async def create(
        self, env: str, request: Request, asked: CreateRequest, options: Options, session: SessionId
    ) -> Sid:
        """Takes the task at a place of a split. The same again is the same session."""
        self._desk.require_environment(env)
        place, params, bounds = asked.find_place(), options.read_params(), await get_bounds(request)
        check_hand_out(bounds, env, options.run, params)
        wanted = NextBatch(batch_size=1, run=options.run, split=place.split, params=params, cursor=place.index)
        batch = await self._gateway.dispatcher.next_batch(env, wanted)
        if not batch.tasks:
            raise InvalidRequest("the split has no such task", field="index")
        await self._sessions.begin(_name(session), batch.tasks[0].task_id)
        return Sid(sid=session)

    async def ping(self, env: str, request: Request, options: Options, session: SessionId) -> Healthy:
        await self._find_task(env, request, options, session)
        return Healthy()

    async def delete(self, env: str, request: Request, options: Options, session: SessionId) -> Sid:
        """Also a session that is unknown or has ended."""
        self._desk.require_environment(env)
        (await get_bounds(request)).require_run(options.run)
        await self._sessions.close(_name(session))
        return Sid(sid=session)

    async def forget(self, env: str, session: SessionId) -> Sid:
        self._desk.require_environment(env)
        return Sid(sid=session)

    async def list_task_tools(self, env: str, request: Request, options: Options, session: SessionId) -> ToolListing:
        return describe_tools((await self._find_task(env, request, options, session)).prompt.tools)

    async def show_prompt(self, env: str, request: Request, options: Options, session: SessionId) -> list[TextBlock]:
        prompt = (await self._find_task(env, request, options, session)).prompt
        return [block for message in show_messages(prompt.messages) for block in message.blocks]

    async def show_conversation(
        self, env: str, request: Request, options: Options, session: SessionId
    ) -> list[ShownMessage]:
        return show_messages((await self._find_task(env, request, options, session)).prompt.messages)

    async def call(
        self, env: str, request: Request, asked: CallRequest, options: Options, session: SessionId
    ) -> Response:
        """Plays a turn. The last one is answered with the reward of the episode; null where there is none. A call whose
        stream was lost is sent again with its `task_id`, and answered as it was."""
        record = await self._find_task(env, request, options, session)
        named = _give_id(asked)
        return _stream(named.task_id or "", lambda: self._play(record, named, options, session))

    async def score_group(
        self, env: str, request: Request, asked: GroupRequest, options: Options, session: SessionId
    ) -> Response:
        """Scores replies to the session's task as one group, in their order; null where there is no score."""
        record = await self._find_task(env, request, options, session)
        return _stream(str(uuid.uuid4()), lambda: self._score_candidates(record, asked, options))

    async def _find_task(self, env: str, request: Request, options: OrsOptions, session: str) -> TaskRecord:
        """Of a session. NotFound; Forbidden beyond the caller's bounds."""
        self._desk.require_environment(env)
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        task_id = (await self._sessions.find(_name(session))).task_id
        await self._desk.bounds.require_tasks(bounds, [task_id], "X-Session-ID")
        record = (await self._gateway.task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != env:
            raise NotFound(f"there is no such session of {env}", field="X-Session-ID")
        return record

    async def _play(self, record: TaskRecord, asked: CallRequest, options: OrsOptions, session: str) -> _Result:
        try:
            said = read_call(asked)
            played = await self._take(record, asked, said, _name(session))
        except InvalidRequest as error:
            return _Result(CallError(error=error.detail, reason="input_validation"))
        except Conflict as error:
            return _Result(CallError(error=error.detail, reason="episode_finished"))
        if not played.done:
            noted = not played.observed and asked.name not in {REPLY, ANSWER}
            blocks = (TextBlock(text=NOTED),) if noted else show_observation(played.observed)
            return _Result(CallReply(output=ToolOutput(blocks=blocks)))
        completion = Completion(messages=_merge_calls(played.after.messages), finish_reason="stop")
        return await self._score(record, completion, options, f"{_name(session)}.{asked.task_id}", played)

    async def _take(self, record: TaskRecord, asked: CallRequest, said: Message, session: str) -> PlayedStep:
        env, fingerprint = record.key.environment, asked.task_id or ""
        single = await self._desk.stepper.is_single_reply(env, record.task_id)
        if asked.name == ANSWER or (single and asked.name == REPLY):
            return await self._sessions.end(session, said, fingerprint)
        if single:
            return await self._sessions.note(session, said, fingerprint)
        return await self._sessions.step(env, session, said, "stop", fingerprint)

    async def _score(
        self, record: TaskRecord, completion: Completion, options: OrsOptions, fingerprint: str, played: PlayedStep
    ) -> _Result:
        label = SampleLabel(task_id=record.task_id, purpose="eval" if record.key.split == "test" else "train")
        sample = options.build_sample(record.key.environment, label, completion)
        named = replace(sample, name=SampleName(fingerprint=sha256(fingerprint.encode()).hexdigest()))
        held = HeldSamples(
            self._desk.parts,
            [LabelledSample(named, "X-Session-ID")],
            min(options.gather_seconds, options.wait_seconds),
            options.wait_seconds,
        )
        (reply,) = await held.await_replies(_never_receive)
        if reply.score.reward is None:
            self._desk.unscored("ors", record.key.environment, reply.score.reason or "pending", "null")
        output = ToolOutput(
            blocks=show_observation(played.observed),
            reward=reply.score.reward,
            finished=True,
            metadata=_describe(reply),
        )
        return _Result(CallReply(output=output), held.settle)

    async def _score_candidates(self, record: TaskRecord, asked: GroupRequest, options: OrsOptions) -> _Result:
        env = record.key.environment
        single = await self._desk.stepper.is_single_reply(env, record.task_id)
        group = GroupToScore(
            task_id=record.task_id, completions=tuple(read_candidate(one, single) for one in asked.candidates)
        )
        wanted = ScoreRequest(
            groups=(group,),
            run=options.run,
            policy=None if options.model is None else Policy(model=options.model),
            purpose="eval" if record.key.split == "test" else "train",
            wait_seconds=min(options.wait_seconds, 600.0),
        )
        (scored,) = (await self._gateway.scoring.score(wanted, env)).groups
        if isinstance(scored, GroupProblem):
            raise InvalidRequest(scored.detail, field=scored.field)
        return _Result(
            GroupReply(
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


def _give_id(asked: CallRequest) -> CallRequest:
    return asked if asked.task_id is not None else asked.model_copy(update={"task_id": uuid.uuid4().hex})


def _name(session: str) -> str:
    return f"ors.{sha256(session.encode()).hexdigest()[:32]}"


def _merge_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Calls that were noted and what was said at last are one message of the model."""
    if len(messages) < 2 or any(one.role != "assistant" for one in messages):
        return messages
    calls = tuple(call for one in messages for call in one.tool_calls)
    return (messages[-1].model_copy(update={"tool_calls": calls}),)


def _describe(reply: SampleReply) -> dict[str, Any]:
    score = reply.score
    return {
        "group_id": reply.group_id,
        "reason": score.reason,
        "absolute": score.absolute,
        "criteria": {one.name: one.value for one in score.criteria},
        "flags": list(dict.fromkeys((*score.flags, *reply.flags))),
        "rationale": score.rationale,
    }


async def _never_receive() -> AsgiMessage:
    """The stream itself notices that its client left."""
    left: asyncio.Future[AsgiMessage] = asyncio.get_running_loop().create_future()
    return await left


def _stream(task_id: str, work: Callable[[], Awaitable[_Result]]) -> Response:
    async def write() -> AsyncIterator[bytes]:
        yield write_event("task_id", task_id)
        job = asyncio.ensure_future(work())
        sent = False
        try:
            while not (await asyncio.wait((job,), timeout=PING_SECONDS))[0]:
                yield b": ping\n\n"
            for event in _write_end(job):
                yield event
            sent = True
        finally:
            await _settle(job, sent)

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(write(), media_type="text/event-stream", headers=headers)


def _write_end(job: "asyncio.Future[_Result]") -> list[bytes]:
    try:
        return write_result(job.result().body)
    except GatewayError as error:
        return [write_event("error", " ".join(error.detail.split()))]


async def _settle(job: "asyncio.Future[_Result]", sent: bool) -> None:
    job.cancel()
    if job.done() and not job.cancelled() and job.exception() is None and (settle := job.result().settle) is not None:
        await settle(sent)
