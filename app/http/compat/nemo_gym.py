"""NeMo Gym's resources server, as `nemo_gym/base_resources_server.py` of 0.7.0 has it.

POST /compat/nemo_gym/{env}/verify
{"task_id": "task_…", "responses_create_params": {…}, "response": {"output": […], …}, "_ng_task_index": 0, …}
the same, and {"reward": 1.0, "mask_sample": false, …}

An agent seeds a session, has its calls carried out, and sends the whole response to be verified; or it plays turns with
`/reset` and `/step`. Its clients put a path behind a base URL and can carry no query, so options may be in the path.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import fmean
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.types import Scope

from app.domain.errors import InvalidRequest, NotFound
from app.domain.runs import Purpose
from app.domain.scores import Reason
from app.domain.tasks import Completion, Message
from app.domain.values import FiniteNumber, Frozen, ModelWords, WholeNumber
from app.http.compat.kept_sessions import NOTED, OVER, KeptSessions
from app.http.compat.one_sample import (
    GATHER_DESCRIPTION,
    LONGEST_WAIT,
    Delivery,
    RefusingRoute,
    ReplyFormat,
    RewardService,
    SampleLabel,
    SampleOptions,
    SampleReward,
    document_refusals,
    list_flags,
    name_criterion,
)
from app.http.web.api_keys import CallerBounds, declare_access, get_bounds
from app.service.pending_groups import SampleToScore
from app.service.requests import TaskId
from app.toolkit.responses import OutputItem, join_items, read_messages, read_observation

# Addresses.

PREFIX: Final = "/compat/nemo_gym"
_OPTIONS: Final = re.compile(rf"^({PREFIX}/[^/]+)/([^/]*=[^/]*)(/.*)$")
_ROLLOUT: Final = re.compile(rf"^({PREFIX}/[^/]+)/ng-rollout/[^/]+(/.*)$")


def take_options_from_path(scope: Scope) -> Scope:
    """Takes the segment with options out of `/compat/nemo_gym/{env}/{options}/verify` and makes a query of it; drops
    `/ng-rollout/{id}`, which agents put before a path where they trace."""
    path, query = scope["path"], scope.get("query_string", b"")
    if match := _OPTIONS.match(path):
        path = match[1] + match[3]
        query = b"&".join(filter(None, (quote(match[2], safe="=&+").encode(), query)))
    if match := _ROLLOUT.match(path):
        path = match[1] + match[2]
    return {**scope, "path": path, "raw_path": quote(path).encode(), "query_string": query}


# Chat messages in an OpenAI Responses object, as NeMo Gym's agents put it together.

_CUT_OFF: Final = "max_output_tokens"
"""The reason of a response that was cut off, where it names none."""
_BROKEN_OFF: Final = "failed"


class IncompleteDetails(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: str | None = None


class ResponsesObject(BaseModel):
    """What is read of a response. All of it is echoed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    output: tuple[OutputItem, ...]
    status: str | None = None
    error: JsonValue = None
    incomplete_details: IncompleteDetails | None = None
    metadata: dict[str, JsonValue] | None = None

    @property
    def finish_reason(self) -> str:
        """In the words of inference servers. NeMo Gym calls a reply incomplete that ended by itself without an answer:
        that was not cut off."""
        status = (self.status or "completed").lower()
        if self.error or status not in ("completed", "incomplete"):
            return _BROKEN_OFF
        if self.incomplete_details is not None:
            return self.incomplete_details.reason or _CUT_OFF
        ended_by_itself = "ng_termination_reason" in (self.metadata or {})
        return _CUT_OFF if status == "incomplete" and not ended_by_itself else "stop"


def _build_reply_completion(response: ResponsesObject) -> Completion:
    """The completion of a task that one reply answers: whatever follows the result of a call is beyond it."""
    first = _read_reply(response)
    if first.tool_calls or first.reasoning_content is not None:
        return Completion(messages=(first,), finish_reason=response.finish_reason)
    return Completion(text=first.content or "", finish_reason=response.finish_reason)


def _build_tool_transcript(response: ResponsesObject) -> Completion:
    """The completion of a task of several calls, one at a time, as they were carried out. A call whose arguments are no
    JSON was answered by the agent and never reached us."""
    outputs = {item.call_id: item for item in response.output if item.type == "function_call_output"}
    messages: list[Message] = []
    turn: list[OutputItem] = []
    for item in response.output:
        if item.type == "function_call_output" or (item.type == "function_call" and not _is_callable(item)):
            continue
        turn.append(item)
        if item.type == "function_call":
            messages += join_items(turn)
            turn = []
            answer = None if item.call_id not in outputs else read_observation(outputs[item.call_id])
            messages += [] if answer is None else [answer]
    messages += join_items(turn)
    return Completion(
        messages=tuple(messages) or (Message(role="assistant", content=""),), finish_reason=response.finish_reason
    )


def _read_reply(response: ResponsesObject) -> Message:
    """The model's one message in a response that holds no more."""
    messages = read_messages(response.output)
    return next((one for one in messages if one.role == "assistant"), Message(role="assistant", content=""))


def _is_callable(item: OutputItem) -> bool:
    try:
        json.loads(item.arguments if isinstance(item.arguments, str) else "")
    except (ValueError, RecursionError):
        return False
    return isinstance(item.call_id, str)


# What agents send, and what they are answered.

ReverifyMode = Literal["stateless", "unsupported"]
Index = Annotated[WholeNumber, Field(ge=0, lt=2**53)]


class NemoGymOptions(SampleOptions):
    contract: ClassVar[str] = "nemo_gym"

    gather_seconds: Annotated[
        float, Field(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description=GATHER_DESCRIPTION)
    ] = 300.0
    wait_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=LONGEST_WAIT,
            allow_inf_nan=False,
            description="Maximum seconds until the response. NeMo Gym waits without end, verifiers 60 seconds.",
        ),
    ] = 900.0


class NemoGymRow(BaseModel):
    """A row of the data set with what collection has added. Other keys are echoed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: TaskId
    purpose: Purpose = "train"
    """`eval`: scored by itself, in no training figure."""
    task_index: Annotated[Index | None, Field(alias="_ng_task_index")] = None
    rollout_index: Annotated[Index | None, Field(alias="_ng_rollout_index")] = None

    def read_label(self, options: NemoGymOptions) -> SampleLabel:
        """Rollouts beyond the size of a group are the next groups of their task."""
        group = "" if self.task_index is None else str(self.task_index)
        if group and self.rollout_index is not None and self.rollout_index >= options.group_size:
            group = f"{group}/{self.rollout_index // options.group_size}"
        return SampleLabel(task_id=self.task_id, group=group, purpose=self.purpose)

    def name_sample(self, sample: SampleToScore, body: bytes) -> SampleToScore:
        """Agents send a request again, byte for byte, when its reply was lost. Another rollout has another response,
        with an id of its own."""
        has_slot = sample.size > 1 and self.task_index is not None and self.rollout_index is not None
        place = (self.rollout_index or 0) % sample.size if has_slot else None
        return replace(sample, place=place, fingerprint=sha256(body).hexdigest())


class VerifyRequest(NemoGymRow):
    """A row and the response to it."""

    responses_create_params: dict[str, JsonValue]
    response: ResponsesObject
    instance_config: JsonValue = None

    @property
    def offers_tools(self) -> bool:
        return bool(self.responses_create_params.get("tools"))


class SeedRequest(BaseModel):
    """A row, or since 0.7 a session's id with a row in `task_data`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    resources_session_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    task_id: JsonValue = None
    task_data: dict[str, JsonValue] = {}

    def find_task(self) -> str:
        """InvalidRequest naming the field."""
        field, task_id = ("task_id", self.task_id)
        if self.resources_session_id is not None:
            field, task_id = ("task_data.task_id", self.task_data.get("task_id"))
        if not isinstance(task_id, str):
            raise InvalidRequest(
                "a row names its task: write rows with `atropos-envs tasks --for nemo_gym`", field=field
            )
        return task_id


class SeedReply(Frozen):
    """For a session that the caller has named."""

    resources_session_id: str
    resources_tools: None = None
    sandbox_access: None = None


class CloseRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    resources_session_id: Annotated[str, Field(max_length=500)]


class CloseReply(Frozen):
    resources_session_id: str


class VerifiedRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    task_index: Annotated[JsonValue, Field(alias="_ng_task_index")] = None
    mask_sample: bool = False

    @property
    def numbers(self) -> dict[str, float]:
        """What is counted: numbers, and truths as 0 and 1."""
        return {
            name: float(value)
            for name, value in self.__pydantic_extra__.items()
            if isinstance(value, (bool, int, float)) and not name.startswith("_")
        }


class MetricsRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    verify_responses: Annotated[tuple[VerifiedRow, ...], ModelWords(), Field(max_length=1_000_000)]
    """Rows as they were echoed, with all that the model wrote."""


Metrics = dict[str, FiniteNumber | str | int | None]


class MetricsReply(Frozen):
    """Means. Masked rows are counted and left out of them."""

    group_level_metrics: tuple[Metrics, ...]
    agent_metrics: Metrics
    key_metrics: Metrics
    perf_summary: None = None
    repeat_level_metrics: tuple[Metrics, ...] = ()


def _aggregate_metrics(asked: MetricsRequest) -> MetricsReply:
    by_task: dict[str, list[VerifiedRow]] = {}
    for row in asked.verify_responses:
        by_task.setdefault(str(row.task_index), []).append(row)
    whole = _average(asked.verify_responses)
    return MetricsReply(
        group_level_metrics=tuple({"_ng_task_index": name, **_average(rows)} for name, rows in by_task.items()),
        agent_metrics=whole,
        key_metrics={name: value for name, value in whole.items() if name == "mean/reward"},
    )


def _average(rows: "list[VerifiedRow] | tuple[VerifiedRow, ...]") -> Metrics:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in {} if row.mask_sample else row.numbers.items():
            values.setdefault(name, []).append(value)
    counts: Mapping[str, int] = {"rollouts": len(rows), "masked": sum(row.mask_sample for row in rows)}
    return {**{f"mean/{name}": fmean(numbers) for name, numbers in values.items()}, **counts}


# Replies with a reward.

_KINDS: Final[dict[Reason | None, str]] = {
    "judge_failed": "judge_failed",
    "verifier_failed": "verifier_error",
    "verifier_killed": "verifier_error",
    None: "cohort_incomplete",
}
"""In NeMo Gym's words; it takes others with a name of ours before them."""


class _VerifyReply:
    """The request as it came, byte for byte, and what was measured. Trainers take their tokens from the response that
    comes back, so it is not written anew. Of a key that the row has already, ours comes later, and counts."""

    def __init__(self, asked: VerifyRequest, body: bytes) -> None:
        self._asked = asked
        self._body = body

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes:
        (reward,) = rewards
        facts = self._describe_failure(reward) if reward.is_unscored else _describe_score(reward)
        added = {"reward": reward.number, "mask_sample": reward.is_unscored, **facts, "group_id": reward.reply.group_id}
        text = json.dumps(added, ensure_ascii=False, allow_nan=False)
        # The body is a JSON object: without its last brace, more members can follow.
        return self._body.rstrip()[:-1].rstrip() + b", " + text[1:].encode()

    def format_refusal(self, count: int) -> dict[str, JsonValue]:
        return {}

    def _describe_failure(self, reward: SampleReward) -> dict[str, JsonValue]:
        """Also in the places where earlier trainers look. The class has the row collected again."""
        reason = reward.score.reason
        kind = _KINDS.get(reason, f"atropos:{reason}")
        own = self._asked.instance_config if isinstance(self._asked.instance_config, dict) else {}
        why = f"no score ({reason}): {reward.score.rationale}" if reason else "another member of the group has no score"
        return {
            "failure_kind": kind,
            "failure_reason": why[:2000],
            "instance_config": {**own, "mask_sample": True},
            "_ng_failure_class": "judge_failed",
            "_ng_failure_judge_error": why[:2000],
        }


@dataclass(frozen=True)
class _StepReply:
    """The reply to the last step of an episode."""

    truncated: bool

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes:
        (reward,) = rewards
        answer = {
            "observation": None,
            "reward": reward.number if reward.is_unscored else reward.score.last_reward,
            "terminated": not self.truncated,
            "truncated": self.truncated,
            "info": {**_describe_score(reward), "group_id": reward.reply.group_id},
        }
        return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()

    def format_refusal(self, count: int) -> dict[str, JsonValue]:
        return {}


def _describe_turn(observed: Sequence[Message], reward: float | None) -> dict[str, JsonValue]:
    """The reply to a step that does not end the episode. These agents add up rewards, and take numbers alone."""
    texts = [one.content for one in observed if one.role != "tool" and one.content]
    outputs: list[JsonValue] = [
        {"call_id": one.tool_call_id or "", "output": one.content or ""} for one in observed if one.role == "tool"
    ]
    return {
        "observation": "\n\n".join(texts) or None,
        "reward": reward or 0.0,
        "terminated": False,
        "truncated": False,
        "info": {"tool_outputs": outputs},
    }


def _describe_score(reward: SampleReward) -> dict[str, JsonValue]:
    score = reward.score
    criteria: dict[str, JsonValue] = {
        name_criterion(one.name): one.value for one in score.criteria if one.value is not None
    }
    return {
        "failure_kind": None,
        "failure_reason": None,
        "absolute": reward.gated_absolute,
        **criteria,
        "flags": list(list_flags(reward.reply)),
        "rationale": score.rationale,
    }


# The routes.

_COOKIE: Final = "atropos_nemo_gym"
"""Of a session: the task, and a name of the session."""

Options = Annotated[NemoGymOptions, Query()]


class NemoGymServer:
    """The routes of all environments."""

    def __init__(self, reward_service: RewardService, sessions: KeptSessions) -> None:
        self._reward_service = reward_service
        # Its agents cannot pass a mask on, so a step without a score is refused whatever the settings say.
        self._strict_reward_service = replace(reward_service, unscored_reward=None, masks_groups=False)
        self._sessions = sessions
        self.router = APIRouter(prefix=f"{PREFIX}/{{env}}", tags=["nemo_gym"], route_class=RefusingRoute)
        self._add("POST", "/verify", self.verify, "Reward for NeMo Gym")
        self._add("POST", "/seed_session", self.seed_session, "Begin a rollout of NeMo Gym")
        self._add("POST", "/close_session", self.close_session, "End a rollout of NeMo Gym")
        self._add("POST", "/aggregate_metrics", self.aggregate, "Means over verified rows")
        self._add("GET", "/reverify_mode", self.tell_reverify_mode, "Whether a row can be verified again by itself")
        self._add("POST", "/reset", self.reset, "Begin an episode of NeMo Gym's gymnasium_agent")
        self._add("POST", "/step", self.step, "Play a turn of NeMo Gym's gymnasium_agent")
        self._add("POST", "/{tool}", self.call_tool, "Carry out a call of NeMo Gym's agents")
        declare_access(self.router.routes, "train", "handler")

    def _add(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self.router.add_api_route(path, answer, methods=[method], summary=summary, responses=document_refusals())

    async def verify(self, env: str, request: Request, asked: VerifyRequest, options: Options) -> Response:
        """The row and its response as they came, with a reward. Where there is none, the whole group is masked."""
        self._reward_service.require_environment(env)
        if await self._is_single_reply(env, asked.task_id):
            completion = _build_reply_completion(asked.response)
        elif asked.offers_tools:
            completion = _build_tool_transcript(asked.response)
        else:
            detail = f"this task of {env} has turns of text: use gymnasium_agent, which calls /reset and /step"
            raise InvalidRequest(detail, field="task_id")
        reply = _VerifyReply(asked, await request.body())
        return await self._score(
            self._reward_service, env, request, asked, options, completion, reply, masks_groups=True
        )

    async def seed_session(self, env: str, request: Request, asked: SeedRequest, options: Options) -> Response:
        """Begins a rollout. The cookie of the reply names its task and itself."""
        name = asked.resources_session_id
        reply = None if name is None else SeedReply(resources_session_id=name)
        content: dict[str, JsonValue] = {} if reply is None else reply.model_dump(mode="json")
        return await self._begin(env, request, asked.find_task(), options, name, content)

    async def close_session(self, env: str, asked: CloseRequest, options: Options, bounds: CallerBounds) -> CloseReply:
        """Ends a rollout; also one that is unknown or has ended."""
        self._reward_service.require_environment(env)
        bounds.require_run(options.run)
        if self._reward_service.catalogue.classes[env].multi_turn:
            await self._sessions.close(_name_session(env, asked.resources_session_id))
        return CloseReply(resources_session_id=asked.resources_session_id)

    async def aggregate(self, env: str, asked: MetricsRequest, options: Options, bounds: CallerBounds) -> MetricsReply:
        """Means over rows that were verified."""
        self._reward_service.require_environment(env)
        bounds.require_run(options.run)
        return _aggregate_metrics(asked)

    async def tell_reverify_mode(self, env: str, options: Options, bounds: CallerBounds) -> ReverifyMode:
        """Whether a row alone says what it earns. What judges compare needs its group; what was stepped, its steps."""
        self._reward_service.require_environment(env)
        bounds.require_run(options.run)
        kind = self._reward_service.catalogue.classes[env]
        alone = (
            kind.rubric is None
            and not kind.multi_turn
            and not await self._reward_service.list_criteria(env, options.run)
        )
        return "stateless" if alone else "unsupported"

    async def reset(self, env: str, request: Request, asked: NemoGymRow, options: Options) -> Response:
        """Begins an episode. What the row shows already is not shown again."""
        return await self._begin(
            env, request, asked.task_id, options, None, {"observation": None, "info": {}}, keep=True
        )

    async def step(self, env: str, request: Request, asked: VerifyRequest, options: Options) -> Response:
        """Plays the model's last reply. The last one is answered with the reward of the episode in its group; without a
        score it is refused, since these agents cannot pass a mask on."""
        self._reward_service.require_environment(env)
        session = await self._find_session(env, request, options, asked.task_id)
        body, finish_reason = await request.body(), asked.response.finish_reason
        played = await self._sessions.step(
            env, session, _read_reply(asked.response), finish_reason, sha256(body).hexdigest(), options.run
        )
        if not played.done:
            return JSONResponse(_describe_turn(played.observed, played.reward))
        completion = Completion(messages=played.after.messages, finish_reason=finish_reason)
        reply = _StepReply(truncated=completion.truncated)
        return await self._score(
            self._strict_reward_service, env, request, asked, options, completion, reply, masks_groups=False
        )

    async def call_tool(self, env: str, tool: str, request: Request, options: Options) -> Response:
        """Carries out a call of the session's task. The body holds its arguments, the reply is its result."""
        self._reward_service.require_environment(env)
        session = await self._find_session(env, request, options)
        arguments = await request.json()
        if await self._is_single_reply(env, _read_cookie(request)[0]):
            return PlainTextResponse(NOTED)
        played = await self._sessions.call(env, session, tool, arguments)
        result = "\n".join(one.content or "" for one in played.observed)

        async def settle(taken: bool) -> None:
            if not taken:
                await self._sessions.take_back(session, played)

        return Delivery((result or OVER).encode(), {}, settle)

    async def _begin(
        self,
        env: str,
        request: Request,
        task_id: str,
        options: NemoGymOptions,
        name: str | None,
        content: dict[str, JsonValue],
        *,
        keep: bool = False,
    ) -> Response:
        self._reward_service.require_environment(env)
        await self._require_bounds(request, task_id, options)
        session = name or secrets.token_hex(16)
        if keep or not await self._is_single_reply(env, task_id):
            await self._sessions.begin(_name_session(env, session), task_id)
        response = JSONResponse(content)
        response.set_cookie(_COOKIE, f"{task_id}.{_digest(session)}", path="/", httponly=True)
        return response

    async def _find_session(
        self, env: str, request: Request, options: NemoGymOptions, task_id: str | None = None
    ) -> str:
        """The name of the session that the cookie names."""
        own_task_id, session = _read_cookie(request)
        await self._require_bounds(request, own_task_id, options)
        if task_id is not None and task_id != own_task_id:
            raise InvalidRequest("the session plays another task", field="task_id")
        return f"{env}.{session}"

    async def _require_bounds(self, request: Request, task_id: str, options: NemoGymOptions) -> None:
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        await self._reward_service.bounds.require_tasks(bounds, [task_id], "task_id")

    async def _score(
        self,
        reward_service: RewardService,
        env: str,
        request: Request,
        asked: VerifyRequest,
        options: NemoGymOptions,
        completion: Completion,
        reply: ReplyFormat,
        *,
        masks_groups: bool,
    ) -> Response:
        sample = options.build_sample(env, asked.read_label(options), completion)
        held = [asked.name_sample(sample, await request.body())]
        await reward_service.check_bounds(request, held, options)
        return await reward_service.hold(request, held, options, reply, masks_groups=masks_groups)

    async def _is_single_reply(self, env: str, task_id: str) -> bool:
        try:
            return await self._reward_service.stepper.is_single_reply(env, task_id)
        except NotFound as error:
            raise NotFound(error.detail, field="task_id") from error


def _name_session(env: str, session: str) -> str:
    return f"{env}.{_digest(session)}"


def _digest(session: str) -> str:
    return sha256(session.encode()).hexdigest()[:32]


def _read_cookie(request: Request) -> tuple[str, str]:
    """The task and the session. NotFound."""
    task_id, _, session = request.cookies.get(_COOKIE, "").partition(".")
    if not session:
        raise NotFound("there is no session: seed or reset first, and send its cookie")
    return task_id, session
