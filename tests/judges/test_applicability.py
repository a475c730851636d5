"""Criteria that a judge leaves out: a reward is of the same criteria for every reply of a group."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from app.domain.judging import Case, Judgement, JudgeRequest, Mode
from app.domain.scores import Score
from app.judges.chat_judge import ScriptedJudge, score_by_text
from app.judges.panel import JudgePanel
from tests.judges.scripted import ChangedJudge, Update, build_rubric

RUBRIC = build_rubric("likeness", "charm")
ONE, OTHER, THIRD = "the first reply", "another reply", "some third reply"
Scores = Mapping[str, float | None]


class Particular(ScriptedJudge):
    """Scores of a text as they stand in `listed`, vote by vote; a request for several texts is answered by the first
    of them that is listed."""

    def __init__(self, listed: Mapping[str, Sequence[Scores]]) -> None:
        super().__init__(score_by_text({ONE: 0.8, OTHER: 0.4}))
        self._listed = listed

    async def judge(self, request: JudgeRequest) -> Judgement:
        judgement = await super().judge(request)
        listed = [self._listed[each.text] for each in request.candidates if each.text in self._listed]
        if not listed:
            return judgement
        scores = listed[0][request.vote % len(listed[0])]
        verdicts = tuple(verdict.model_copy(update={"scores": scores}) for verdict in judgement.verdicts)
        return judgement.model_copy(update={"verdicts": verdicts})


def scored(judge: ScriptedJudge, mode: Mode, *texts: str, votes: int = 1) -> tuple[Score, ...]:
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=texts)
    return asyncio.run(JudgePanel((judge,), 0.0, mode, votes).judge(case)).scores


def parts(scores: Sequence[Score]) -> list[tuple[float | None, list[tuple[float | None, float]]]]:
    return [(score.reward, [(each.value, each.weight) for each in score.criteria]) for score in scores]


def test_a_criterion_left_out_for_one_reply_counts_for_none() -> None:
    """Read one by one, where no reading can contradict itself."""
    judge = Particular({ONE: [{"likeness": 0.5, "charm": None}]})
    assert parts(scored(judge, "pointwise", ONE, OTHER)) == [
        (0.5, [(0.5, 1.0), (None, 0.0)]),
        (0.4, [(0.4, 1.0), (None, 0.0)]),
    ]


def test_one_vote_with_a_number_is_enough() -> None:
    judge = Particular({ONE: [{"likeness": 0.5, "charm": None}, {"likeness": 0.5, "charm": 1.0}]})
    assert parts(scored(judge, "pointwise", ONE, OTHER, votes=2)) == [
        (0.75, [(0.5, 0.5), (1.0, 0.5)]),
        (0.4, [(0.4, 0.5), (0.4, 0.5)]),
    ]


def test_votes_are_compared_by_what_each_scores_for_all() -> None:
    """In the first vote charm would put the other reply first; it is not scored for both there."""
    judge = Particular(
        {
            ONE: [{"likeness": 0.5, "charm": None}, {"likeness": 0.5, "charm": 1.0}],
            OTHER: [{"likeness": 0.25, "charm": 1.0}, {"likeness": 0.25, "charm": 0.5}],
        }
    )
    assert [score.flags for score in scored(judge, "pointwise", ONE, OTHER, votes=2)] == [(), ()]


def test_pairs_that_differ_about_a_criterion_leave_it_out() -> None:
    judge = Particular({ONE: [{"likeness": 0.5, "charm": None}]})
    assert parts(scored(judge, "pairwise", ONE, OTHER, THIRD)) == [
        (0.5, [(0.5, 1.0), (None, 0.0)]),
        (pytest.approx(0.45), [(pytest.approx(0.45), 1.0), (None, 0.0)]),
        (0.25, [(0.25, 1.0), (None, 0.0)]),
    ]


def test_nothing_in_common_is_no_score() -> None:
    judge = Particular({ONE: [{"likeness": 0.5, "charm": None}], OTHER: [{"likeness": None, "charm": 0.5}]})
    assert [(score.reason, score.rationale) for score in scored(judge, "pointwise", ONE, OTHER)] == [
        ("judge_failed", "scripted: no criterion has a score for every reply")
    ] * 2


def test_a_reading_that_differs_within_itself_is_no_reading() -> None:
    def leave_out(made: Judgement, number: int) -> Update:
        first, *rest = made.verdicts
        return {"verdicts": (first.model_copy(update={"scores": {**first.scores, "charm": None}}), *rest)}

    uneven = ChangedJudge(score_by_text({}), whole=leave_out)
    assert [score.rationale for score in scored(uneven, "listwise", ONE, OTHER)] == [
        "scripted: scored a criterion for some candidates only"
    ] * 2
