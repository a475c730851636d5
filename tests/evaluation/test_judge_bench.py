"""Figures of a bench, from what a panel says of labelled groups."""

from collections.abc import Sequence
from datetime import date
from typing import get_args

import pytest

from app.domain.judging import JudgeFailure, Judgement, PanelResult
from app.domain.scores import Score
from app.evaluation.agreement import AgreementFigure
from app.evaluation.judge_bench import (
    FIGURE_NAMES,
    BenchFigures,
    BenchReport,
    build_figures,
    get_headline,
    list_measured_figures,
    list_published_figures,
    measure_baselines,
)
from app.evaluation.labelled_groups import LabelledGroup, LabelledReply, RowForm
from tests.support.tables import read_table

Case = tuple[str, tuple[float, ...], tuple[float | None, ...], tuple[str, ...], dict[str, float | None]]
CASES = read_table(__file__, "judge_bench.yaml", list[Case])
NAMES = "abcd"


def labelled(labels: Sequence[float], subset: str = "", number: int = 0) -> LabelledGroup:
    replies = tuple(LabelledReply(text="long" * (9 - place), label=label) for place, label in enumerate(labels))
    return LabelledGroup(id=str(number), environment="rlaif", draft={}, replies=replies, subset=subset)


def judged(rewards: Sequence[float | None], readings: Sequence[str]) -> PanelResult:
    """`readings`: `ab:a>b` was shown a before b and ranked a first, `ab:a=b` is a tie, a failure has no ranking."""
    scores = tuple(
        Score.unscored("judge_failed").model_copy(update={"candidate": name})
        if reward is None
        else Score(outcome="scored", reward=reward, candidate=name)
        for name, reward in zip(NAMES, rewards, strict=False)
    )
    return PanelResult(scores=scores, judgements=tuple(map(_read, readings)))


def _read(reading: str) -> Judgement:
    order, _, ranking = reading.partition(":")
    if ranking in get_args(JudgeFailure):
        return Judgement.model_validate(
            {"judge": "j", "model": "m", "order": tuple(order), "error": "it failed", "failure": ranking}
        )
    tiers = tuple(tuple(tier.split("=")) for tier in ranking.split(">"))
    return Judgement(judge="j", model="m", order=tuple(order), ranking=tiers, latency_seconds=2.0)


@pytest.mark.parametrize(("_", "labels", "rewards", "readings", "wanted"), CASES)
def test_one_group(
    _: str,
    labels: Sequence[float],
    rewards: Sequence[float | None],
    readings: Sequence[str],
    wanted: dict[str, float | None],
) -> None:
    found = build_figures([labelled(labels)], [judged(rewards, readings)], "listwise", 0)
    assert {name: getattr(found, name).value for name in wanted} == wanted


def test_a_subset_with_several_right_replies_is_measured_apart() -> None:
    groups = [labelled((1, 0, 0), "Focus"), labelled((1, 1, 0), "Ties"), labelled((1, 0, 0), "Ties")]
    results = [judged(rewards, ()) for rewards in ((0.9, 0.1, 0.2), (0.9, 0.1, 0.2), (0.9, 0.1, 0.2))]
    found = build_figures(groups, results, "pointwise", 0, "best_of")
    subsets = {name: (figure.value, figure.trials) for name, figure in found.subsets.items()}
    values = [(one.value, one.trials) for one in (found.best_of, found.all_right)]
    assert (values, subsets) == ([(1.0, 1), (0.5, 2)], {"Focus": (1.0, 1), "Ties": (0.5, 2)})


def test_repeats_are_compared_with_the_first_time() -> None:
    groups = [labelled((1, 0)), labelled((1, 0))]
    first = [judged((0.9, 0.1), ()), judged((0.9, 0.1), ())]
    again = [judged((0.8, 0.2), ()), judged((0.1, 0.9), ())]
    unscored = [judged((None, None), ()), judged((0.5, 0.5), ())]
    found = build_figures(groups, first, "listwise", 0, repeats=[again, unscored])
    assert (found.self_agreement.value, found.self_agreement.trials) == (0.5, 2)
    assert found.retest == pytest.approx(-0.005 / 0.265)


def test_judges_without_understanding_stand_beside() -> None:
    """The first reply of each group is the longest."""
    groups = [labelled((1, 0, 0, 0)), labelled((0, 1, 0, 0)), labelled((1, 0))]
    found = measure_baselines(groups, 0)
    assert (found.constant_best_of, found.longer_best_of.value) == (0.25, 0.5)
    assert found.longer_pair_accuracy.value == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert found.most_frequent_label == 0.7


def test_published_figures_name_a_form_a_measure_and_a_source() -> None:
    """A figure beside one of ours is the same measure."""
    listed = [one for form in get_args(RowForm) for one in list_published_figures(form)]
    ours = {*FIGURE_NAMES}
    assert {one.figure for one in listed if one.figure in BenchFigures.model_fields} <= ours
    assert [one for one in listed if not (0 < one.value < 1 and one.source and one.date < date(2026, 12, 1))] == []
    assert {one.form for one in listed} >= {
        "judgebench",
        "characterbench",
        "rewardbench2",
        "personaeval",
        "rolermbench",
    }


def test_what_is_kept_has_a_value_and_what_to_hold_it_against() -> None:
    groups = [labelled((1, 0)), labelled((0, 1))]
    figures = build_figures(groups, [judged((0.9, 0.1), ("ab:a>b", "ba:a>b"))] * 2, "listwise", 0)
    report = BenchReport(
        judge="j",
        model="m",
        labels="l",
        form="judgebench",
        headline=get_headline("judgebench"),
        left_out={},
        baselines=measure_baselines(groups, 0),
        modes=(figures,),
    )
    kept = {one.name: (one.value, one.trials, one.beside) for one in list_measured_figures(report)}
    assert kept == {
        "pair accuracy": (0.5, 2, "all equal: 0.500; longer reply: 0.500"),
        "consistent accuracy": (0.5, 2, "all equal: 0.000"),
        "swap consistency": (1.0, 2, ""),
        "unusable readings": (0.0, 4, ""),
    }
    assert AgreementFigure() == figures.best_of
