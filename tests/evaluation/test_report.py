"""What a report makes of attempts, worked out by hand."""

from statistics import fmean

import pytest
from pydantic import ValidationError

from app.evaluation.report import (
    Attempt,
    Caution,
    Cost,
    Counts,
    FlagRow,
    LengthRow,
    MeanEstimate,
    Resampler,
    TaskRow,
    UnscoredRow,
    build_report,
)
from tests.support.evaluations import evaluation, rewarded, scored, task_id, unscored

ATTEMPTS = [
    scored(0, 0, 1.0, label="cy", flags=("truncated",), characters=10, input_tokens=100, output_tokens=10),
    scored(0, 1, 0.5, label="cy", characters=30, input_tokens=100, output_tokens=40, seconds=0.5),
    scored(1, 0, 0.0, label="ada", flags=("truncated", "late"), characters=20),
    unscored(1, 1, label="ada", flags=("late",), seconds=1.0),
    unscored(2, 0, "policy_failed", label="ada"),
    unscored(2, 1, label="ada"),
]
MIXED = evaluation(ATTEMPTS, threshold=0.5, input_price=2.0, output_price=10.0)
REPORT = build_report(MIXED)


def test_every_mean_is_over_tasks_and_leaves_out_what_has_no_score() -> None:
    resampler = Resampler(0)
    assert (REPORT.mean, REPORT.counts, REPORT.if_unscored) == (
        resampler.estimate([0.75, 0.0]),
        Counts(tasks=3, asked=6, made=6, scored=3, unscored=3, passed=2),
        (0.25, 0.75),
    )


def test_pass_at_k_needs_k_scored_attempts() -> None:
    assert [(each.k, each.rate.value, each.rate.tasks, each.left_out) for each in REPORT.passes] == [
        (1, 0.5, 2, 1),
        (2, 1.0, 1, 2),
    ]


def test_criteria_and_labels_have_rows_of_their_own() -> None:
    assert [(row.name, row.attempts, row.mean.value, row.mean.tasks, row.passed.value) for row in REPORT.labels] == [
        ("ada", 1, 0.0, 1, 0.0),
        ("cy", 2, 0.75, 1, 1.0),
    ]
    assert [(row.name, row.attempts, row.mean.value, row.passed) for row in REPORT.criteria] == [
        ("correct", 3, 0.375, MeanEstimate())
    ]


def test_a_criterion_that_did_not_apply_does_not_count() -> None:
    attempts = [
        scored(0, 0, 0.2, criteria={"lore": None, "voice": 0.4}),
        scored(0, 1, 0.2, criteria={"lore": 0.8, "voice": 0.6}),
        scored(1, 0, 0.2, criteria={"lore": None, "voice": 1.0, "extra": 0.0}),
    ]
    report = build_report(evaluation(attempts, criteria=("voice", "lore", "never")))
    assert [(row.name, row.attempts, row.mean.tasks, row.mean.value) for row in report.criteria] == [
        ("voice", 3, 2, 0.75),
        ("lore", 1, 1, 0.8),
        ("extra", 1, 1, 0.0),
    ]


def test_flags_reasons_and_tasks_are_counted() -> None:
    assert (REPORT.flags, REPORT.unscored, REPORT.tasks) == (
        (
            FlagRow(flag="late", attempts=2, tasks=1, share=2 / 6, mean=0.0),
            FlagRow(flag="truncated", attempts=2, tasks=2, share=2 / 6, mean=0.5),
        ),
        (
            UnscoredRow(reason="judge_failed", attempts=2, tasks=2, detail="it did not answer"),
            UnscoredRow(reason="policy_failed", attempts=1, tasks=1, detail="it did not answer"),
        ),
        (
            TaskRow(task_id=task_id(0), place=0, label="cy", scored=2, passed=2, reward=0.75),
            TaskRow(task_id=task_id(1), place=1, label="ada", scored=1, passed=0, reward=0.0),
            TaskRow(task_id=task_id(2), place=2, label="ada", scored=0, passed=0, reward=None),
        ),
    )


def test_a_cost_of_which_half_is_unknown_is_unknown() -> None:
    half = build_report(evaluation(ATTEMPTS, input_price=2.0), Resampler(0, 10))
    assert (half.cost.input_tokens, half.cost.model_usd) == (200, None)


def test_lengths_and_cost_are_of_what_was_counted() -> None:
    assert (REPORT.lengths, REPORT.cost) == (
        (
            LengthRow(name="all", attempts=3, lower=15, median=20, upper=25, longest=30, output_tokens=25.0),
            LengthRow(name="passed", attempts=2, lower=15, median=20, upper=25, longest=30, output_tokens=25.0),
            LengthRow(name="not passed", attempts=1, lower=20, median=20, upper=20, longest=20, output_tokens=None),
        ),
        Cost(
            input_tokens=200,
            output_tokens=50,
            uncounted=4,
            model_usd=0.0009,
            judging_usd=None,
            seconds=1.5,
            line_seconds=(0.75, 0.975),
            line_tokens=(25.0, 38.5),
            prompt_tokens=(100.0, 100.0),
        ),
    )


def test_rewards_are_counted_by_tenths_and_one_apart() -> None:
    report = build_report(rewarded({0: (0.0, 0.05, 1 - 0.9), 1: (0.3, 0.7, 0.999), 2: (1.0, 1.0, 0.6)}))
    assert report.histogram == (2, 1, 0, 1, 0, 0, 1, 1, 0, 1, 2)


def test_examples_are_of_different_tasks() -> None:
    report = build_report(rewarded({place: (place / 10, place / 10 + 0.05) for place in range(8)}, threshold=0.4))
    assert ([(one.place, one.sample) for one in report.worst], [(one.place, one.sample) for one in report.best]) == (
        [(0, 0), (1, 0), (2, 0), (3, 0)],
        [(7, 1), (6, 1), (5, 1), (4, 1), (3, 1)],
    )


def test_all_passed_leaves_no_worst_and_none_earned_leaves_no_best() -> None:
    assert (build_report(rewarded({0: (1.0, 1.0)})).worst, build_report(rewarded({0: (0.0, 0.0)})).best) == ((), ())


@pytest.mark.parametrize(
    ("attempts", "more", "codes"),
    [
        (ATTEMPTS, {}, ["unscored", "few_tasks"]),
        (ATTEMPTS[:2], {}, ["incomplete", "few_tasks"]),
        ([scored(place, 0, 0.5) for place in range(30)], {"tasks": 30, "samples": 1}, []),
        (
            [scored(0, 0, 0.5, judges=("offline", "good")), scored(0, 1, 0.5, scoring_digest="other")],
            {"tasks": 1, "offline_judges": ("offline",)},
            ["offline_judge", "scoring_changed", "few_tasks"],
        ),
        (
            [scored(0, 0, 0.5, judges=("good",))],
            {"tasks": 1, "samples": 1, "offline_judges": ("offline",)},
            ["few_tasks"],
        ),
    ],
)
def test_what_must_be_known_first_is_said(attempts: list[Attempt], more: dict[str, object], codes: list[str]) -> None:
    assert [caution.code for caution in build_report(evaluation(attempts, **more)).cautions] == codes


def test_one_that_is_not_finished_says_so() -> None:
    begun = evaluation(ATTEMPTS[:2]).model_copy(update={"finished_at": None})
    report = build_report(begun)
    expected = Caution(code="incomplete", text="Not finished: 4 of 6 attempts are missing.")
    assert (report.complete, report.cautions[0]) == (False, expected)


def test_nothing_at_all_is_a_report_too() -> None:
    report = build_report(evaluation([]))
    assert (report.mean, report.if_unscored, report.noticeable, report.histogram) == (
        MeanEstimate(),
        None,
        None,
        (0,) * 11,
    )


def test_the_order_of_attempts_and_what_has_no_score_change_no_mean() -> None:
    whole = rewarded({place: (0.1 * place, 1 - 0.05 * place) for place in range(9)})
    turned = whole.model_copy(update={"attempts": (*reversed(whole.attempts), unscored(3, 2), unscored(20, 0))})
    one, two = build_report(whole), build_report(turned)
    assert (one.mean, one.labels, one.criteria, one.passes[0].rate) == (
        two.mean,
        two.labels,
        two.criteria,
        two.passes[0].rate,
    )


def test_a_report_survives_being_written() -> None:
    assert type(REPORT).model_validate_json(REPORT.model_dump_json()) == REPORT


def test_two_independent_models_are_told_apart_at_what_is_noticeable() -> None:
    """(1.96 + 0.84) x sqrt(2) standard errors, as in arXiv 2411.00640."""
    values = [0.1 * (place % 8) for place in range(40)]
    spread = (sum((value - fmean(values)) ** 2 for value in values) / 39) ** 0.5
    report = build_report(rewarded({place: (value,) for place, value in enumerate(values)}))
    assert report.noticeable == pytest.approx(2.8016 * spread * (2 / 40) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("outcome", "reason", "reward"), [("scored", None, None), ("unscored", None, None), ("unscored", "budget", 0.0)]
)
def test_no_attempt_is_unscored_and_rewarded(outcome: str, reason: str | None, reward: float | None) -> None:
    given = {"task_id": task_id(0), "place": 0, "sample": 0, "outcome": outcome, "reason": reason, "reward": reward}
    with pytest.raises(ValidationError, match="exactly when"):
        Attempt.model_validate(given)
