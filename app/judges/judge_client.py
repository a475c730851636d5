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
from app.inference.connection import Connection
from app.inference.endpoint import NoReply
from app.judges.budget import Budget, SpendingAccount, estimate_tokens
from app.judges.chat_response import ChatResponse, parse_response, require_success
from app.judges.circuit_breaker import CallOutcome, CircuitBreaker
from app.judges.configuration import ChatJudgeConfig, JsonMode
from app.judges.deadline import Deadline
from app.judges.expected_scores import ALTERNATIVES_ASKED
from app.judges.failures import CallFailed, ReadingFailed, build_call_failure, build_refusal_error
from app.judges.formats import AnswerFormat, build_response_format
from app.judges.limits_lease import LimitsLease
from app.ports.judges import JudgeCache

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
MOST_STRANGE_REPLIES: Final = 3
"""After this many responses with status 200 that are not chat completions the URL is considered wrong."""

_RETRYABLE_STATUSES: Final = frozenset((408, 409, 425, 429))
"""Statuses below 500 that are worth a retry."""
_SERVER_FAULT_STATUSES: Final = frozenset((401, 403, 404, 408))
"""Statuses below 500 that every request would get."""
_FILTER_CODES: Final = frozenset(("content_filter", "content_policy_violation"))
"""Error codes of requests that the server's content filter blocked."""


class PromptMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass
class ReadingCost:
    """The cost of a judgement so far, and its last error. `hold` is the id of its budget reservation, `unanswered` the
    highest possible cost of calls without an answer."""

    hold: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unanswered_calls: int = 0
    unanswered: Amount = NO_AMOUNT
    raw: str = ""
    trouble: str = ""


class JudgeClient:
    def __init__(
        self,
        config: ChatJudgeConfig,
        account: SpendingAccount,
        memory: JudgeCache,
        *,
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
        self._format = AnswerFormat(config.json_mode)
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
        mode = self._format.mode
        while True:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * (0.5 + 0.5 * self._chance())
            try:
                reply = await self._call_within_limits(
                    self._build_body(messages, request, mode), messages, deadline, spent
                )
            except CallFailed as failed:
                spent.trouble = self.last_error = failed.words
                strange += failed.status == 200
                if failed.code not in _FILTER_CODES and (weaker := self._format.choose_weaker(mode, failed)):
                    mode = weaker
                    continue
                _require_retryable(failed, strange)
                pause = max(pause, failed.retry_after)
            else:
                self._format.record_success(mode)
                if reply.refused:
                    raise build_refusal_error(reply.text)
                return reply
            attempt += 1
            if deadline.seconds_left <= pause:
                raise ReadingFailed(f"{spent.trouble}; gave up after {spent.calls} attempts", "unavailable")
            await asyncio.sleep(pause)

    def _build_body(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, mode: JsonMode
    ) -> dict[str, JsonValue]:
        config = self._config
        body: dict[str, JsonValue] = {
            "model": config.model,
            "messages": [{"role": said["role"], "content": said["content"]} for said in messages],
            **config.extra_body,
        }
        if config.token_parameter is not None:
            body[config.token_parameter] = config.max_output_tokens
        if config.seed is not None:
            body["seed"] = config.seed + (0 if request is None else request.vote)
        if config.temperature is not None:
            body["temperature"] = config.temperature
        if config.expected_scores and request is not None:
            body |= {"logprobs": True, "top_logprobs": ALTERNATIVES_ASKED}
        if (wanted := build_response_format(mode, request)) is not None:
            body["response_format"] = wanted
        return body

    async def _call_within_limits(
        self, body: dict[str, JsonValue], messages: Sequence[PromptMessage], deadline: Deadline, spent: ReadingCost
    ) -> ChatResponse:
        """One call, after waiting for all limits."""
        texts = [said["content"] for said in messages]
        expected = self._config.prices.compute_amount(estimate_tokens(texts), self._config.max_output_tokens)
        await self.lease.prepare_probe()
        self.breaker.require_closed()
        self.budget.require_available(expected)
        if spent.calls:
            await self.budget.release_between_calls(spent.hold, self._compute_used(spent))
        await self._wait_for_server(deadline)
        with deadline.extend_while_queued():
            await self.lease.slots.acquire()
        try:
            await self._wait_for_server(deadline)  # the server may have sent a retry-after meanwhile
            with deadline.extend_while_queued():
                if self.lease.requests is not None:
                    await self.lease.requests.take(1)
                taken = 0.0 if self.lease.tokens is None else await self.lease.tokens.take(expected.tokens)
                await self.budget.reserve(spent.hold, self._compute_used(spent), expected)
            with self.breaker.track_call() as outcome:
                reply = await self._exchange(body, outcome, deadline, spent, expected)
            used = _record_usage(reply, texts, spent)
            if self.lease.tokens is not None:
                self.lease.tokens.settle(taken - used)
            return reply
        finally:
            self.lease.release()

    async def _exchange(
        self, body: dict[str, JsonValue], outcome: CallOutcome, deadline: Deadline, spent: ReadingCost, expected: Amount
    ) -> ChatResponse:
        spent.calls += 1
        try:
            reply = parse_response(await self._send(body))
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

    async def _send(self, body: Mapping[str, JsonValue]) -> bytes:
        try:
            reply = await self._connection.post(body)
        except NoReply as error:
            raise build_call_failure(error) from None
        return require_success(reply)

    def _record_failure(self, failed: CallFailed, outcome: CallOutcome) -> None:
        """Updates limits and breaker after a failed call."""
        if failed.status == 429:
            self.lease.record(CallFeedback(rate_limited=True, retry_after=failed.retry_after))
        elif (
            failed.status is None
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
                "raw": spent.raw,
                "input_tokens": spent.input_tokens,
                "output_tokens": spent.output_tokens,
                "cost_usd": prices.compute_cost(spent.input_tokens, spent.output_tokens) if prices.known else None,
                "calls": spent.calls,
                "unanswered_calls": spent.unanswered_calls,
                "unanswered_tokens": spent.unanswered.tokens,
                "unanswered_usd": spent.unanswered.usd,
            }
        )

    def _compute_used(self, spent: ReadingCost) -> Amount:
        return self._config.prices.compute_amount(spent.input_tokens, spent.output_tokens) + spent.unanswered

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
    read, wrote = reply.input_tokens, reply.output_tokens
    read = estimate_tokens(texts, bytes_per_token=4) if read is None else read
    wrote = estimate_tokens([reply.text], bytes_per_token=4) if wrote is None else wrote
    spent.raw = reply.text
    spent.input_tokens += read
    spent.output_tokens += wrote
    return read + wrote


def _require_retryable(failed: CallFailed, strange: int) -> None:
    """Raises ReadingFailed when a retry would fail again."""
    status = failed.status
    if failed.code in _FILTER_CODES:
        raise ReadingFailed(f"the judge's server refuses{failed.told}", "refused") from None
    if strange == MOST_STRANGE_REPLIES:
        raise ReadingFailed(failed.words, "unavailable") from None
    if status is not None and 300 <= status < 500 and status not in _RETRYABLE_STATUSES:
        raise ReadingFailed(failed.words + failed.told, "unavailable") from None
