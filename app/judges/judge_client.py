"""The client of a judge's server: one retry loop that applies limits, budget and circuit breaker to every call."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypedDict

from pydantic import JsonValue

from app.domain.budgets import NO_AMOUNT, Amount
from app.domain.judge_limits import CallFeedback, CallLimits
from app.domain.judging import Judgement, JudgeRequest
from app.domain.values import utc_now
from app.inference.connection import CHAT_PATH, Connection
from app.inference.endpoint import NoReply
from app.judges.budget import Budget, SpendingAccount, estimate_tokens
from app.judges.chat_response import ChatResponse, parse_response, require_success
from app.judges.circuit_breaker import CallOutcome, CircuitBreaker
from app.judges.configuration import ChatJudgeConfig
from app.judges.deadline import Deadline
from app.judges.failures import CallFailed, ReadingFailed, build_call_failure, build_refusal_error
from app.judges.formats import build_response_format
from app.judges.limits import hash_beginnings
from app.judges.limits_lease import LimitsLease
from app.judges.request_form import RequestForm, build_parameters
from app.judges.server_traits import ServerTraits, is_failed_generation
from app.ports.judges import JudgeCache

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
MOST_STRANGE_REPLIES: Final = 3
"""After this many responses with status 200 that are not chat completions the URL is considered wrong."""

_RETRYABLE_STATUSES: Final = frozenset((408, 409, 425, 429))
"""Statuses below 500 that are worth a retry."""
_MOST_PARSED_ON_LOOP: Final = 100_000
"""Longest reply, in bytes, that is parsed on the event loop. Streams take longest."""
_SERVER_FAULT_STATUSES: Final = frozenset((401, 402, 403, 404, 408))
"""Statuses below 500 that every request would get."""


class PromptMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ServerCall:
    """One request to a server, and how its answer is read. `texts` are what the model reads, to estimate tokens."""

    path: str
    body: Mapping[str, JsonValue]
    texts: Sequence[str]
    parse: Callable[[bytes], ChatResponse]
    most_tokens: int = 0
    """Of its answer."""


@dataclass
class ReadingCost:
    """The cost of a judgement so far, and its last error. `hold` is the id of its budget reservation, `unanswered` the
    highest possible cost of calls without an answer."""

    hold: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    unanswered_calls: int = 0
    unanswered: Amount = NO_AMOUNT
    raw: str = ""
    trouble: str = ""
    served_model: str = ""
    system_fingerprint: str = ""


class JudgeClient:
    def __init__(
        self,
        config: ChatJudgeConfig,
        account: SpendingAccount,
        memory: JudgeCache,
        *,
        traits: ServerTraits | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.breaker = CircuitBreaker(config.breaker_failures, config.breaker_seconds, clock, now)
        self.lease = LimitsLease(config.name, _build_call_limits(config), memory, self.breaker, clock)
        self.budget = Budget(config.name, config.budget, account, memory, config.deadline_seconds)
        self.last_error: str | None = None
        self._config = config
        self._chance = chance
        self._clock = clock
        self.traits = ServerTraits(config) if traits is None else traits
        self._connection = Connection(config.endpoint)

    async def close(self) -> None:
        await self.lease.close()
        await self._connection.aclose()

    async def ask(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, deadline: Deadline, spent: ReadingCost
    ) -> ChatResponse:
        """Returns the server's answer, with retries until the deadline. ReadingFailed for a permanent error, a refusal,
        or an open breaker or exhausted budget. Without a request the answer may be any JSON object."""
        attempt = strange = 0
        form = first = self.traits.form
        while True:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * (0.5 + 0.5 * self._chance())
            try:
                call = self._build_call(messages, request, form)
                reply = await self._call_within_limits(call, deadline, spent)
            except CallFailed as failed:
                if (changed := self.traits.choose_next(form, failed)) is not None:
                    form = changed
                    continue
                spent.trouble = self.last_error = failed.words
                strange += failed.status == 200 or is_failed_generation(failed)
                _require_retryable(failed, strange)
                pause = max(pause, failed.retry_after)
            else:
                self.traits.record_answer(form, reply, changed=form != first)
                if reply.refused:
                    raise build_refusal_error(reply.text)
                if not reply.lacks_room or (changed := self.traits.give_room(form)) is None:
                    return reply
                form = changed
                continue
            attempt += 1
            await _pause_before_retry(pause, deadline, spent)

    async def ask_route(self, call: ServerCall, deadline: Deadline, spent: ReadingCost) -> ChatResponse:
        """The same for any route of a server, with its body as it is."""
        attempt = strange = 0
        while True:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * (0.5 + 0.5 * self._chance())
            try:
                return await self._call_within_limits(call, deadline, spent)
            except CallFailed as failed:
                spent.trouble = self.last_error = failed.words
                strange += failed.status == 200
                _require_retryable(failed, strange)
                pause = max(pause, failed.retry_after)
            attempt += 1
            await _pause_before_retry(pause, deadline, spent)

    def _build_body(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, form: RequestForm
    ) -> dict[str, JsonValue]:
        told = messages if form.has_system_role else _merge_system_message(messages)
        body: dict[str, JsonValue] = {
            "model": self._config.model,
            "messages": [{"role": said["role"], "content": said["content"]} for said in told],
            **self._config.extra_body,
            **build_parameters(form, request),
        }
        if (wanted := build_response_format(form.json_mode, request, self._config.verdict_form)) is not None:
            body["response_format"] = wanted
        return body

    def _build_call(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, form: RequestForm
    ) -> ServerCall:
        texts = [said["content"] for said in messages]
        return ServerCall(CHAT_PATH, self._build_body(messages, request, form), texts, parse_response, form.most_tokens)

    async def _call_within_limits(self, call: ServerCall, deadline: Deadline, spent: ReadingCost) -> ChatResponse:
        """One call, after waiting for all limits."""
        expected = self._config.prices.compute_amount(estimate_tokens(call.texts), call.most_tokens)
        await self.lease.prepare_probe()
        self.breaker.require_closed()
        self.budget.require_available(expected)
        if spent.calls:
            await self.budget.release_between_calls(spent.hold, self._compute_used(spent))
        await self._wait_for_server(deadline)
        with deadline.extend_while_queued():
            await self.lease.slots.acquire(hash_beginnings(call.texts))
        try:
            await self._wait_for_server(deadline)  # the server may have sent a retry-after meanwhile
            with deadline.extend_while_queued():
                if self.lease.requests is not None:
                    await self.lease.requests.take(1)
                taken = 0.0 if self.lease.tokens is None else await self.lease.tokens.take(expected.tokens)
                await self.budget.reserve(spent.hold, self._compute_used(spent), expected)
            with self.breaker.track_call() as outcome:
                reply = await self._exchange(call, outcome, deadline, spent, expected)
            used = _record_usage(reply, call.texts, spent)
            if self.lease.tokens is not None:
                self.lease.tokens.settle(taken - used)
            return reply
        finally:
            self.lease.release()

    async def _exchange(
        self, call: ServerCall, outcome: CallOutcome, deadline: Deadline, spent: ReadingCost, expected: Amount
    ) -> ChatResponse:
        spent.calls += 1
        try:
            reply = await _parse_body(call, await self._send(call))
        except CallFailed as failed:
            if failed.perhaps_charged:
                spent.unanswered_calls += 1
                spent.unanswered += expected
            self._record_failure(failed, outcome)
            raise
        except asyncio.CancelledError:
            spent.unanswered_calls += 1
            spent.unanswered += expected
            if deadline.expired:
                outcome.good, outcome.trouble = False, "no answer within the deadline"
                self.last_error = outcome.trouble
                self.lease.record(CallFeedback(failed=True))
            raise
        outcome.good = True
        self.lease.record(CallFeedback(succeeded=1))
        return reply

    async def _send(self, call: ServerCall) -> bytes:
        try:
            reply = await self._connection.post(call.body, call.path)
        except NoReply as error:
            raise build_call_failure(error) from None
        return require_success(reply)

    def _record_failure(self, failed: CallFailed, outcome: CallOutcome) -> None:
        """Updates limits and breaker after a failed call."""
        if failed.status == 429 and not failed.error.lacks_money:
            self.lease.record(CallFeedback(rate_limited=True, retry_after=failed.retry_after))
        elif (
            failed.status is None
            or failed.error.lacks_money
            or failed.status < 300
            or failed.status >= 500
            or failed.status in _SERVER_FAULT_STATUSES
        ):
            outcome.good, outcome.trouble = False, failed.words
            self.lease.record(CallFeedback(failed=True))
        else:
            outcome.good = True

    def add_cost(self, judgement: Judgement, spent: ReadingCost) -> Judgement:
        """Adds the last raw answer and the total cost."""
        prices = self._config.prices
        return judgement.model_copy(
            update={
                **{name: value for name, value in vars(spent).items() if name in Judgement.model_fields},
                "cost_usd": prices.compute_cost(spent.input_tokens, spent.output_tokens, spent.cached_input_tokens)
                if prices.are_known
                else None,
                "unanswered_tokens": spent.unanswered.tokens,
                "unanswered_usd": spent.unanswered.usd,
            }
        )

    def _compute_used(self, spent: ReadingCost) -> Amount:
        paid = self._config.prices.compute_amount(spent.input_tokens, spent.output_tokens, spent.cached_input_tokens)
        return paid + spent.unanswered

    async def _wait_for_server(self, deadline: Deadline) -> None:
        """Waits until the time that the server named in `retry-after`."""
        wait = self.lease.quiet_until - self._clock()
        if wait >= deadline.seconds_left:
            raise ReadingFailed(f"the judge's server asked to wait another {wait:.0f} s", "unavailable")
        if wait > 0:
            await asyncio.sleep(wait)


def _build_call_limits(config: ChatJudgeConfig) -> CallLimits:
    return CallLimits(
        config.max_concurrency, config.requests_per_minute, config.tokens_per_minute, config.deadline_seconds
    )


def _record_usage(reply: ChatResponse, texts: Sequence[str], spent: ReadingCost) -> int:
    """Counts the tokens of one call. Estimates them where the server sends no counts."""
    read, wrote = reply.usage.input_tokens, reply.usage.output_tokens
    read = estimate_tokens(texts, bytes_per_token=4) if read is None else read
    wrote = estimate_tokens([reply.text], bytes_per_token=4) if wrote is None else wrote
    spent.raw = reply.text
    spent.served_model, spent.system_fingerprint = reply.model, reply.system_fingerprint
    spent.input_tokens += read
    spent.output_tokens += wrote
    spent.cached_input_tokens += reply.usage.cached_input_tokens
    spent.reasoning_tokens += reply.usage.reasoning_tokens
    return read + wrote


async def _parse_body(call: ServerCall, body: bytes) -> ChatResponse:
    if len(body) > _MOST_PARSED_ON_LOOP:
        return await asyncio.to_thread(call.parse, body)
    return call.parse(body)


def _merge_system_message(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """The messages of a model that knows no system message: its text stands at the head of the user's."""
    first, second, *others = messages
    return [{"role": "user", "content": f"{first['content']}\n\n{second['content']}"}, *others]


async def _pause_before_retry(pause: float, deadline: Deadline, spent: ReadingCost) -> None:
    """ReadingFailed when the deadline comes first."""
    if deadline.seconds_left <= pause:
        raise ReadingFailed(f"{spent.trouble}; gave up after {spent.calls} attempts", "unavailable")
    await asyncio.sleep(pause)


def _require_retryable(failed: CallFailed, strange: int) -> None:
    """Raises ReadingFailed when a retry would fail again."""
    status = failed.status
    if failed.is_refusal:
        raise ReadingFailed(f"the judge's server refuses{failed.server_message}", "refused") from None
    if failed.error.lacks_money or status == 402:
        raise ReadingFailed(
            f"the judge's server wants to be paid first{failed.server_message}", "unavailable"
        ) from None
    if strange == MOST_STRANGE_REPLIES:
        raise ReadingFailed(failed.words + failed.server_message, "unavailable") from None
    if is_failed_generation(failed):
        return
    if status is not None and 300 <= status < 500 and status not in _RETRYABLE_STATUSES:
        raise ReadingFailed(failed.words + failed.server_message, "unavailable") from None
