"""Reward endpoints of trainers that send one sample, or a batch of them, and take a number for each.

These trainers know nothing of groups: their samples come one by one, in any order, from any process. A sample's label
names its task, and its group where it has one. The request waits until the group is there and scored. Equal texts may
be siblings or one sample that is sent again; what tells them apart is whether a sender has left without an answer. So a
sample counts as answered only once the client has taken its answer in full.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Protocol, TypeVar, cast

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from app.domain.errors import (
    GatewayError,
    InvalidRequest,
    InvalidValue,
    NotFound,
    QuotaExceeded,
    RequestRefused,
    Unavailable,
)
from app.domain.faults import explain_faults, format_field_path, make_printable
from app.domain.runs import Policy, Purpose
from app.domain.scores import LASTING_REASONS, Score
from app.domain.tasks import Completion
from app.domain.values import Frozen, Name, WholeNumber
from app.http.web.api_keys import get_bounds
from app.http.web.bodies import JsonRequest
from app.http.web.openapi import document_problems
from app.http.web.problems import MAX_DETAIL, RefusedBody, explain_request
from app.http.web.routes import DirectInputs, DirectRoute
from app.service.access import BoundsCheck
from app.service.catalogue import Catalogue
from app.service.pending_groups import SampleToScore
from app.service.requests import GroupReply, TaskId
from app.service.retrieval import EpisodeStepper
from app.toolkit.templates import read_packaged_data

log = logging.getLogger(__name__)

# Labels: the task that a sample answers, and the group in which it is compared.

MAX_CHARACTERS: Final = 20_000
"""Of a label, before it is parsed."""
MAX_GROUP: Final = 256

_EXPECTED = 'expected a task id, or {"task_id": …} with optional "group" and "size"'


def _convert_group_name(value: object) -> object:
    """Accepts numbers and null: data sets number their groups, or have none in most rows."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _default_purpose(value: object) -> object:
    """Accepts null: merged data sets have no purpose in some rows."""
    return "train" if value is None else value


class SampleLabel(BaseModel):
    """Other members are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: TaskId
    group: Annotated[
        str, BeforeValidator(_convert_group_name), Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    ] = ""
    """Samples for one task with different groups are never compared."""
    size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)] | None = None
    """The group's size; by default the URL's `group_size`."""
    purpose: Annotated[Purpose, BeforeValidator(_default_purpose)] = "train"


def read_label(label: JsonValue, field: str) -> SampleLabel:
    """Parses a label. Raises InvalidRequest naming `field` if it is invalid."""
    if isinstance(label, str):
        label = _parse_text(label.strip(), field)
    if not isinstance(label, dict):
        raise InvalidRequest(_EXPECTED, field=field)
    try:
        return SampleLabel.model_validate(label)
    except ValidationError as error:
        first = explain_faults(error, SampleLabel, base=(field,))[0]
        raise InvalidValue(f"{first.words}; {_EXPECTED}", field=first.dotted) from None


def _parse_text(text: str, field: str) -> JsonValue:
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(f"longer than {MAX_CHARACTERS} characters; {_EXPECTED}", field=field)
    if not text.startswith("{"):
        return {"task_id": text}
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"invalid JSON; {_EXPECTED}", field=field) from None
    return value


# Query parameters: these trainers can be configured only by a URL.

_EndToken = Annotated[str, Field(max_length=100, pattern=r"\S")]


class SampleOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    contract: ClassVar[str]

    run: Annotated[Name | None, Field(description="Run name to store results under.")] = None
    group_size: Annotated[
        int, Field(ge=1, le=MAX_GROUP, description="Answers per prompt. A group is scored when all have arrived.")
    ] = 1
    model: Annotated[str | None, Field(min_length=1, max_length=200, description="Name of the policy.")] = None
    gather_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    wait_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def build_sample(
        self, environment: str, label: SampleLabel, completion: Completion, field: str = "task_id"
    ) -> SampleToScore:
        """Builds the sample. `field` is what the request calls its label. Samples of an evaluation are groups of one,
        which are not compared."""
        return SampleToScore(
            environment=environment,
            task_id=label.task_id,
            completion=completion,
            label=field,
            run=self.run,
            key=label.group,
            size=1 if label.purpose == "eval" else label.size or self.group_size,
            policy=None if self.model is None else Policy(model=self.model),
            purpose=label.purpose,
            needs_reward=True,
        )


class RewardOptions(SampleOptions):
    """For trainers that send bare texts."""

    eos: Annotated[
        tuple[_EndToken, ...],
        Field(max_length=8, description="End-of-sequence tokens. An answer without one counts as truncated."),
    ] = ()


LONGEST_WAIT: Final = 86_400
"""Seconds, for trainers that wait without end."""
GATHER_DESCRIPTION = "Seconds to wait for the rest of a group. After that, the answers that have arrived are scored."
WAIT_DESCRIPTION = "Maximum seconds until the response. The trainer's own timeout is {}."


# The policy's answer in a trainer's text: without the prompt before it and the special tokens after it.


class _Tokens(Frozen):
    ends: tuple[str, ...]
    pads: tuple[str, ...]
    thoughts: tuple[str, ...]


_TOKENS: Final = read_packaged_data(Path(__file__).with_name("one_sample_tokens.yaml"), TypeAdapter(_Tokens))
_WORD: Final = re.compile(r"\S+")
_TAIL: Final = 10_000
"""Number of characters at the end of a text that are searched for special tokens."""


def extract_response(query: str, prompt: str, field: str) -> str:
    """The text after `prompt` in `query`. Whitespace is ignored in the comparison, because tokenizers lose some of it
    when they decode a prompt. Raises InvalidRequest naming `field` if the query does not start with the prompt."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    end = _find_prompt_end("".join(prompt.split()), query)
    if end is None:
        raise InvalidRequest(
            "the query does not start with its prompt. Trainers truncate long prompts at the beginning: raise the "
            "maximum length of prompt and answer, or leave out long prompts",
            field=field,
        )
    return query[end:].lstrip() if prompt[-1].isspace() else query[end:]


def _find_prompt_end(bare: str, query: str) -> int | None:
    """Where a prompt without its whitespace ends in `query`; None if the query does not start with it."""
    at = 0
    for word in _WORD.finditer(query):
        left = len(bare) - at
        if len(word[0]) >= left:
            return word.start() + left if word[0].startswith(bare[at:]) else None
        if not bare.startswith(word[0], at):
            return None
        at += len(word[0])
    return None


def build_completion(response: str, prompt: str, ends: Collection[str]) -> Completion:
    """`ends` are the configured end-of-sequence tokens; if there are any, an answer without one was truncated. A
    thought that the prompt has opened belongs to the answer."""
    stop, tokens = _find_end_tokens(response, {*ends, *_TOKENS.ends, *_TOKENS.pads})
    unended = "length" if ends else None
    reason = "stop" if tokens.intersection(ends or _TOKENS.ends) else unended
    return Completion(text=_find_open_thought(prompt) + response[:stop], finish_reason=reason)


def _find_end_tokens(text: str, tokens: Collection[str]) -> tuple[int, set[str]]:
    """The position of the special tokens at the end of `text`, and the tokens. Whitespace between and after them is
    skipped, whitespace before the first one is kept."""
    ending: set[str] = set()
    tail = text[-_TAIL:]
    stop = len(tail)
    while True:
        bare = tail[:stop].rstrip()
        token = next((one for one in tokens if bare.endswith(one)), None)
        if token is None:
            return len(text) - len(tail) + stop, ending
        ending.add(token)
        stop = len(bare) - len(token)


def _find_open_thought(prompt: str) -> str:
    bare = prompt[-100:].rstrip()
    return next((thought + prompt[-100:][len(bare) :] for thought in _TOKENS.thoughts if bare.endswith(thought)), "")


# Errors, as one flat JSON object that trainers can log: none of them has a format of its own.

_CODES: Final = {400: "bad_request", 408: "request_timeout", 413: "too_large"}


class RewardRefusal(Frozen):
    """Why there is no reward."""

    error: str = Field(examples=["task_… was never handed out here"])
    code: str = Field(examples=["not_found"])
    """A fixed code for programs."""
    field: str | None = Field(examples=["labels[0].task_id"])


class RefusingRoute(DirectRoute):
    """Parses JSON strictly and answers every error with a RewardRefusal."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            try:
                return cast(Response, await handle(request))
            except _REFUSED as error:
                return _refuse(error, self)

        return handle_or_refuse

    async def answer(
        self, request: JsonRequest, inputs: DirectInputs, query: Mapping[str, BaseModel]
    ) -> Response | BaseModel:
        try:
            return await super().answer(request, inputs, query)
        except _REFUSED as error:
            return _refuse(error, self)


_REFUSED: Final = (GatewayError, RequestValidationError, HTTPException)


def _refuse(error: GatewayError | RequestValidationError | HTTPException, route: object) -> JSONResponse:
    if isinstance(error, GatewayError):
        after = error.retry_after if isinstance(error, Unavailable | QuotaExceeded) else None
        return _build_refusal(
            error.status, RewardRefusal(error=error.sentence, code=error.code, field=error.field), after
        )
    if isinstance(error, RequestValidationError):
        return _refuse_invalid(error, route)
    field = error.errors[0].field if isinstance(error, RefusedBody) and error.errors else None
    code = _CODES.get(error.status_code, "invalid_request")
    refusal = RewardRefusal(error=str(error.detail), code=code, field=field and field.removeprefix("body."))
    return _build_refusal(error.status_code, refusal)


def document_refusals() -> dict[int | str, dict[str, object]]:
    """The `responses=` of a reward endpoint in OpenAPI. Errors of the middleware are problems as everywhere."""
    meanings = {
        400: "The body is not JSON.",
        404: "No such environment or task.",
        409: "The run is strict, and its scoring has changed since it began.",
        422: "The query or the body is invalid.",
        429: "The key has used up a quota; `Retry-After` says when it gets more.",
        503: "No score, or not yet; the same request can be retried.",
    }
    own: dict[int | str, dict[str, object]] = {
        status: {"model": RewardRefusal, "description": meaning} for status, meaning in meanings.items()
    }
    return own | document_problems(401, 408, 413, 415)


def _build_refusal(
    status: int, refusal: RewardRefusal, retry_after: int | None = None, beside: Mapping[str, JsonValue] | None = None
) -> JSONResponse:
    """`beside` has the keys that the trainer expects in every response."""
    content = {
        **(beside or {}),
        "error": make_printable(refusal.error, MAX_DETAIL),
        "code": refusal.code,
        "field": None if refusal.field is None else make_printable(refusal.field),
    }
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse(content, status_code=status, headers=headers)


def _refuse_invalid(error: RequestValidationError, route: object) -> JSONResponse:
    first = explain_request(error.errors(), route)[0]
    field = format_field_path([part for part in first.location if part != "body"]) or None
    if isinstance(error.body, bytes):  # FastAPI parses a body exactly when its type says JSON
        refusal = RewardRefusal(
            error="send JSON with Content-Type: application/json", code="unsupported_media_type", field=None
        )
        return _build_refusal(415, refusal)
    return _build_refusal(422, RewardRefusal(error=first.sentence, code="invalid_request", field=field))


# Samples are held until their answer was taken.


class _SampleHolder(Protocol):
    """Assigns samples to groups: `app.service.pending_groups.SampleService`."""

    def score_sample(
        self, sample: SampleToScore, *, gather_seconds: float, wait_seconds: float
    ) -> AbstractAsyncContextManager[GroupReply]: ...


class ClientLeft(Exception):
    pass


class HeldSamples:
    """Holds all samples of a request at once, because they may belong to one group. Each is released in the task that
    took it."""

    def __init__(
        self, parts: _SampleHolder, samples: Sequence[SampleToScore], gather_seconds: float, wait_seconds: float
    ) -> None:
        self._parts = parts
        self._seconds = (gather_seconds, wait_seconds)
        self._taken = asyncio.Event()
        self._replies: dict[int, GroupReply] = {}
        self._count = len(samples)
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when all replies are there, or the first error, or when the client has left."""
        self._holders = [asyncio.ensure_future(self._hold_sample(index, one)) for index, one in enumerate(samples)]
        if not samples:
            self._answered.set_result(None)

    async def await_replies(self, receive: Receive) -> tuple[GroupReply, ...]:
        """Waits for the replies, in the order of the samples. Raises ClientLeft if the client disconnects first, or the
        first error of a sample; then all samples are released."""
        gone = asyncio.ensure_future(_await_disconnect(receive))
        gone.add_done_callback(lambda _: self._fail(ClientLeft()))
        try:
            await self._answered
            return tuple(self._replies[index] for index in range(self._count))
        except BaseException:  # cancelled too: nobody else would release the samples
            await self.settle(False)
            raise
        finally:
            gone.cancel()

    async def settle(self, taken: bool) -> None:
        """Releases the samples. If the client did not receive its answer (`taken` is False), its retry takes the same
        slots."""
        self._answered.cancel()
        if taken:
            self._taken.set()
        else:
            for holder in self._holders:
                holder.cancel()
        for ended in await asyncio.gather(*self._holders, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("could not record that a sample was answered", exc_info=ended)

    async def _hold_sample(self, index: int, sample: SampleToScore) -> None:
        gather_seconds, wait_seconds = self._seconds
        try:
            async with self._parts.score_sample(
                sample, gather_seconds=gather_seconds, wait_seconds=wait_seconds
            ) as reply:
                self._replies[index] = reply
                if len(self._replies) == self._count and not self._answered.done():
                    self._answered.set_result(None)
                await self._taken.wait()
        except Exception as error:
            if index in self._replies:  # answered already: `settle` logs it
                raise
            if isinstance(error, RequestRefused) and (error.field or "").endswith("task_id"):
                error.field = sample.label
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)


# A response that reports whether it was sent in full, and work that ends when its client disconnects.

_CHUNK = 64 * 1024

ResultT = TypeVar("ResultT")


class Delivery(Response):
    """Calls `settle` with True if the server accepted the whole body and the client had not disconnected before, and
    with False in every other case, failures included."""

    media_type = "application/json"

    def __init__(self, content: bytes, headers: dict[str, str], settle: Callable[[bool], Awaitable[None]]) -> None:
        super().__init__(content, headers=headers)
        self._settle = settle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = False
        try:
            sent = await self._send_body(receive, send)
        finally:
            await self._settle(sent)

    async def _send_body(self, receive: Receive, send: Send) -> bool:
        """The server blocks in `send` while its buffer is full. Trainers disconnect as soon as they have everything, so
        the connection is checked before the last byte; of what fills no buffer, before all of them."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        last = len(body) - 1 if len(body) > _CHUNK else 0
        for start in range(0, last, _CHUNK):
            chunk = body[start : min(start + _CHUNK, last)]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if last:
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = await _has_disconnected(receive)
        await send({"type": "http.response.body", "body": body[last:], "more_body": False})
        return not gone


async def _has_disconnected(receive: Receive) -> bool:
    """Whether the client has disconnected; does not wait for it."""
    while True:
        # ASGI cannot be asked without waiting: a millisecond is enough for what has arrived.
        receiving = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait({receiving}, timeout=0.001)
        if not done:
            receiving.cancel()
            return False
        if receiving.result()["type"] == "http.disconnect":
            return True


async def wait_while_connected(working: "asyncio.Future[ResultT]", request: Request) -> ResultT | None:
    """Awaits `working`; None if the client disconnects first. It has ended in any case."""
    gone = asyncio.ensure_future(_await_disconnect(request.receive))
    try:
        waited: set[asyncio.Future[Any]] = {working, gone}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait({working})


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# The service that all reward endpoints share.

CLIENT_CLOSED_REQUEST: Final = 499
"""nginx's status for a client that closed the connection; nobody reads it."""
_RETRY_SECONDS: Final = 5


@dataclass(frozen=True)
class SampleReward:
    """The answer for one sample."""

    number: float
    """The reward, or what stands for it if there is none."""
    reply: GroupReply

    @property
    def score(self) -> Score:
        """The score as stored."""
        return self.reply.score

    @property
    def is_unscored(self) -> bool:
        """Whether `number` only stands for a reward."""
        return self.score.reward is None or self.reply.is_masked

    @property
    def gated_absolute(self) -> float:
        """Comparable across groups, in [0, 1]."""
        score = self.score
        if score.reward is None or self.is_unscored:
            return self.number
        return score.reward if score.absolute is None else score.absolute * (1.0 if score.gate is None else score.gate)


def list_flags(reply: GroupReply) -> tuple[str, ...]:
    """Flags of the answer and of its group."""
    return tuple(dict.fromkeys((*reply.score.flags, *reply.flags)))


_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")


def name_criterion(criterion: str) -> str:
    """The name of its number in a trainer's log."""
    return f"criterion_{_UNSAFE.sub('_', criterion)}"


class ReplyFormat(Protocol):
    """How a trainer's contract formats its responses."""

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes: ...

    def format_refusal(self, count: int) -> dict[str, JsonValue]: ...


@dataclass(frozen=True)
class RewardService:
    parts: _SampleHolder
    catalogue: Catalogue
    stepper: EpisodeStepper
    bounds: BoundsCheck
    unscored_reward: float | None
    """The reward for samples without a score; None answers 503, so that the trainer retries."""
    masks_groups: bool
    """Instead, every member of a group in which one has no score gets the same number."""
    list_criteria: Callable[[str, str | None], Awaitable[tuple[str, ...]]]
    """The names of the criteria that every task of an environment has in a run."""
    unscored: Callable[[str, str, str, str], None]
    """Called for each sample without a score: contract, environment, reason, `error`, `number` or `masked`."""

    def __post_init__(self) -> None:
        if self.masks_groups:
            log.warning(
                "groups without a score get the reward %s for every member, because compat.unscored is neutral_group",
                self.placeholder,
            )
        elif self.unscored_reward is not None:
            log.warning(
                "samples without a score get the reward %s, because compat.unscored_reward is set",
                self.unscored_reward,
            )

    @property
    def placeholder(self) -> float:
        """What every member of a masked group gets."""
        return self.unscored_reward or 0.0

    def require_environment(self, environment: str) -> None:
        """Raises NotFound or EnvironmentUnavailable."""
        self.catalogue.get_environment_or_current(environment)

    async def answer(
        self, request: Request, samples: Sequence[SampleToScore], options: SampleOptions, reply_format: ReplyFormat
    ) -> Response:
        """Sends the response while its samples are held. Raises GatewayError if one of them is invalid."""
        await self.check_bounds(request, samples, options)
        for one in samples:
            await self._require_one_reply(one)
        return await self.hold(request, samples, options, reply_format, masks_groups=self.masks_groups)

    async def hold(
        self,
        request: Request,
        samples: Sequence[SampleToScore],
        options: SampleOptions,
        reply_format: ReplyFormat,
        *,
        masks_groups: bool,
    ) -> Response:
        """The same for samples that were checked already."""
        if masks_groups:
            samples = [replace(one, masks_group=True) for one in samples]
        held = HeldSamples(self.parts, samples, min(options.gather_seconds, options.wait_seconds), options.wait_seconds)
        try:
            replies = await held.await_replies(request.receive)
        except ClientLeft:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        missing = [pair for pair in zip(samples, replies, strict=True) if _lacks_reward(pair[1], masks_groups)]
        response = "masked" if masks_groups else "number"
        # A score that may still come is asked for again, even where a number stands for missing ones.
        pending = any("pending" in (reply.score.outcome, reply.outcome) for _, reply in missing)
        if pending or (missing and response == "number" and self.unscored_reward is None):
            # A trainer that is refused asks again: its sample counts as one whose sender has left without an answer.
            await held.settle(False)
            self._count_unscored(missing, options.contract, "error")
            return _refuse_unscored(missing[0][1], reply_format.format_refusal(len(samples)))
        self._count_unscored(missing, options.contract, response)
        return Delivery(reply_format.format_rewards([self._build_reward(one) for one in replies]), {}, held.settle)

    async def check_bounds(self, request: Request, samples: Sequence[SampleToScore], options: SampleOptions) -> None:
        """Forbidden or NotFound."""
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        for one in samples:
            await self.bounds.require_tasks(bounds, [one.task_id], one.label)

    async def _require_one_reply(self, sample: SampleToScore) -> None:
        """Raises InvalidRequest for a task with several turns."""
        try:
            is_single = await self.stepper.is_single_reply(sample.environment, sample.task_id)
        except NotFound as error:
            raise NotFound(error.detail, field=sample.label) from error
        if not is_single:
            raise InvalidRequest(
                f"this task of {sample.environment} has several turns; this endpoint accepts only tasks with one reply",
                field=sample.label,
            )

    def _build_reward(self, reply: GroupReply) -> SampleReward:
        reward = None if reply.is_masked else reply.score.reward
        return SampleReward(self.placeholder if reward is None else reward, reply)

    def _count_unscored(
        self, missing: Sequence[tuple[SampleToScore, GroupReply]], contract: str, response: str
    ) -> None:
        for sample, reply in missing:
            reason = reply.score.reason or ("masked" if reply.is_masked else "pending")
            self.unscored(contract, sample.environment, reason, response)


def _lacks_reward(reply: GroupReply, masks_groups: bool) -> bool:
    return reply.score.reward is None or reply.is_masked or (masks_groups and reply.outcome != "scored")


def _refuse_unscored(reply: GroupReply, beside: dict[str, JsonValue]) -> Response:
    score = reply.score
    if "pending" in (score.outcome, reply.outcome):
        return _build_refusal(503, RewardRefusal(error="not scored yet; retry", code="pending", field=None), 1, beside)
    because = f": {score.rationale}" if score.rationale else ""
    refusal = RewardRefusal(error=f"no score ({score.reason}){because}", code="unscored", field=None)
    if score.reason in LASTING_REASONS:  # a trainer that asked again would ask for ever
        return _build_refusal(422, refusal, None, {**beside, "reason": score.reason})
    return _build_refusal(503, refusal, _RETRY_SECONDS, {**beside, "reason": score.reason})
