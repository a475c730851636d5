"""The line through replies of known level, and where those replies come from."""

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from app.domain.judging import Case, Judgement, JudgeRequest
from app.domain.scores import HIGHEST, LEVELS, LOWEST, ReferencePlan, fit_reference_line, is_drawn
from app.judges.modes import ask_for_references, parse_references
from tests.judges.scripted import build_rubric
from tests.support.tables import read_table


def squeeze(angle: float) -> float:
    """The score whose angle this is."""
    return 0.5 + 0.5 * math.sin(2.0 * angle - 1.0)


@dataclass
class Writer:
    name: str = "writer"
    model: str = "family/learner-7b"
    digest: str = "writer"
    writes: bool = True
    says: Mapping[str, str] = field(default_factory=dict)

    async def judge(self, request: JudgeRequest) -> Judgement:
        said = json.dumps({kind: self.says.get(kind, f"{kind} of {request.brief}") for kind in request.wanted})
        return Judgement(judge=self.name, model=self.model, order=(), raw=said)


CASE = Case(key="k", rubric=build_rubric("likeness"), document={}, candidates=("Well met.",))
POINTS = [(level, squeeze(0.3 + 0.5 * level)) for level in LEVELS.values()]


def test_scores_of_references_are_their_levels() -> None:
    line = fit_reference_line(POINTS)
    assert line is not None
    assert [round(line.calibrate(score).value, 9) for _, score in POINTS] == sorted(LEVELS.values())


def test_the_error_is_least_in_the_middle_and_follows_the_formula() -> None:
    line = fit_reference_line(POINTS)
    assert line is not None
    noise = math.sqrt(4 * 0.14**2 / 5)  # four usual residuals, and one of 0
    expected = [noise * math.sqrt(1 + 1 / 3 + (level - 0.5) ** 2 / 0.18) for level in (0.2, 0.5, 0.8)]
    assert [line.calibrate(score).error for _, score in POINTS] == pytest.approx(expected)


def test_far_beyond_the_references_values_are_cut_off_and_say_so() -> None:
    line = fit_reference_line([(level, squeeze(0.45 + 0.25 * level)) for level in LEVELS.values()])
    assert line is not None
    found = [line.calibrate(score) for score in (0.0, squeeze(0.575), 1.0)]
    assert [(one.value, one.is_bounded) for one in found] == [
        (LOWEST, True),
        (pytest.approx(0.5), False),
        (HIGHEST, True),
    ]


@pytest.mark.parametrize(
    "points",
    [
        [(level, 0.5) for level in LEVELS.values()],
        [(level, 1.0 - level) for level in LEVELS.values()],
        [(level, 0.5 + 0.1 * level) for level in LEVELS.values()],
        POINTS[:2],
    ],
)
def test_a_line_that_does_not_rise_says_nothing(points: list[tuple[float, float]]) -> None:
    assert fit_reference_line(points) is None


def test_the_draw_is_by_task_alone_and_grows_with_the_share() -> None:
    keys = [f"task {number}" for number in range(4000)]
    shares = (0.0, 0.025, 0.5, 1.0)
    drawn = [{key for key in keys if is_drawn(key, share)} for share in shares]
    assert [len(each) for each in (drawn[0], drawn[3])] == [0, 4000]
    assert all(fewer <= more for fewer, more in pairwise(drawn))
    assert [abs(len(each) / 4000 - share) < 0.02 for each, share in zip(drawn, shares, strict=True)] == [True] * 4


@pytest.mark.parametrize(("policy", "written"), [(None, True), ("another", True), ("family/learner-7b", False)])
def test_a_judge_writes_what_is_missing_but_never_the_policy_itself(policy: str | None, written: bool) -> None:
    plan = ReferencePlan(scene="s", given={"exemplar": "Aye."}, brief="the marsh")
    made = asyncio.run(ask_for_references([Writer()], plan, CASE, policy))
    replies = {"generic": "generic of the marsh", "plain": "plain of the marsh"}
    assert (None if made is None else made.replies) == (replies if written else None)


@pytest.mark.parametrize(
    ("says", "usable"),
    read_table(__file__, "written_references.yaml", list[tuple[dict[str, str], dict[str, str] | None]]),
)
def test_what_a_judge_wrote_is_kept_only_if_it_passes_the_gates_of_candidates(
    says: dict[str, str], usable: dict[str, str] | None
) -> None:
    plan = ReferencePlan(scene="s", given={"exemplar": "Aye, good sir."}, brief="fens")
    made = asyncio.run(ask_for_references([Writer(says=says)], plan, CASE, None))
    assert made is not None
    assert made.replies == usable


@pytest.mark.parametrize(
    "answer", ["I refuse.", "{}", '{"plain": "", "generic": "a"}', '{"plain": "a", "generic": "a "}', "[" * 99_999]
)
def test_an_answer_without_two_different_replies_is_not_used(answer: str) -> None:
    assert isinstance(parse_references(answer, ("generic", "plain")), str)
