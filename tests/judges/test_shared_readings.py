"""How the readings of a list are shared out: over judges, orders and forms, and when they end."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.judging import Case, Judgement, JudgeRequest, PanelResult
from app.judges.chat_judge import Script, ScriptedJudge, fail_requests, score_by_position, score_by_text
from app.judges.panel import JudgePanel
from app.ports.judges import ReadingPace
from tests.judges.scripted import build_rubric

RUBRIC = build_rubric("likeness")
TEXTS = tuple(f"reply {number:02}" for number in range(20))
FAIR = score_by_text({text: 1.0 - place / 20 for place, text in enumerate(TEXTS)})
LEANING = score_by_position
"""Never settles an order."""


class PacedJudge(ScriptedJudge):
    """Counts how many of its readings are under way at once."""

    def __init__(self, script: Script, pace: ReadingPace, name: str = "paced") -> None:
        super().__init__(script, name)
        self.pace = pace
        self.most_at_once = self._under_way = 0

    async def judge(self, request: JudgeRequest) -> Judgement:
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        await asyncio.sleep(0.001)
        self._under_way -= 1
        return await super().judge(request)


def judged(judges: Sequence[ScriptedJudge], size: int, readings: int = 4) -> PanelResult:
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=TEXTS[:size])
    return asyncio.run(JudgePanel(judges, 0.5, readings=readings).judge(case))


def team(size: int, script: Script = FAIR) -> list[ScriptedJudge]:
    return [ScriptedJudge(script, f"judge {number}") for number in range(size)]


def orders(judges: Sequence[ScriptedJudge]) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (request.mode, tuple(candidate.text for candidate in request.candidates))
        for judge in judges
        for request in judge.requests
    ]


@pytest.mark.parametrize(
    ("judges", "readings", "script", "each"),
    [
        (1, 4, FAIR, [2]),
        (1, 4, LEANING, [4]),
        (1, 2, LEANING, [2]),
        (1, 1, LEANING, [1]),
        (2, 4, FAIR, [1, 1]),
        (2, 4, LEANING, [2, 2]),
        (3, 4, LEANING, [1, 1, 2]),
        (4, 4, LEANING, [1, 1, 1, 1]),
        (5, 4, LEANING, [1, 1, 1, 1, 2]),
        (3, 1, LEANING, [1, 1, 1]),
        (2, 8, LEANING, [4, 4]),
    ],
)
def test_every_judge_reads_once_and_orders_are_shared(
    judges: int, readings: int, script: Script, each: list[int]
) -> None:
    asked = team(judges, script)
    judged(asked, 5, readings)
    shown = orders(asked)
    mirrors = {(mode, order[::-1]) for mode, order in shown}
    assert sorted(len(judge.requests) for judge in asked) == each
    assert readings == 1 or set(shown) == mirrors


@pytest.mark.parametrize(("judges", "forms"), [(1, ["listwise"] * 2 + ["pairwise"] * 2), (2, ["listwise"] * 4)])
def test_two_replies_are_never_put_in_the_same_way_twice_to_a_judge(judges: int, forms: list[str]) -> None:
    asked = team(judges, LEANING)
    judged(asked, 2)
    assert [mode for mode, _ in orders(asked)] == forms
    assert all(len(set(orders([judge]))) == len(judge.requests) for judge in asked)


def test_what_one_judge_fails_at_another_reads() -> None:
    fair, broken = ScriptedJudge(FAIR, "fair"), ScriptedJudge(fail_requests(), "broken")
    result = judged([fair, broken], 5)
    alone = judged([ScriptedJudge(FAIR, "fair")], 5)
    assert [(score.reward, score.judges) for score in result.scores] == [
        (score.reward, ("fair",)) for score in alone.scores
    ]
    assert {score.flags for score in result.scores} == {("judge_missing",)}
    assert (len(fair.requests), len(broken.requests)) == (2, 1)


@pytest.mark.parametrize(("largest", "sizes"), [(16, {16}), (20, {20}), (8, {8})])
def test_a_question_holds_as_many_replies_as_the_judge_manages(largest: int, sizes: set[int]) -> None:
    judge = PacedJudge(FAIR, ReadingPace(largest_group=largest))
    scores = judged([judge], 16 if largest == 16 else 20).scores
    assert max(len(request.candidates) for request in judge.requests) == max(sizes)
    standings = [score.relative or 0.0 for score in scores]
    assert standings == sorted(standings, reverse=True)


def test_a_panel_asks_for_as_many_as_its_weakest_judge_manages() -> None:
    asked = [PacedJudge(FAIR, ReadingPace(largest_group=size), f"judge {size}") for size in (16, 8)]
    judged(asked, 16)
    assert {max(len(request.candidates) for request in judge.requests) for judge in asked} == {8}


@pytest.mark.parametrize(("warms", "most"), [(True, 1), (False, 2)])
def test_the_first_reading_goes_ahead_where_it_warms_the_cache(warms: bool, most: int) -> None:
    judge = PacedJudge(FAIR, ReadingPace(warms_cache=warms))
    judged([judge], 5)
    assert judge.most_at_once == most
