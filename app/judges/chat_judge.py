"""Judges behind an OpenAI-compatible URL, and what stands around them: a cache, a fallback, a memory without a store.

`ChatJudge` asks for one judgement, with one corrective retry that lists the problems of the first answer, under one
deadline. `CachingJudge` asks each question once: equal ones at the same time share a call, and a judgement is stored
before anybody uses it, since it is paid for. A question has a fixed prompt, so that a group that is sent again finds
its judgements. `JudgeWithFallback` passes on what the first judge refuses or cannot answer. `ScriptedJudge` stands in
for a model in tests and demonstrations.
"""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Protocol

from pydantic import JsonValue

from app.domain.budgets import Admission, BudgetConfig, BudgetState, Reservation
from app.domain.errors import StoreUnavailable
from app.domain.judge_limits import LimitsExchange, LimitsGrant, SharedLimits, exchange_limits
from app.domain.judging import JudgeFailure, Judgement, JudgeReport, JudgeRequest, Spending, Verdict
from app.domain.values import digest, digest_of_list, digest_of_text, utc_now
from app.judges.aggregation import rank_candidates
from app.judges.configuration import (
    ChatJudgeConfig,
    Deadline,
    ReadingCost,
    ReadingFailed,
    SpendingAccount,
    build_refusal_error,
    create_reservation_id,
)
from app.judges.gate_wordings import replace_surrogates
from app.judges.judge_client import ChatResponse, JudgeClient, PromptMessage, ServerTraits
from app.judges.limits import await_turn_at_judging
from app.judges.modes import parse_references
from app.judges.prompts import TEMPLATES_DIGEST, JudgePrompt, JudgeQuestion, build_correction, build_prompt
from app.judges.verdicts import (
    PARSER_VERSION,
    JudgeAnswer,
    UnusableAnswer,
    insert_expected_scores,
    is_refusal,
    parse_answer,
)
from app.ports.environment import Clock
from app.ports.judges import (
    AnsweringJudge,
    CachedJudgement,
    Judge,
    JudgeCache,
    PricedJudge,
    ReadingPace,
    RepeatingJudge,
    ReportingJudge,
    can_write,
    get_pace,
    gives_rewards,
)

_MOST_PARSED_ON_LOOP: Final = 20_000
"""Longest answer, in characters, that is parsed on the event loop."""
_HEALTH_BY_BREAKER_STATE: Final = {"closed": "ok", "half_open": "probing", "open": "out"}


class ChatJudge:
    """Answers each request anew, and counts what that costs."""

    def __init__(
        self,
        config: ChatJudgeConfig,
        memory: JudgeCache | None = None,
        *,
        has_fallback: bool = False,
        traits: ServerTraits | None = None,
        chance: Callable[[], float] = random.random,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`memory` holds the spending of every process that uses this judge; without one only this process counts. With
        `has_fallback` a refusal gets no corrective retry. `traits` are shared by judges that ask the same model."""
        self.name = config.name
        self.model = config.model
        self.digest = digest(
            {
                "model": config.model,
                "temperature": config.temperature,
                "max_output_tokens": config.max_output_tokens,
                "json_mode": config.json_mode,
                "verdict_form": "short",  # the only one; without it the digest would be another
                "expected_scores": config.expected_scores,
                "templates": TEMPLATES_DIGEST,
                "parser": PARSER_VERSION,
            }
            | config.asked_besides
        )
        self._config = config
        self._has_fallback = has_fallback
        self._memory = InProcessMemory(now) if memory is None else memory
        self.account = SpendingAccount(now)
        self._client = JudgeClient(config, self.account, self._memory, traits=traits, chance=chance, now=now)

    @property
    def pace(self) -> ReadingPace:
        return self._config.pace

    @property
    def writes(self) -> bool:
        return True

    @property
    def repeats_itself(self) -> bool:
        return self._config.temperature == 0

    def compute_most(self, input_tokens: int) -> float | None:
        prices = self._config.prices
        return prices.compute_cost(input_tokens, self._config.max_output_tokens) if prices.are_known else None

    @property
    def longest_answer(self) -> int:
        return self._config.max_output_tokens

    async def close(self) -> None:
        await self._client.close()

    def build_question(self, request: JudgeRequest) -> JudgeQuestion:
        """Takes milliseconds for a large prompt, so call it once per judgement."""
        prompt = build_prompt(request)
        prompt_text, prompt_digest = prompt.encode(self.digest)
        # The prompt names candidates by letters, stored verdicts by ids: equal prompts may be about other ids.
        ids: list[JsonValue] = [candidate.id for candidate in request.candidates]
        reading = digest_of_list([self.name, self._config.base_url, request.mode, request.vote, ids, prompt_digest])
        return JudgeQuestion(request, prompt, prompt_text, prompt_digest, reading)

    def report(self) -> JudgeReport:
        client, state = self._client, self.account.state
        return JudgeReport.model_validate(
            {
                "health": "out" if client.traits.cut else _HEALTH_BY_BREAKER_STATE[client.breaker.state],
                "last_error": None if client.last_error is None else self._redact(client.last_error),
                "in_flight": client.lease.slots.in_flight,
                "queued": client.lease.slots.queued,
                "limit": client.lease.limit,
                "share": client.lease.slots.limit,
                "spent": state.total,
                "spent_today": state.today,
                "budget_left_usd": client.budget.left_usd,
                "budget_left_tokens": client.budget.left_tokens,
                "cache_hits": 0,
                "changes": client.traits.changes,
                "ignored": client.traits.ignored,
                "prompts_cut": client.traits.counts.prompts_cut,
            }
        )

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Records the cost at once and caches nothing."""
        hold = create_reservation_id()
        await await_turn_at_judging()
        question = self.build_question(request)
        judgement = await self.answer_question(question, hold)
        await self.record_spending(judgement, hold)
        return judgement

    async def refresh(self) -> None:
        """Loads the spending and reservations of all processes. StoreUnavailable when they cannot be read."""
        updates = self.account.updates
        state = await self._memory.get_budget_state(self.name)
        if updates == self.account.updates:  # else a newer state arrived meanwhile
            self.account.update_state(state)

    async def record_spending(self, judgement: Judgement, hold: str) -> None:
        """Durable on return. StoreUnavailable when it cannot be stored; this process still counts it."""
        if judgement.calls == 0:
            await self._client.budget.release(hold)
            return
        try:
            self.account.update_state(await self._memory.put(judgement, self._client.budget.find_reservation(hold)))
        except StoreUnavailable:
            self.account.add_unwritten(judgement)
            raise
        finally:
            self._client.budget.settle(hold)

    async def answer_question(self, question: JudgeQuestion, hold: str) -> Judgement:
        """`hold` is the id of the budget reservation. Pass it to `record_spending` afterwards."""
        clock = asyncio.get_running_loop().time
        began = clock()
        spent = ReadingCost(hold)
        answer, error, failure = await self._answer_within_deadline(
            question.request, build_messages(question.prompt), spent
        )
        judgement = Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in question.request.candidates),
            verdicts=answer.verdicts if answer is not None else (),
            ranking=answer.ranking if answer is not None else (),
            prompt=question.prompt_text,
            prompt_digest=question.prompt_digest,
            error=error,
            failure=failure,
            latency_seconds=clock() - began,
        )
        return spent.add_to(judgement, self._config.prices)

    async def answer_text(self, text: str) -> str | None:
        """Counted and paid for as a judgement is."""
        return (await self.ask_text(text, "You answer with one JSON object and nothing else.")).raw or None

    async def ask_text(self, text: str, system: str) -> Judgement:
        """The answer to any text as a judgement without verdicts: `raw` holds a JSON object, or `error` says why there
        is none. StoreUnavailable."""
        hold, began = create_reservation_id(), asyncio.get_running_loop().time()
        spent, deadline = ReadingCost(hold), Deadline(self._config.deadline_seconds, self._config.queue_seconds)
        messages: list[PromptMessage] = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        error: str | None = None
        failure: JudgeFailure | None = None
        try:
            async with deadline:
                await self._client.ask(messages, None, deadline, spent)
        except TimeoutError:
            error, failure = f"no answer within {self._config.deadline_seconds:g} s", "unavailable"
        except ReadingFailed as failed:
            error, failure = self._redact(failed.detail), failed.failure
        if error is not None:
            spent.raw = ""
        asked = Judgement(
            judge=self.name,
            model=self.model,
            order=(),
            prompt=text,
            prompt_digest=digest(text),
            error=error,
            failure=failure,
            latency_seconds=asyncio.get_running_loop().time() - began,
        )
        answered = spent.add_to(asked, self._config.prices)
        await self.record_spending(answered, hold)
        return answered

    async def _answer_within_deadline(
        self, request: JudgeRequest, messages: list[PromptMessage], spent: ReadingCost
    ) -> tuple[JudgeAnswer | None, str | None, JudgeFailure | None]:
        deadline = Deadline(self._config.deadline_seconds, self._config.queue_seconds)
        try:
            async with deadline:
                return await self._ask_with_correction(request, messages, deadline, spent), None, None
        except TimeoutError:
            before = f"; last error: {spent.trouble}" if spent.trouble else ""
            words = f"no usable answer within {self._config.deadline_seconds:g} s"
            if deadline.queueing:
                words = f"no call got through this judge's limits within {self._config.queue_seconds:g} s"
                if self._client.lease.trouble:
                    words += f", which all processes share: {self._client.lease.trouble}"
            return None, self._redact(words + before), "unavailable"
        except ReadingFailed as error:
            return None, self._redact(error.detail), error.failure

    async def _ask_with_correction(
        self, request: JudgeRequest, messages: list[PromptMessage], deadline: Deadline, spent: ReadingCost
    ) -> JudgeAnswer:
        """Retries once, with a list of the problems, when the first answer is invalid."""
        formed = None if request.wanted else request  # references have no schema
        answer = await self._parse_response(await self._client.ask(messages, formed, deadline, spent), request)
        # A refusal goes to the fallback at once. Without one the corrective question is the last chance.
        if isinstance(answer, UnusableAnswer) and self._has_fallback and is_refusal(spent.raw):
            raise build_refusal_error(spent.raw, self._config.role)
        if isinstance(answer, UnusableAnswer):
            spent.trouble = f"invalid answer: {'; '.join(answer.problems)}"
            messages += build_correction(spent.raw, answer.problems)
            answer = await self._parse_response(await self._client.ask(messages, formed, deadline, spent), request)
        if isinstance(answer, UnusableAnswer) and is_refusal(spent.raw):
            raise build_refusal_error(spent.raw, self._config.role)
        if isinstance(answer, UnusableAnswer):
            problems = "; ".join(answer.problems)
            raise ReadingFailed(f"invalid answer, also after the corrective retry: {problems}", "unusable")
        return answer

    async def _parse_response(self, reply: ChatResponse, request: JudgeRequest) -> JudgeAnswer | UnusableAnswer:
        parse = partial(_parse_response_text, reply, request, self._config)
        if len(reply.text) > _MOST_PARSED_ON_LOOP:
            answer = await asyncio.to_thread(parse)
        else:
            answer = parse()  # in the turn that the reply arrived in
        if isinstance(answer, UnusableAnswer) or not answer.is_whole:
            self._client.traits.record_format(reply)
        if reply.lacks_room and isinstance(answer, UnusableAnswer):
            room = self._client.traits.form.most_tokens
            raise ReadingFailed(
                f"the judge's thought used up the {room} tokens of its answer: raise max_output_tokens, or let it "
                "think less",
                "unusable",
            )
        # words behind an object say that it may have been a draft; blank space does not
        finished = reply.text.rstrip(" \t\r\n`").endswith("}")
        if reply.cut_off and (isinstance(answer, UnusableAnswer) or not finished):
            limit = self._client.traits.form.most_tokens
            problems = answer.problems if isinstance(answer, UnusableAnswer) else ()
            return UnusableAnswer((f"it was cut off after {limit} tokens: be shorter", *problems))
        return answer

    def _redact(self, words: str) -> str:
        return replace_surrogates(self._config.endpoint.credentials.redact(words))


def _parse_response_text(
    reply: ChatResponse, request: JudgeRequest, config: ChatJudgeConfig
) -> JudgeAnswer | UnusableAnswer:
    if request.wanted:
        written = parse_references(reply.text, request.wanted)
        return UnusableAnswer((written,)) if isinstance(written, str) else JudgeAnswer((), ())
    plain = parse_answer(reply.text, request)
    if not config.expected_scores or isinstance(plain, UnusableAnswer):
        return plain
    # What was written decides: with other numbers a quotation of a candidate is none, and a repeated verdict another.
    weighed = insert_expected_scores(reply.text, reply.tokens)
    answer = plain if weighed == reply.text else parse_answer(weighed, request)
    return answer if isinstance(answer, JudgeAnswer) else plain


def build_messages(prompt: JudgePrompt) -> list[PromptMessage]:
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]


# The cache.

_CLOSING_SECONDS: Final = 5.0
"""How long judgements in flight may take to finish and be stored at shutdown. They are paid for."""
REFRESH_SECONDS: Final = 5.0
"""How often the spending of other processes is loaded."""


class _CacheableJudge(Judge, ReportingJudge, Protocol):
    """A judge whose questions have a cache key, and whose cost is recorded separately from asking."""

    def build_question(self, request: JudgeRequest) -> JudgeQuestion: ...

    async def answer_question(self, question: JudgeQuestion, hold: str) -> Judgement: ...

    async def record_spending(self, judgement: Judgement, hold: str) -> None: ...

    async def refresh(self) -> None: ...

    async def close(self) -> None: ...


class WriteOnlyMemory(JudgeCache):
    """Stores judgements and costs but never returns a cached one: for measuring a judge as it is."""

    def __init__(self, memory: JudgeCache) -> None:
        self._memory = memory

    async def get(self, reading: str) -> CachedJudgement | None:
        return None

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        return await self._memory.put(judgement, hold)

    async def get_budget_state(self, judge: str) -> BudgetState:
        return await self._memory.get_budget_state(judge)

    async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
        return await self._memory.reserve(hold, budget)

    async def release(self, judge: str, hold: str) -> BudgetState:
        return await self._memory.release(judge, hold)

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        return await self._memory.exchange_limits(asked)


@dataclass
class _InflightReading:
    """A judgement in flight. Only the first caller gets its cost."""

    task: asyncio.Task[Judgement]
    accounted: bool = False


class CachingJudge:
    """Failures are never cached. A cached judgement that no stored group holds yet is returned with its full cost,
    since nobody has accounted for it: its process died, or its caller left before it arrived."""

    def __init__(self, judge: _CacheableJudge, memory: JudgeCache) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self.gives_rewards = gives_rewards(judge)
        self.writes = can_write(judge)
        self.pace = get_pace(judge)
        self._judge = judge
        self._memory = memory
        self._refreshing: asyncio.Task[None] | None = None
        self._under_way: dict[str, _InflightReading] = {}
        self._claimed: set[str] = set()
        self._hits = 0

    @property
    def repeats_itself(self) -> bool:
        return isinstance(self._judge, RepeatingJudge) and self._judge.repeats_itself

    def compute_most(self, input_tokens: int) -> float | None:
        return self._judge.compute_most(input_tokens) if isinstance(self._judge, PricedJudge) else None

    @property
    def longest_answer(self) -> int:
        return self._judge.longest_answer if isinstance(self._judge, PricedJudge) else 0

    async def open(self) -> None:
        """Loads the budget state. StoreUnavailable when it cannot be read."""
        await self._judge.refresh()
        self._refreshing = asyncio.create_task(self._refresh_periodically())

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        if self._under_way:
            _, late = await asyncio.wait([flight.task for flight in self._under_way.values()], timeout=_CLOSING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._judge.close()

    def report(self) -> JudgeReport:
        return self._judge.report().model_copy(update={"cache_hits": self._hits})

    async def answer_text(self, text: str) -> str | None:
        return await self._judge.answer_text(text) if isinstance(self._judge, AnsweringJudge) else None

    async def recall(self, request: JudgeRequest) -> Judgement | None:
        question = self._judge.build_question(request)
        recalled = await self._memory.get(question.cache_key)
        return None if recalled is None else self._use_recalled(recalled, question)

    async def judge(self, request: JudgeRequest) -> Judgement:
        await await_turn_at_judging()
        question = self._judge.build_question(request)
        reading = f"fresh {create_reservation_id()}" if request.fresh else question.cache_key  # fresh ones never meet
        flight = self._under_way.get(reading)
        if flight is None:
            flight = self._under_way[reading] = _InflightReading(asyncio.create_task(self._recall_or_ask(question)))
            flight.task.add_done_callback(lambda _: self._under_way.pop(reading, None))
        else:
            self._hits += 1
        # A caller who leaves ends no call: it is paid for, its answer is stored, and others may wait for it.
        judgement = await asyncio.shield(flight.task)
        await await_turn_at_judging()  # judgements are stored many at once, and reading each takes a while
        if flight.accounted:
            return judgement.without_cost
        flight.accounted = True
        if judgement.error is None and not request.fresh:
            self._claimed.add(reading)
        return judgement

    async def _recall_or_ask(self, question: JudgeQuestion) -> Judgement:
        try:
            fresh = question.request.fresh
            recalled = None if fresh else await self._memory.get(question.cache_key)
            if recalled is not None:
                return self._use_recalled(recalled, question)
            hold = create_reservation_id()
            judgement = (await self._judge.answer_question(question, hold)).model_copy(
                update={"reading": "" if fresh else question.cache_key}
            )
            await self._judge.record_spending(judgement, hold)
            return judgement
        except StoreUnavailable as error:
            return Judgement(
                judge=self.name,
                model=self.model,
                order=tuple(candidate.id for candidate in question.request.candidates),
                error=f"could not store the judgement: {error.detail}",
                failure="unavailable",
            )

    async def _refresh_periodically(self) -> None:
        """Picks up the spending of other replicas and of commands."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self._judge.refresh()

    def _use_recalled(self, recalled: CachedJudgement, question: JudgeQuestion) -> Judgement:
        self._hits += 1
        whole = recalled.judgement.model_copy(update={"prompt": question.prompt_text})
        return whole.without_cost if recalled.claimed or question.cache_key in self._claimed else whole


class FreshJudge:
    """Asks a judge past its cache, whose questions stay the same."""

    def __init__(self, judge: Judge) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self.pace = get_pace(judge)
        self.gives_rewards = gives_rewards(judge)
        self._judge = judge

    async def judge(self, request: JudgeRequest) -> Judgement:
        return await self._judge.judge(request.model_copy(update={"fresh": True}))


_VOTES_APART: Final = 1_000
"""More than there are votes on a question."""


class RepeatedJudge(FreshJudge):
    """Asks a judge once more what it has answered: the same prompts as further votes, so that the cache keeps both
    answers. `time` counts from 1."""

    def __init__(self, judge: Judge, time: int) -> None:
        super().__init__(judge)
        self._vote = time * _VOTES_APART

    async def judge(self, request: JudgeRequest) -> Judgement:
        return await self._judge.judge(request.model_copy(update={"vote": request.vote + self._vote}))


# A model that plays players.

_PLAYER: Final = "You play a part in a conversation. You answer with one JSON object and nothing else."


class ChatPlayer:
    """Asks a server for lines of a player, within limits and budgets of its own."""

    def __init__(self, config: ChatJudgeConfig, memory: JudgeCache, *, may_be_judge: bool) -> None:
        self.name = config.name
        self.model = config.model
        self.may_be_judge = may_be_judge
        self._chat = ChatJudge(config, memory)
        self._kept = CachingJudge(self._chat, memory)
        asked = [config.model, config.temperature, config.max_output_tokens, config.asked_besides, _PLAYER]
        self.version = digest(asked)[:12]

    async def ask(self, prompt: str) -> Judgement:
        return await self._chat.ask_text(prompt, _PLAYER)

    def report(self) -> JudgeReport:
        return self._kept.report()

    async def open(self) -> None:
        await self._kept.open()

    async def close(self) -> None:
        await self._kept.close()


# The fallback.

_PASSED_ON: Final[frozenset[JudgeFailure | None]] = frozenset(("refused", "unusable"))
"""Failures of the model itself. A fallback does not help with an unavailable server, a budget or a language."""


class JudgeWithFallback:
    """A judgement of the fallback names the fallback as its judge and keeps the first judgement. Failures other than
    _PASSED_ON do not use the fallback."""

    def __init__(self, first: CachingJudge, second: Judge) -> None:
        self.name = first.name
        self.model = first.model
        self.digest = digest([first.digest, sorted(map(str, _PASSED_ON)), second.digest])
        self._first = first
        self.fallback = second

    @property
    def pace(self) -> ReadingPace:
        return self._first.pace

    @property
    def repeats_itself(self) -> bool:
        return self._first.repeats_itself

    @property
    def writes(self) -> bool:
        return self._first.writes

    def compute_most(self, input_tokens: int) -> float | None:
        return self._first.compute_most(input_tokens)

    @property
    def longest_answer(self) -> int:
        return self._first.longest_answer

    async def open(self) -> None:
        await self._first.open()

    async def close(self) -> None:
        await self._first.close()

    def report(self) -> JudgeReport:
        return self._first.report()

    async def answer_text(self, text: str) -> str | None:
        return await self._first.answer_text(text)

    async def recall(self, request: JudgeRequest) -> Judgement | None:
        return await self._first.recall(request)

    async def judge(self, request: JudgeRequest) -> Judgement:
        judgement = await self._first.judge(request)
        if judgement.failure not in _PASSED_ON:
            return judgement
        instead = await self.fallback.judge(request)
        return instead.model_copy(update={"instead_of": (judgement,)})


# A memory without a store.


class InProcessMemory(JudgeCache):
    """Tracks spending but caches no judgements. Reservations never expire, since their owner lives as long as this
    process."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._total: defaultdict[str, Spending] = defaultdict(Spending)
        self._today: defaultdict[str, Spending] = defaultdict(Spending)
        self._day = now().date()
        self._holds: dict[str, Reservation] = {}
        self._limits: defaultdict[str, SharedLimits] = defaultdict(SharedLimits)

    async def get(self, reading: str) -> CachedJudgement | None:
        return None

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        self._start_new_day()
        self._total[judgement.judge] = self._total[judgement.judge].add_judgement(judgement)
        self._today[judgement.judge] = self._today[judgement.judge].add_judgement(judgement)
        return await self.release(judgement.judge, hold)

    async def get_budget_state(self, judge: str) -> BudgetState:
        return self._compute_state(judge)

    async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
        self._holds.pop(hold.id, None)
        admission = self._compute_state(hold.judge).admit(hold, budget)
        self._holds[hold.id] = hold if admission.admits == "now" else hold.without_call
        return admission

    async def release(self, judge: str, hold: str) -> BudgetState:
        self._holds.pop(hold, None)
        return self._compute_state(judge)

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        now = round(self._now().timestamp() * 1e6)
        self._limits[asked.judge], grant = exchange_limits(self._limits[asked.judge], asked, now)
        return grant

    def _compute_state(self, judge: str) -> BudgetState:
        self._start_new_day()
        state = BudgetState(self._total[judge], self._today[judge])
        for hold in self._holds.values():
            if hold.judge == judge:
                state = BudgetState(state.total, state.today, state.used + hold.used, state.open + hold.open)
        return state

    def _start_new_day(self) -> None:
        today = self._now().date()
        if today != self._day:
            self._day = today
            self._today.clear()


# The scripted judge.

Script = Callable[[JudgeRequest, int], Mapping[str, float] | str]
"""From a request and the number of earlier requests: a quality in [0, 1] per candidate id, or an error message."""

MODEL: Final = "scripted-1"


class ScriptedJudge:
    """Gives every criterion the script's quality, and ranks by it. `requests` records all requests."""

    model = MODEL

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self.name = name
        self.digest = digest([MODEL, name])
        self.requests: list[JudgeRequest] = []
        self._script = script

    async def judge(self, request: JudgeRequest) -> Judgement:
        answer = self._script(request, len(self.requests))
        self.requests.append(request)
        order = tuple(candidate.id for candidate in request.candidates)
        if isinstance(answer, str):
            return Judgement(judge=self.name, model=self.model, order=order, error=answer)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=tuple(
                Verdict(candidate=name, scores={criterion.name: answer[name] for criterion in request.rubric.criteria})
                for name in order
            ),
            ranking=rank_candidates({name: answer[name] for name in order}),
        )


def score_by_text(qualities: Mapping[str, float], otherwise: float = 0.0) -> Script:
    """A fixed quality per text, at any position."""
    return lambda request, _: {
        candidate.id: qualities.get(candidate.text, otherwise) for candidate in request.candidates
    }


def score_by_position(request: JudgeRequest, count: int) -> Mapping[str, float]:
    """Prefers earlier positions, regardless of the texts."""
    return {candidate.id: 1.0 / (slot + 1) for slot, candidate in enumerate(request.candidates)}


def score_equally(request: JudgeRequest, count: int) -> Mapping[str, float]:
    return {candidate.id: 0.5 for candidate in request.candidates}


def score_randomly(seed: int) -> Script:
    """Random qualities, repeatable by seed."""

    def score_request(request: JudgeRequest, count: int) -> Mapping[str, float]:
        order = "\n".join(candidate.text for candidate in request.candidates)
        chance = random.Random(f"{seed} {count} {digest_of_text(order)}")  # noqa: S311
        return {candidate.id: chance.random() for candidate in request.candidates}

    return score_request


def fail_requests(words: str = "the judge is out", first: int | None = None) -> Script:
    """Fails always, or only for the `first` requests and is indifferent afterwards."""
    return lambda request, count: words if first is None or count < first else score_equally(request, count)


def fail_requests_at(places: frozenset[int], otherwise: Script) -> Script:
    """Fails at the given requests, counted from 0."""
    return lambda request, count: "the judge is out" if count in places else otherwise(request, count)
