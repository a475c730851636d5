"""A check asks at the judge's pace. Its clock jumps to what is due next."""

import asyncio
import selectors
from dataclasses import dataclass

import pytest

from app.cli.judges import build_questions, load_packaged_specimens
from app.domain.judging import JudgeFailure, Judgement, JudgeRequest
from app.judges.chat_judge import ScriptedJudge, score_by_position
from app.judges.gold_cases import load_packaged_templates, sample_one_per_character
from app.judges.meta_evaluation import CheckReport, CheckRules, answers_too_seldom, build_report, measure_judge
from tests.judges.test_perturbations import knowing
from tests.support.tables import read_table

DEADLINE = 60.0


class JumpingClock(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = JumpingClock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


@dataclass(frozen=True)
class Server:
    """Answers so many questions at once, each in `seconds`. The others wait."""

    seconds: float
    at_once: int
    failure: JudgeFailure | None = None
    """Of every answer."""
    calls: int = 1
    refuses: int | None = None
    """The number of a question that it refuses whenever it is asked."""
    prefers_places: bool = False


class ServedJudge:
    name = "served"
    model = "served-1"
    digest = "d"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.free = asyncio.Semaphore(server.at_once)
        self.asked: list[JudgeRequest] = []
        self.scripted = ScriptedJudge(score_by_position if server.prefers_places else knowing)

    async def judge(self, request: JudgeRequest) -> Judgement:
        self.asked.append(request)
        refused = [] if self.server.refuses is None else self.asked[self.server.refuses :][:1]
        if request in refused:
            return self.fail("unavailable", 0.0)
        try:
            async with asyncio.timeout(DEADLINE), self.free:
                await asyncio.sleep(self.server.seconds)
        except TimeoutError:
            return self.fail("unavailable", DEADLINE)
        if self.server.failure is not None:
            return self.fail(self.server.failure, self.server.seconds)
        return await self.scripted.judge(request)

    def fail(self, failure: JudgeFailure, seconds: float) -> Judgement:
        return Judgement(
            judge=self.name,
            model=self.model,
            order=(),
            error=f"it is {failure}",
            failure=failure,
            calls=self.server.calls,
            latency_seconds=seconds,
        )


@dataclass(frozen=True)
class Case:
    server: Server
    minutes: tuple[float, float]
    """What the check takes, at least and at most."""
    passed: bool = False
    settled: str | None = None
    stopped: str | None = None
    failures: tuple[str, ...] = ()
    calls_in_time: int | None = None


CASES = read_table(__file__, "check_pace.yaml", dict[str, Case])


def check(server: Server) -> tuple[CheckReport, float]:
    """The report, and the minutes that it took."""
    chosen = sample_one_per_character(load_packaged_specimens(), 4, 0)
    questions = build_questions(chosen, load_packaged_templates())
    rules = CheckRules(deadline_seconds=DEADLINE, patience_seconds=60.0)

    async def ask() -> tuple[CheckReport, float]:
        judge = ServedJudge(server)
        report = build_report(judge.name, judge.model, await measure_judge(judge, questions, rules), rules)
        return report, asyncio.get_running_loop().time() / 60

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(ask())


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_the_same_at_any_pace_and_comes_early_where_it_is_clear(name: str) -> None:
    case = CASES[name]
    report, minutes = check(case.server)
    found = Case(
        case.server,
        case.minutes if case.minutes[0] <= minutes <= case.minutes[1] else (minutes, minutes),
        report.passed,
        report.settled,
        report.stopped,
        report.failures,
        report.calls_in_time,
    )
    assert found == case


def test_a_few_failures_are_no_outcome() -> None:
    counts = (1, 2, 3, 10, 100, 427)
    fewest = [next((failed for failed in range(count + 1) if answers_too_seldom(failed, count)), 0) for count in counts]
    assert fewest == [0, 0, 3, 5, 14, 37]
