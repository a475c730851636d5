"""A judge's configuration, and what it bounds: the time of a reading, its failures, its cost, and the judge's budget.

A budget is held in the store, exactly (decision 0011). Before each call what it may cost at most is reserved there,
against all that was spent and reserved by every process of the database. A call that does not fit into what is left is
refused; one that would fit if the calls in flight turn out cheaper waits for them. A reading that waits holds only what
it has used, so that two never wait for each other. The stored judgement takes the place of its reservation. A call
without an answer counts as what it may cost at most, since nobody knows whether it was charged.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import Final, Literal

from pydantic import JsonValue, SecretStr

from app.domain.budgets import NO_AMOUNT, NO_BUDGET, Admission, Amount, BudgetConfig, BudgetState, Reservation, admit
from app.domain.errors import JudgeFailed, StoreUnavailable
from app.domain.judge_limits import CallLimits
from app.domain.judging import JudgeFailure, Judgement, JudgeRequest, Spending
from app.domain.values import bound_tokens
from app.inference.connection import NO_ERROR, NO_HEADERS, Credentials, Endpoint, KeyFile, NoReply, ServerError
from app.judges.gate_wordings import replace_surrogates
from app.ports.environment import Clock
from app.ports.judges import DEFAULT_PACE, Judge, JudgeCache, ReadingPace, get_pace


@dataclass(frozen=True)
class TokenPrices:
    """US dollars per million tokens."""

    input_per_million: float | None = None
    output_per_million: float | None = None
    cached_input_per_million: float | None = None
    """Of prompt tokens that the provider had in its cache; as the others where it is not known."""

    @property
    def are_known(self) -> bool:
        return self.input_per_million is not None or self.output_per_million is not None

    def compute_cost(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> float:
        """`cached_input_tokens` are among `input_tokens`."""
        plain = self.input_per_million or 0.0
        cached = plain if self.cached_input_per_million is None else self.cached_input_per_million
        input_cost = plain * (input_tokens - cached_input_tokens) + cached * cached_input_tokens
        return (input_cost + (self.output_per_million or 0.0) * output_tokens) / 1e6

    def compute_amount(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> Amount:
        return Amount(input_tokens + output_tokens, self.compute_cost(input_tokens, output_tokens, cached_input_tokens))


_NO_PRICES: Final = TokenPrices()


JsonMode = Literal["schema", "object", "off"]
"""How the server is asked for JSON: with a schema, as any object, or by the prompt alone."""
Role = Literal["judge", "player"]
"""What a server's model is here."""
TokenParameter = Literal["max_tokens", "max_completion_tokens"]
"""The server's parameter for the longest answer."""

OWN_PARAMETERS: Final[Mapping[str, str]] = {
    "model": "model",
    "messages": "",
    "stream": "",
    "stream_options": "",
    "n": "",
    "temperature": "temperature",
    "seed": "seed",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "json_mode",
    "logprobs": "expected_scores",
    "top_logprobs": "expected_scores",
}
"""Fields of a request that `extra_body` must not hold, each with the setting that is there for it, if any."""


@dataclass(frozen=True)
class ChatJudgeConfig:
    name: str
    base_url: str
    model: str
    api_key: SecretStr | KeyFile | None = None
    extra_headers: Mapping[str, SecretStr] = field(default_factory=lambda: NO_HEADERS)
    api_version: str | None = None
    """Of Azure OpenAI; None for any other server."""
    deadline_seconds: float = 60.0
    """For one judgement of a group, including retries, pauses and the corrective retry, without time in the queue."""
    queue_seconds: float = 600.0
    """Longest wait for the limits below. A burst of groups must neither fail nor wait for ever, and `judging_seconds`
    bounds all readings of a group: no judge needs another wait."""
    max_output_tokens: int = 4096
    token_parameter: TokenParameter | None = "max_tokens"  # noqa: S105
    """None sends no bound."""
    temperature: float | None = 0.0
    """None omits the parameter, which some models reject."""
    seed: int | None = None
    """Each further vote adds one, or all votes would be the same."""
    extra_body: Mapping[str, JsonValue] = field(default_factory=dict)
    """Further fields of each request."""
    prices: TokenPrices = _NO_PRICES
    json_mode: JsonMode = "object"
    expected_scores: bool = False
    """Request token probabilities and use each score's expected value over the likely numbers."""
    pace: ReadingPace = DEFAULT_PACE
    max_concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: BudgetConfig = NO_BUDGET
    breaker_failures: int = 5
    breaker_seconds: float = 30.0
    """Then one call finds out whether the judge is back: one in half a minute costs neither side anything."""
    role: Role = "judge"
    """Whose server, budget and limits errors are about."""

    @cached_property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.base_url, Credentials(self.api_key, self.extra_headers), self.api_version)

    @property
    def call_limits(self) -> CallLimits:
        return CallLimits(self.max_concurrency, self.requests_per_minute, self.tokens_per_minute, self.deadline_seconds)

    @property
    def asked_besides(self) -> dict[str, JsonValue]:
        """Of the newer settings those that change what is asked, where they are set. The values of headers are secrets,
        so only their names count."""
        headers: list[JsonValue] = [*sorted(name.casefold() for name in self.extra_headers)]
        named: dict[str, JsonValue] = {
            "seed": self.seed,
            "extra_body": dict(self.extra_body),
            "extra_headers": headers,
            "api_version": self.api_version,
            "unbounded": self.token_parameter is None,
        }
        return {name: value for name, value in named.items() if value not in (None, {}, []) and value is not False}


# Deadlines: of one reading, with the time that it may wait for limits, and of all that is asked about a group.

JUDGING_SECONDS: Final = 900.0
"""For all readings of a group, where the settings say nothing."""


class DeadlineJudge:
    """Wraps a judge for one group. After the deadline every open judgement has failed and nothing more is asked. A
    judgement that arrives later only fills the cache."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self.pace = get_pace(judge)
        self._judge = judge
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds

    @property
    def expired(self) -> bool:
        return asyncio.get_running_loop().time() >= self._until

    async def judge(self, request: JudgeRequest) -> Judgement:
        if self.expired:
            return self._build_timeout_judgement(request)
        timeout = asyncio.timeout_at(self._until)
        try:
            async with timeout:
                return await self._judge.judge(request)
        except TimeoutError:
            if not timeout.expired():
                raise
            return self._build_timeout_judgement(request)

    def _build_timeout_judgement(self, request: JudgeRequest) -> Judgement:
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in request.candidates),
            error=f"no verdict within the limit of {self._seconds:g} s per group",
            failure="unavailable",
        )


class Deadline:
    """`seconds` for the calls, plus up to `queue_seconds` of waiting for the judge's limits: a large burst of groups
    must neither fail nor wait for ever. TimeoutError when either runs out; `queueing` tells which."""

    def __init__(self, seconds: float, queue_seconds: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + seconds
        self._queue_left = queue_seconds
        self._timeout = asyncio.timeout_at(self._until)
        self.queueing = False

    @property
    def seconds_left(self) -> float:
        return self._until - self._clock()

    @property
    def expired(self) -> bool:
        return self._timeout.expired()

    async def __aenter__(self) -> "Deadline":
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)

    @contextmanager
    def extend_while_queued(self) -> Iterator[None]:
        """Wrap waiting for the judge's limits in this: the wait does not count against `seconds`."""
        began = self._clock()
        self._timeout.reschedule(began + self._queue_left)
        self.queueing = True
        try:
            yield
        finally:
            if not self.expired:
                waited = self._clock() - began
                self._queue_left -= waited
                self._until += waited
                self._timeout.reschedule(self._until)
                self.queueing = False


# Failures of calls and of readings.

_MOST_STRANGE_REPLIES: Final = 3
"""After this many responses with status 200 that are not chat completions the URL is considered wrong."""

_FILTER_CODES: Final = frozenset(
    ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed")
)
"""Error codes of requests that the server's content filter blocked."""
_LONGEST_ERROR_MESSAGE: Final = 200
_RETRYABLE_STATUSES: Final = frozenset((408, 409, 425, 429))
"""Statuses below 500 that are worth a retry."""
_PROXY_TIMEOUT_STATUSES: Final = frozenset((504, 524))
"""Statuses of a proxy that stopped waiting for the model."""


class ReadingFailed(JudgeFailed):
    """A judgement that failed. `failure` is the kind."""

    def __init__(self, detail: str, failure: JudgeFailure) -> None:
        super().__init__(detail)
        self.failure = failure


def build_refusal_error(answer: str, role: Role) -> ReadingFailed:
    """For an answer that is a refusal."""
    return ReadingFailed(f"the {role} refuses: {' '.join(answer.split())[:200]}", "refused")


class CallFailed(Exception):
    """One call to a judge's server that failed. `error` is what the server says of it, `retry_after` is in seconds.
    `reached` is false when nothing was sent, and `ran` is true when the model ran."""

    def __init__(
        self,
        words: str,
        *,
        status: int | None = None,
        error: ServerError = NO_ERROR,
        retry_after: float = 0.0,
        reached: bool = True,
        ran: bool = False,
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.error = error
        self.retry_after = retry_after
        self.reached = reached
        self.ran = ran

    @property
    def server_message(self) -> str:
        """The server's message. Empty for errors about keys, since such messages may quote the key."""
        if self.status in (401, 403) or not self.error.message:
            return ""
        return replace_surrogates(f": {self.error.message[:_LONGEST_ERROR_MESSAGE]}")

    @property
    def is_refusal(self) -> bool:
        """Whether a content filter stopped the request."""
        return self.error.filtered or not _FILTER_CODES.isdisjoint(self.error.codes)

    @property
    def is_failed_generation(self) -> bool:
        """Whether the server says that the model wrote no JSON, which it may do next time."""
        return "json_validate_failed" in self.error.codes

    @property
    def perhaps_charged(self) -> bool:
        """Whether the model may have run although no answer arrived. A server that rejects a call runs no model."""
        if self.ran:
            return True
        return self.reached and (self.status is None or self.status < 300 or self.status in _PROXY_TIMEOUT_STATUSES)


def build_call_failure(error: NoReply, role: Role) -> CallFailed:
    if error.kind == "unreachable":
        return CallFailed(f"the {role}'s server could not be reached", reached=False)
    if error.kind == "too_large":
        return CallFailed(f"the {role}'s server sent {error.reason}", status=200)
    return CallFailed(f"the connection to the {role}'s server failed: {error.reason}")


def require_retryable(failed: CallFailed, strange: int, role: Role) -> None:
    """Raises ReadingFailed when a retry would fail again."""
    status = failed.status
    if failed.is_refusal:
        raise ReadingFailed(f"the {role}'s server refuses{failed.server_message}", "refused") from None
    if failed.error.lacks_money or status == 402:
        raise ReadingFailed(
            f"the {role}'s server wants to be paid first{failed.server_message}", "unavailable"
        ) from None
    if strange == _MOST_STRANGE_REPLIES:
        raise ReadingFailed(failed.words + failed.server_message, "unavailable") from None
    if failed.is_failed_generation:
        return
    if status is not None and 300 <= status < 500 and status not in _RETRYABLE_STATUSES:
        raise ReadingFailed(failed.words + failed.server_message, "unavailable") from None


# Cost: the token counts of answers, in the forms in which servers send them, and what a reading has used.

_MOST_TOKENS: Final = 10**9


@dataclass(frozen=True)
class TokenUsage:
    """Counts of one answer. `input_tokens` and `output_tokens` are None where the server does not count."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int = 0
    """Of the input, what the provider had in its prefix cache."""
    reasoning_tokens: int = 0
    """Of the output, what the model thought and did not say."""


NOT_COUNTED: Final = TokenUsage()

_MOST_COUNTS: Final = 64
_LEAST_PROMPTS: Final = 3
_FEW: Final = 0.5
_LEAST_MEASURED: Final = 1000
"""Bytes. Of a shorter prompt the tokens of the chat template are a large part."""
MOST_CHARACTERS_PER_TOKEN: Final = 7.0
"""Prose of any language has fewer: English 4 to 5, code 3, Chinese less than 2. A prompt of which a server counts fewer
tokens than that was probably cut."""


class PromptCounts:
    """What a server counts of prompts of different lengths. One that cuts at its window counts the same for all that
    are longer, and answers as if it had read them."""

    def __init__(self) -> None:
        self._sizes: dict[int, set[int]] = {}
        """By count, newest last, the bytes of prompts: the shortest, the longest, and some between."""
        self._most_per_byte = 0.0
        """Tokens. Tokenizers differ in it by far more than the scripts that one of them reads, in UTF-8."""
        self.prompts_cut = 0

    def record(self, size: int, usage: TokenUsage) -> None:
        """`size` in bytes. Nothing for a server that does not count."""
        if not usage.input_tokens:
            return
        count = usage.input_tokens
        self._most_per_byte = max(self._most_per_byte, count / max(size, _LEAST_MEASURED))
        self.prompts_cut += count < _FEW * self._most_per_byte * size
        sizes = self._sizes.pop(count, set()) | {size}
        self._sizes[count] = {min(sizes), max(sizes), *sorted(sizes)[: _LEAST_PROMPTS - 1]}
        while len(self._sizes) > _MOST_COUNTS:
            del self._sizes[next(iter(self._sizes))]

    @property
    def window(self) -> int | None:
        """The tokens at which prompts are cut, if they are: of three prompts or more, of which the longest is at least
        twice the shortest, all have the same count, and none has a higher one."""
        most = max(self._sizes, default=0)
        sizes = self._sizes.get(most, set())
        return most if len(sizes) >= _LEAST_PROMPTS and max(sizes) >= 2 * min(sizes) else None

    def cuts(self, size: int) -> bool:
        """Whether a prompt of so many bytes is cut, if any is."""
        return self.window is not None and size >= min(self._sizes[self.window])


def parse_usage(usage: object) -> TokenUsage:
    """OpenAI and vLLM name cached tokens in `prompt_tokens_details`, DeepSeek `prompt_cache_hit_tokens`, Anthropic's
    proxies `cache_read_input_tokens`; SGLang counts `reasoning_tokens` outside of the details. Where the total exceeds
    the sum of its parts, thoughts are charged beside the answer and count as output. More cached tokens than were sent
    are counted beside these."""
    sent, written = _parse_count(get_field(usage, "prompt_tokens")), _parse_count(get_field(usage, "completion_tokens"))
    cached = (
        get_field(get_field(usage, "prompt_tokens_details"), "cached_tokens"),
        get_field(usage, "prompt_cache_hit_tokens"),
        get_field(usage, "cache_read_input_tokens"),
    )
    details = get_field(usage, "completion_tokens_details")
    thought = (
        _parse_count(get_field(details, "reasoning_tokens")) or _parse_count(get_field(usage, "reasoning_tokens")) or 0
    )
    beside = (_parse_count(get_field(usage, "total_tokens")) or 0) - (sent or 0) - (written or 0)
    if sent is not None and written is not None and beside > 0:
        written, thought = written + beside, max(thought, beside)
    kept = max(_parse_count(each) or 0 for each in cached)
    if sent is not None and kept > sent:
        sent += kept
    return TokenUsage(
        input_tokens=sent,
        output_tokens=written,
        cached_input_tokens=min(sent or 0, kept),
        reasoning_tokens=min(written or 0, thought),
    )


def get_field(value: object, name: str) -> object:
    """A field of what a server sent; null where that is no object."""
    return value.get(name) if isinstance(value, dict) else None


def _parse_count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return None
    return min(value, _MOST_TOKENS)


BYTES_PER_TOKEN: Final = 4
_TOKENS_PER_MESSAGE: Final = 16


def estimate_tokens(texts: Sequence[str]) -> int:
    """About how many tokens the messages have."""
    size = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts)
    return -(-size // BYTES_PER_TOKEN) + _TOKENS_PER_MESSAGE * len(texts)


def bound_message_tokens(texts: Sequence[str]) -> int:
    """At least as many tokens as a model counts."""
    return sum(bound_tokens(text) + _TOKENS_PER_MESSAGE for text in texts)


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

    def record_answer(self, text: str, usage: TokenUsage, asked: Sequence[str]) -> int:
        """Counts the tokens of one call. Estimates them where the server sends no counts."""
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
        input_tokens = estimate_tokens(asked) if input_tokens is None else input_tokens
        output_tokens = estimate_tokens([text]) if output_tokens is None else output_tokens
        self.raw = text
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cached_input_tokens += usage.cached_input_tokens
        self.reasoning_tokens += usage.reasoning_tokens
        return input_tokens + output_tokens

    def add_unanswered(self, expected: Amount) -> None:
        self.unanswered_calls += 1
        self.unanswered += expected

    def compute_used(self, prices: TokenPrices) -> Amount:
        paid = prices.compute_amount(self.input_tokens, self.output_tokens, self.cached_input_tokens)
        return paid + self.unanswered

    def add_to(self, judgement: Judgement, prices: TokenPrices) -> Judgement:
        """Adds the last raw answer and the total cost."""
        cost = prices.compute_cost(self.input_tokens, self.output_tokens, self.cached_input_tokens)
        return judgement.model_copy(
            update={
                "raw": self.raw,
                "served_model": self.served_model,
                "system_fingerprint": self.system_fingerprint,
                "input_tokens": self.input_tokens,
                "output_tokens": self.output_tokens,
                "cached_input_tokens": self.cached_input_tokens,
                "reasoning_tokens": self.reasoning_tokens,
                "cost_usd": cost if prices.are_known else None,
                "calls": self.calls,
                "unanswered_calls": self.unanswered_calls,
                "unanswered_tokens": self.unanswered.tokens,
                "unanswered_usd": self.unanswered.usd,
            }
        )


# Budgets.


class SpendingAccount:
    """The latest budget state from the memory, plus spending that could not be stored. Days are in UTC."""

    def __init__(self, now: Clock) -> None:
        self.updates = 0
        """Number of updates from the memory. A read that began before the last update is out of date."""
        self._state = BudgetState()
        self._unwritten = Spending()
        self._unwritten_today = Spending()
        self._now = now
        self._day = now().date()

    @property
    def state(self) -> BudgetState:
        self._start_new_day()
        stored = self._state
        if not self._unwritten.readings:
            return stored
        return BudgetState(
            total=stored.total + self._unwritten,
            today=stored.today + self._unwritten_today,
            used=stored.used,
            open=stored.open,
        )

    def update_state(self, state: BudgetState) -> None:
        self._start_new_day()
        self.updates += 1
        self._state = state

    def add_unwritten(self, judgement: Judgement) -> None:
        self._start_new_day()
        self._unwritten = self._unwritten.add_judgement(judgement)
        self._unwritten_today = self._unwritten_today.add_judgement(judgement)

    def _start_new_day(self) -> None:
        today = self._now().date()
        if today != self._day:
            state = self._state
            self._day, self._unwritten_today = today, Spending()
            self._state = BudgetState(total=state.total, used=state.used, open=state.open)


POLL_SECONDS: Final = 0.5
"""How often a waiting call looks at the reservations of other processes."""
_RECORDING_SECONDS: Final = 60.0
"""How long a judgement may take to be stored after its deadline. Then its reservation counts as lost."""


_PROCESS: Final = uuid.uuid4().hex[:20]
_numbers: Final = count()


def create_reservation_id() -> str:
    """An id for the reservation of one judgement, different in every process."""
    return f"{_PROCESS}{next(_numbers):012x}"


class Budget:
    """One judge's budget, as this process uses it."""

    def __init__(
        self,
        judge: str,
        config: BudgetConfig,
        account: SpendingAccount,
        memory: JudgeCache,
        deadline_seconds: float,
        role: Role = "judge",
    ) -> None:
        self._judge = judge
        self._role = role
        self._config = config
        self._account = account
        self._memory = memory
        self._seconds = deadline_seconds + _RECORDING_SECONDS
        self._asked_for: set[str] = set()
        self._first_in_line = asyncio.Lock()
        """Held by the reading that waits longest: the others wait for it and not for the store."""
        self._settled = asyncio.Event()

    @property
    def left_usd(self) -> float | None:
        return self._account.state.compute_remaining(self._config).usd

    @property
    def left_tokens(self) -> int | None:
        return self._account.state.compute_remaining(self._config).tokens

    @property
    def is_limited(self) -> bool:
        return self._config != NO_BUDGET

    def require_available(self, amount: Amount) -> None:
        """Raises ReadingFailed when `amount` exceeds the remaining budget, whatever the calls in flight will cost."""
        if self.is_limited and self._account.state.answer(amount, self._config) == "never":
            raise self._build_exhausted_error(amount)

    async def reserve(self, hold: str, used: Amount, amount: Amount) -> None:
        """Reserves `amount` for the next call of a judgement that has `used` something before. Waits while only calls
        in flight, of any process, stand against it: they may turn out cheaper."""
        if not self.is_limited:
            return
        self._asked_for.add(hold)
        reservation = Reservation(id=hold, judge=self._judge, used=used, open=amount, seconds=self._seconds)
        if await self._try_reserve(reservation):
            return
        async with self._first_in_line:
            while True:
                self._settled.clear()  # before the look at the store, or what settles meanwhile would be missed
                if await self._try_reserve(reservation):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._settled.wait()

    async def release_between_calls(self, hold: str, used: Amount) -> None:
        """Releases the reservation between two calls of a judgement, so that waiting judgements can proceed."""
        if hold not in self._asked_for:
            return
        await self._reserve_in_store(
            Reservation(id=hold, judge=self._judge, used=used, open=NO_AMOUNT, seconds=self._seconds)
        )
        self._settled.set()

    def find_reservation(self, hold: str) -> str:
        """`hold` where something was reserved under it, else nothing."""
        return hold if hold in self._asked_for else ""

    async def release(self, hold: str) -> None:
        """Releases the reservation of a judgement that made no call."""
        if hold not in self._asked_for:
            return
        self._account.update_state(await self._memory.release(self._judge, hold))
        self.settle(hold)

    def settle(self, hold: str) -> None:
        """Call when the judgement is finished and its cost is stored."""
        self._asked_for.discard(hold)
        self._settled.set()

    async def _try_reserve(self, reservation: Reservation) -> bool:
        admission = await self._reserve_in_store(reservation)
        if admission.admits == "never":
            raise self._build_exhausted_error(reservation.open)
        return admission.admits == "now"

    async def _reserve_in_store(self, reservation: Reservation) -> Admission:
        try:
            admission = await self._memory.reserve(reservation, self._config)
        except StoreUnavailable as error:
            words = f"could not read this {self._role}'s budget: {error.detail}"
            raise ReadingFailed(words, "unavailable") from None
        self._account.update_state(admission.state)
        return admission

    def _build_exhausted_error(self, amount: Amount) -> ReadingFailed:
        left = self._account.state.compute_remaining(self._config)
        words = f"the next call may use {amount.tokens} tokens, {left.tokens} are left"
        if left.usd is not None and admit(left.usd, spent=0.0, held=0.0, wanted=amount.usd) == "never":
            words = f"the next call may cost {amount.usd:.6f} US dollars, {left.usd:.6f} are left"
        return ReadingFailed(f"this {self._role}'s budget is exhausted: {words}", "budget")
