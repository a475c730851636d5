"""Judges on the wire: how much they are asked at once, what they may cost, when they are left alone."""

import asyncio
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from app.domain import judge_limits
from app.domain.budgets import BudgetConfig
from app.domain.judging import Candidate, Judgement, JudgeRequest, Probes
from app.judges import judge_client as line
from app.judges import limits as breaker
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import ChatJudgeConfig, TokenPrices
from tests.support.chat_server import Received, Reply, serving
from tests.support.event_loop import closed_after
from tests.support.judge_cases import BAD, GOOD, REQUEST, always, completion, config, failure, first
from tests.support.tables import read_table

PRICES = TokenPrices(2.0, 10.0)
"""A reading of the test servers, which count 1000 tokens read and 200 written, costs 0.004 dollars."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


def asked(number: int) -> JudgeRequest:
    """Requests that differ."""
    return REQUEST.model_copy(update={"document": {"number": number}})


async def readings(judge: ChatJudge, numbers: Sequence[int]) -> list[Judgement]:
    return list(await asyncio.gather(*(judge.judge(asked(number)) for number in numbers)))


@dataclass
class Busy:
    """A server that notices how many calls are under way at once."""

    seconds: float = 0.05
    most: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, number: int, received: Received) -> Reply:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        return completion(GOOD)


async def made(chosen: ChatJudgeConfig, *waves: Sequence[int], pause: float = 0.0) -> tuple[ChatJudge, list[Judgement]]:
    """Each wave's readings at once, one wave after the other."""
    found: list[Judgement] = []
    async with closed_after(ChatJudge(chosen)) as judge:
        for wave in waves:
            found += await readings(judge, wave)
            await asyncio.sleep(pause)
    return judge, found


async def test_429_makes_the_limit_smaller() -> None:
    with serving(first(failure(429), failure(429), failure(429))) as server:
        judge, found = await made(config(server.url, max_concurrency=10), range(5))
    assert ([judgement.error for judgement in found], judge.report().limit) == ([None] * 5, 8)
    assert judge.report().last_error == "the judge's server answered 429"


async def test_waiting_for_a_limit_does_not_use_up_the_deadline() -> None:
    with serving(Busy(seconds=0.2)) as server:
        _, found = await made(config(server.url, max_concurrency=1, deadline_seconds=0.5), range(5))
    assert [judgement.error for judgement in found] == [None] * 5
    assert max(judgement.latency_seconds for judgement in found) > 0.9


async def test_nor_does_it_last_for_ever() -> None:
    with serving(Busy(seconds=0.6)) as server:
        judge, found = await made(config(server.url, max_concurrency=1, queue_seconds=0.2), range(2))
    errors = sorted(judgement.error or "" for judgement in found)
    assert errors == ["", "no call got through this judge's limits within 0.2 s"]
    assert (judge.report().in_flight, judge.report().queued) == (0, 0)


async def test_requests_keep_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_limits, "BURST_SECONDS", 0.0)
    with serving(always(completion(GOOD))) as server:
        began = time.monotonic()
        _, found = await made(config(server.url, requests_per_minute=1200), range(6))
    assert [judgement.error for judgement in found] == [None] * 6
    assert time.monotonic() - began >= 0.2


async def test_a_judge_that_is_down_is_left_alone_and_then_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "BURST_SECONDS", 0.0)
    with serving(always(failure(500))) as server:
        judge, found = await made(config(server.url, breaker_failures=3, breaker_seconds=60.0), (0,), (1, 2))
    words = "open after 3 consecutive failures; next attempt at 20"
    told = [(judgement.calls, words in (judgement.error or "")) for judgement in found]
    assert told == [(3, True), (0, True), (0, True)]
    assert (len(server.received), judge.report().health) == (3, "out")


CHARGED_CALLS = read_table(__file__, "charged_calls.yaml", dict[str, tuple[Reply, int, int]])


@pytest.mark.parametrize(("reply", "calls", "unanswered"), CHARGED_CALLS.values(), ids=CHARGED_CALLS)
async def test_calls_that_may_have_been_charged_show_apart_and_count(reply: Reply, calls: int, unanswered: int) -> None:
    """Two servers would charge for a call of which nothing came; what they say no to costs nothing."""

    def script(number: int, received: Received) -> Reply:
        return reply if number < calls else completion(GOOD)

    with serving(script) as server:
        chosen = config(server.url, prices=PRICES, budget=BudgetConfig(usd=1.0), deadline_seconds=0.6)
        judge, found = await made(chosen, (0,))
    [judgement] = found
    report = judge.report()
    apart = (judgement.unanswered_calls, judgement.unanswered_tokens > 0, judgement.unanswered_usd > 0)
    spent = report.spent
    assert apart == (unanswered, unanswered > 0, unanswered > 0)
    assert (spent.unanswered_calls, spent.unanswered_usd) == (unanswered, judgement.unanswered_usd)
    assert spent.cost_usd == (judgement.cost_usd or 0.0)
    assert report.budget_left_usd == pytest.approx(1.0 - spent.cost_usd - spent.unanswered_usd)


def refusing_forms(number: int, received: Received) -> Reply:
    """A server that knows no form at all, and says so in its own words."""
    return failure(400, "unknown field") if "response_format" in received.body else completion(GOOD)


async def test_a_server_that_knows_no_form_is_asked_without_from_then_on() -> None:
    with serving(refusing_forms) as server:
        _, found = await made(config(server.url, json_mode="schema"), (0,), (1,))
    forms = [
        body.get("type") if isinstance(body := received.body.get("response_format"), dict) else None
        for received in server.received
    ]
    assert forms == ["json_schema", "json_object", None, None]
    assert [(judgement.calls, judgement.error) for judgement in found] == [(3, None), (1, None)]


async def test_a_request_that_is_wrong_in_itself_weakens_no_form() -> None:
    def script(number: int, received: Received) -> Reply:
        return failure(400, "too long") if "number: 0" in received.messages[1]["content"] else completion(GOOD)

    with serving(script) as server:
        _, found = await made(config(server.url), (0,), (1,), (0,))
    assert [(judgement.calls, judgement.error is None) for judgement in found] == [(2, False), (1, True), (1, False)]
    assert "response_format" in server.received[2].body


async def test_the_schema_names_the_candidates_and_criteria() -> None:
    with serving(always(completion(GOOD))) as server:
        await made(config(server.url, json_mode="schema", token_parameter="max_completion_tokens"), (0,))
    body = server.received[0].body
    form = body["response_format"]
    assert isinstance(form, dict)
    schema = form["json_schema"]["schema"]
    parts, letters = schema["properties"], ["A", "B", "C"]
    scores = {name: [*each["anyOf"][0]["properties"]] for name, each in parts["scores"]["properties"].items()}
    assert scores == {"likeness": letters, "charm": letters}
    assert parts["defects"]["items"]["properties"]["candidate"]["enum"] == [*parts["notes"]["properties"]] == letters
    assert schema["required"] == ["defects", "scores", "ranking", "notes"]
    assert (body["max_completion_tokens"], "max_tokens" in body) == (500, False)


def test_readings_are_told_apart_by_all_that_matters() -> None:
    def reading(request: JudgeRequest = REQUEST, url: str = "http://127.0.0.1:1/v1", **more: object) -> str:
        return ChatJudge(config(url, **more)).build_question(request).cache_key

    renamed = tuple(each.model_copy(update={"id": f"of another {each.id}"}) for each in REQUEST.candidates)
    changes: Sequence[Mapping[str, object]] = [
        *({"candidates": (Candidate(id="A", text="else"),)}, {"candidates": REQUEST.candidates[::-1]}),
        *({"candidates": renamed}, {"vote": 1}, {"document": {}}, {"probes": Probes(notes="x")}),
    ]
    changed = {
        *(reading(REQUEST.model_copy(update=change)) for change in changes),
        *(reading(url="http://127.0.0.1:2/v1"), reading(name="other")),
        *(reading(model="other"), reading(temperature=0.5)),
    }
    assert len({reading(), *changed}) == 11
    assert reading() == reading(deadline_seconds=9.0, max_concurrency=1, prices=PRICES)


def cheap(reply: Reply) -> Reply:
    """Of few tokens, beside the 2,100 that a call may take at most."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    return Reply(json.dumps(json.loads(reply.body) | {"usage": usage}).encode())


@pytest.mark.parametrize("trouble", [cheap(BAD), failure(500)], ids=["unusable", "500"])
async def test_who_must_ask_again_and_who_waits_for_the_budget_do_not_wait_for_one_another(trouble: Reply) -> None:
    """One call at a time, and tokens for no second one beside it."""

    def script(number: int, received: Received) -> Reply:
        return trouble if number == 0 else cheap(completion(GOOD))

    with serving(script) as server:
        chosen = config(server.url, max_concurrency=1, queue_seconds=2.0, budget=BudgetConfig(tokens=3_500))
        _, found = await made(chosen, range(2))
    assert [judgement.error for judgement in found] == [None, None]


async def test_who_stood_in_line_does_not_ask_before_the_time() -> None:
    """A server that asks to be left alone is left alone, also by those who were already waiting for their turn."""
    arrived: list[float] = []

    def script(number: int, received: Received) -> Reply:
        arrived.append(time.monotonic())
        return replace(failure(429, retry_after="0.5"), seconds=0.1) if number == 0 else completion(GOOD)

    with serving(script) as server:
        _, found = await made(config(server.url, max_concurrency=1), range(4))
    assert ([judgement.error for judgement in found], len(arrived)) == ([None] * 4, 5)
    assert arrived[1] - arrived[0] >= 0.6
