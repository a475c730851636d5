"""The client of a judge's server: one retry loop that applies limits, budget and circuit breaker to every call."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from pydantic import JsonValue

from app.domain.budgets import Amount
from app.domain.judge_limits import CallFeedback
from app.domain.judging import JudgeRequest
from app.domain.values import utc_now
from app.inference.connection import CHAT_PATH, Connection
from app.inference.endpoint import NoReply
from app.judges.budget import Budget, ReadingCost, SpendingAccount, estimate_tokens
from app.judges.call_spans import describe_call, describe_reply, name_call, name_failure
from app.judges.chat_response import ChatResponse, parse_response, require_success
from app.judges.circuit_breaker import CallOutcome, CircuitBreaker
from app.judges.configuration import ChatJudgeConfig, JsonMode
from app.judges.deadline import Deadline
from app.judges.failures import CallFailed, ReadingFailed, build_call_failure, build_refusal_error, require_retryable
from app.judges.formats import choose_mode
from app.judges.limits import await_turn_at_judging, hash_beginnings
from app.judges.limits_lease import LimitsLease
from app.judges.request_form import PromptMessage, RequestForm, build_body
from app.judges.server_traits import ServerTraits
from app.ports.judges import JudgeCache
from app.ports.tracing import open_span

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
_MOST_PARSED_ON_LOOP: Final = 100_000
"""Longest reply, in bytes, that is parsed on the event loop. Streams take longest."""
_SERVER_FAULT_STATUSES: Final = frozenset((401, 402, 403, 404, 408))
"""Statuses below 500 that every request would get."""


@dataclass(frozen=True)
class ServerCall:
    """One request to a server, and how its answer is read. `texts` are what the model reads, to estimate tokens."""

    path: str
    body: Mapping[str, JsonValue]
    texts: Sequence[str]
    parse: Callable[[bytes], ChatResponse]
    most_tokens: int = 0
    """Of its answer."""


Revision = Callable[[CallFailed], ServerCall | None]
"""What is sent instead of a call that failed; None where nothing is."""


def _keep_call(_failed: CallFailed) -> None:
    return None


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
        self.lease = LimitsLease(config.name, config.call_limits, memory, self.breaker, clock)
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
        """As `ask_route`, in the form that the server takes. ReadingFailed for a refusal too. Without a request the
        answer may be any JSON object."""
        form = first = self.traits.form

        def leave_out_refused(failed: CallFailed) -> ServerCall | None:
            nonlocal form
            if (changed := self.traits.choose_next(form, failed)) is None:
                return None
            form = changed
            return self._build_call(messages, request, form)

        while True:
            call = self._build_call(messages, request, form)
            reply = await self.ask_route(call, deadline, spent, leave_out_refused)
            self.traits.record_answer(form, reply, changed=form != first)
            if reply.refused:
                raise build_refusal_error(reply.text)
            if not reply.lacks_room or (changed := self.traits.give_room(form)) is None:
                return reply
            form = changed

    async def ask_route(
        self, call: ServerCall, deadline: Deadline, spent: ReadingCost, revise: Revision = _keep_call
    ) -> ChatResponse:
        """Returns the server's answer, with retries until the deadline. What `revise` makes of a refused call is sent
        at once. ReadingFailed for a permanent error, an open breaker or an exhausted budget."""
        attempt = strange = 0
        while True:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * (0.5 + 0.5 * self._chance())
            try:
                return await self._call_within_limits(call, deadline, spent)
            except CallFailed as failed:
                if (revised := revise(failed)) is not None:
                    call = revised
                    continue
                spent.trouble = self.last_error = failed.words
                strange += failed.status == 200 or failed.is_failed_generation
                require_retryable(failed, strange)
                pause = max(pause, failed.retry_after)
            attempt += 1
            await _pause_before_retry(pause, deadline, spent)

    def _build_call(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, form: RequestForm
    ) -> ServerCall:
        body = build_body(form, messages, request, self._config)
        texts = [said["content"] for said in messages]
        parse = partial(self._parse_answer, texts, choose_mode(form.json_mode, request))
        return ServerCall(CHAT_PATH, body, texts, parse, form.most_tokens)

    def _parse_answer(self, texts: Sequence[str], asked: JsonMode, body: bytes) -> ChatResponse:
        """Without the secrets that were sent: what a server repeats of them must not be stored."""
        reply = parse_response(body)
        redact = self._connection.endpoint.credentials.redact
        text = redact(reply.text, texts)
        return replace(
            reply,
            text=text,
            tokens=reply.tokens if text == reply.text else (),  # whose places were others
            model=redact(reply.model),
            system_fingerprint=redact(reply.system_fingerprint),
            asked=asked,
        )

    async def _call_within_limits(self, call: ServerCall, deadline: Deadline, spent: ReadingCost) -> ChatResponse:
        """One call, after waiting for all limits."""
        expected = self._config.prices.compute_amount(estimate_tokens(call.texts), call.most_tokens)
        await self.lease.prepare_probe()
        self.breaker.require_closed()
        self.budget.require_available(expected)
        if spent.calls:
            await self.budget.release_between_calls(spent.hold, spent.compute_used(self._config.prices))
        await self._wait_for_server(deadline)
        with deadline.extend_while_queued():
            await self.lease.slots.acquire(hash_beginnings(call.texts))
        try:
            await self._wait_for_server(deadline)  # the server may have sent a retry-after meanwhile
            taken = await self._take_rates_and_budget(expected, deadline, spent) if self._has_rates_or_budget else 0.0
            with self.breaker.track_call() as outcome:
                reply = await self._exchange(call, outcome, deadline, spent, expected)
            used = spent.record_answer(reply.text, reply.usage, call.texts)
            spent.served_model, spent.system_fingerprint = reply.model, reply.system_fingerprint
            if self.lease.tokens is not None:
                self.lease.tokens.settle(taken - used)
            return reply
        finally:
            self.lease.release()

    @property
    def _has_rates_or_budget(self) -> bool:
        return self.lease.requests is not None or self.lease.tokens is not None or self.budget.is_limited

    async def _take_rates_and_budget(self, expected: Amount, deadline: Deadline, spent: ReadingCost) -> float:
        """Returns the tokens taken."""
        with deadline.extend_while_queued():
            if self.lease.requests is not None:
                await self.lease.requests.take(1)
            taken = 0.0 if self.lease.tokens is None else await self.lease.tokens.take(expected.tokens)
            await self.budget.reserve(spent.hold, spent.compute_used(self._config.prices), expected)
        return taken

    async def _exchange(
        self, call: ServerCall, outcome: CallOutcome, deadline: Deadline, spent: ReadingCost, expected: Amount
    ) -> ChatResponse:
        spent.calls += 1
        try:
            reply = await self._call_in_span(call)
        except CallFailed as failed:
            if failed.perhaps_charged:
                spent.add_unanswered(expected)
            self._record_failure(failed, outcome)
            raise
        except asyncio.CancelledError:
            spent.add_unanswered(expected)
            if deadline.expired:
                outcome.good, outcome.trouble = False, "no answer within the deadline"
                self.last_error = outcome.trouble
                self.lease.record(CallFeedback(failed=True))
            raise
        outcome.good = True
        self.lease.record(CallFeedback(succeeded=1))
        return reply

    async def _call_in_span(self, call: ServerCall) -> ChatResponse:
        config = self._config
        about = describe_call(config, call.path, call.most_tokens)
        with open_span(name_call(config, call.path), about, "client") as span:
            try:
                reply = await self._parse_body(call, await self._send(call))
            except CallFailed as failed:
                span.mark_failed(name_failure(failed))
                raise
            span.describe(describe_reply(config, reply))
            return reply

    async def _send(self, call: ServerCall) -> bytes:
        """Sends in a turn, and returns in one: hundreds of calls may begin and end at once."""
        await await_turn_at_judging()
        try:
            reply = await self._connection.post(call.body, call.path)
        except NoReply as error:
            raise build_call_failure(error) from None
        await await_turn_at_judging()
        return require_success(reply)

    @staticmethod
    async def _parse_body(call: ServerCall, body: bytes) -> ChatResponse:
        if len(body) > _MOST_PARSED_ON_LOOP:
            return await asyncio.to_thread(call.parse, body)
        return call.parse(body)

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

    async def _wait_for_server(self, deadline: Deadline) -> None:
        """Waits until the time that the server named in `retry-after`."""
        wait = self.lease.quiet_until - self._clock()
        if wait >= deadline.seconds_left:
            raise ReadingFailed(f"the judge's server asked to wait another {wait:.0f} s", "unavailable")
        if wait > 0:
            await asyncio.sleep(wait)


async def _pause_before_retry(pause: float, deadline: Deadline, spent: ReadingCost) -> None:
    """ReadingFailed when the deadline comes first."""
    if deadline.seconds_left <= pause:
        raise ReadingFailed(f"{spent.trouble}; gave up after {spent.calls} attempts", "unavailable")
    await asyncio.sleep(pause)
