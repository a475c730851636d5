"""Two evaluations beside each other, task by task."""

import random
from functools import cache

import pytest

from app.domain.errors import InvalidRequest
from app.evaluation.comparison import Comparison, Obstacle, TaskChange, compare_evaluations
from app.evaluation.report import Evaluation, MeanEstimate, adjust_p_values
from tests.support.evaluations import evaluation, rewarded, scored, task_id, unscored

BEFORE = rewarded({0: (0.0, 1.0), 1: (0.0, 0.0), 2: (1.0, 1.0), 3: (0.5, 0.5)})
AFTER = rewarded({1: (1.0, 0.0), 2: (0.0, 1.0), 3: (1.0, 1.0), 7: (0.0, 0.0)}, model="large")


def test_only_tasks_of_both_count_each_by_its_mean() -> None:
    found = compare_evaluations(BEFORE, AFTER)
    moved = [0.5, -0.5, 0.5]
    assert (found.tasks, found.only_before, found.only_after, found.improved, found.declined) == (3, 1, 1, 2, 1)
    assert found.overall.difference == MeanEstimate(value=sum(moved) / 3, tasks=3)
    assert (found.overall.before, found.overall.after, found.overall.p) == pytest.approx((0.5, 2 / 3, 1.0))


def test_the_tasks_that_moved_most_are_named() -> None:
    found = compare_evaluations(BEFORE, AFTER)
    assert (found.gained, found.lost) == (
        (
            TaskChange(task_id=task_id(1), place=1, label=None, before=0.0, after=0.5),
            TaskChange(task_id=task_id(3), place=3, label=None, before=0.5, after=1.0),
        ),
        (TaskChange(task_id=task_id(2), place=2, label=None, before=1.0, after=0.5),),
    )


def test_the_largest_move_comes_first_either_way() -> None:
    one = rewarded({place: (0.5,) for place in range(6)})
    two = rewarded({0: (0.6,), 1: (0.4,), 2: (0.9,), 3: (0.1,), 4: (0.5,), 5: (0.0,)})
    found = compare_evaluations(one, two)
    assert ([each.place for each in found.gained], [each.place for each in found.lost]) == ([2, 0], [5, 3, 1])


def test_a_task_without_a_score_in_one_of_them_is_left_out() -> None:
    one = evaluation([scored(0, 0, 0.5), scored(1, 0, 0.5), unscored(2, 0)], samples=1)
    two = evaluation([scored(0, 0, 0.7), unscored(1, 0), scored(2, 0, 0.0)], samples=1)
    found = compare_evaluations(one, two)
    counted = (found.tasks, found.only_before, found.only_after, found.overall.before, found.overall.after)
    assert counted == (1, 1, 1, 0.5, 0.7)


@cache
def judged(shift: float, seed: int, tasks: int = 40, **more: object) -> Evaluation:
    """Tasks of three labels, as hard for every model, the first label alone `shift` easier."""
    chance = random.Random(seed)
    hardness = random.Random(0)
    rates = [hardness.uniform(0.2, 0.7) + (shift if place % 3 == 0 else 0.0) for place in range(tasks)]
    attempts = [
        scored(
            place,
            sample,
            (reward := min(1.0, max(0.0, round(rate + chance.gauss(0, 0.08), 3)))),
            label=("ada", "bo", "cy")[place % 3],
            criteria={"voice": reward, "lore": 0.5 if place % 2 else None},
        )
        for place, rate in enumerate(rates)
        for sample in range(3)
    ]
    return evaluation(attempts, tasks=tasks, samples=3, **more)


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.25, "better"), (-0.18, "worse"), (0.0, "undecided")], ids=["better", "worse", "undecided"]
)
def test_a_verdict_is_what_chance_does_not_explain(shift: float, verdict: str) -> None:
    assert compare_evaluations(judged(0.0, 1), judged(shift, 2)).verdict == verdict


def test_tables_are_adjusted_for_their_rows() -> None:
    found = compare_evaluations(judged(0.0, 1), judged(0.25, 2))
    assert [row.name for row in found.labels] == ["ada", "bo", "cy"]
    assert tuple(row.adjusted_p for row in found.labels) == adjust_p_values([row.p for row in found.labels])
    assert [row.name for row in found.labels if row.adjusted_p < 0.05] == ["ada"]
    assert [(row.name, row.difference.tasks) for row in found.criteria] == [("voice", 40), ("lore", 20)]
    assert [row.name for row in found.passes] == ["pass@1", "pass@2", "pass@3"]


def test_the_other_way_round_it_is_the_same_with_the_other_sign() -> None:
    there, back = (
        compare_evaluations(judged(0.0, 1), judged(0.2, 2)),
        compare_evaluations(judged(0.2, 2), judged(0.0, 1)),
    )
    forth, turned = there.overall.difference, back.overall.difference
    assert (there.overall.p, forth.value, forth.low, forth.high) == pytest.approx(
        (back.overall.p, -(turned.value or 0.0), -(turned.high or 0.0), -(turned.low or 0.0)), abs=0.003
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"scoring_digest": "other"}, ["rule of scoring"]),
        ({"judges": ("strict",)}, ["judges"]),
        ({"judges": ("strict",), "scoring_digest": "other"}, ["rule of scoring", "judges"]),
    ],
)
def test_what_was_not_measured_alike_gets_no_verdict(change: dict[str, object], what: list[str]) -> None:
    mild = {"judges": ("mild",)}
    found = compare_evaluations(attempted(judged(0.0, 1), **mild), attempted(judged(0.25, 2), **{**mild, **change}))
    assert (found.verdict, [one.what for one in found.obstacles]) == ("not comparable", what)


def test_a_model_that_no_judge_had_to_read_can_be_compared() -> None:
    """All its answers failed a gate."""
    before, after = attempted(judged(0.0, 1), judges=("mild",)), judged(0.25, 2)
    found = compare_evaluations(before, attempted(after, judges=()))
    assert (found.verdict, found.obstacles) == (compare_evaluations(judged(0.0, 1), after).verdict, ())


def attempted(evaluation: Evaluation, **change: object) -> Evaluation:
    attempts = tuple(each.model_copy(update=change) for each in evaluation.attempts)
    return evaluation.model_copy(update={"attempts": attempts})


def test_another_threshold_is_an_obstacle_and_says_which() -> None:
    found = compare_evaluations(judged(0.0, 1), judged(0.0, 2, threshold=0.5))
    assert found.obstacles == (Obstacle(what="threshold of a pass", before="1", after="0.5"),)


def test_other_settings_and_another_number_of_attempts_are_mentioned() -> None:
    two = rewarded({place: (0.5,) for place in range(4)}, sampling={"temperature": 0.0})
    found = compare_evaluations(BEFORE, two)
    assert ([caution.code for caution in found.cautions], [row.name for row in found.passes]) == (
        ["few_tasks", "few_tasks", "samples", "sampling"],
        ["pass@1"],
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"version": "2"}, "version 1 and 2"),
        ({"split": "train", "params": {"level": "hard"}}, 'split test and train, params {} and {"level": "hard"}'),
        ({}, "the environment's data has changed"),
    ],
)
def test_without_a_task_in_common_it_is_refused_with_the_reason(more: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match="no scored task in common") as refused:
        compare_evaluations(BEFORE, rewarded({9: (1.0, 1.0)}, **more))
    assert words in refused.value.detail


def test_an_evaluation_does_not_differ_from_itself() -> None:
    found = compare_evaluations(BEFORE, BEFORE)
    assert (found.verdict, found.overall.p, found.gained, found.lost) == ("undecided", 1.0, (), ())
    assert found.overall.difference == MeanEstimate(value=0.0, tasks=4), "four tasks are too few for an interval"


def test_a_comparison_survives_being_written() -> None:
    found = compare_evaluations(judged(0.0, 1), judged(0.2, 2))
    assert Comparison.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(("tasks", "told"), [(5, False), (6, True)])
def test_what_no_test_could_tell_is_not_promised(tasks: int, told: bool) -> None:
    before = rewarded({place: (0.0,) for place in range(tasks)})
    after = rewarded({place: (0.5 + place / 20,) for place in range(tasks)})
    found = compare_evaluations(before, after)
    assert (found.verdict == "better", found.noticeable is not None) == (told, told)
