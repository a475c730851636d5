"""How parts become a reward, and what a group of rewards amounts to."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import ScoringFailed
from app.domain.judging import (
    LOW_SIGNAL_STD,
    Requirement,
    Rubric,
    RubricCriterion,
    build_criteria,
    compute_absolute,
    compute_own_reward,
    summarise_scores,
)
from app.domain.scores import (
    ADVANTAGE_EPSILON,
    Criterion,
    Score,
    ScoreSummary,
    combine,
    round_turn_reward,
    split_by_turn,
)
from app.domain.values import Frozen
from tests.support.tables import read_table

UNIT = st.floats(0, 1)
REWARDS = st.lists(st.none() | UNIT, max_size=20)


def score_of(reward: float | None, *flags: str) -> Score:
    if reward is None:
        return Score.unscored("judge_failed")
    return Score(outcome="scored", reward=reward, flags=flags)


def statistics_of(*rewards: float | None) -> ScoreSummary:
    return summarise_scores([score_of(reward) for reward in rewards])


@given(gate=st.sampled_from([0.0, 1.0]), absolute=UNIT, relative=UNIT, weight=UNIT, cap=UNIT)
def test_a_reward_stays_in_range_and_under_its_cap(
    gate: float, absolute: float, relative: float, weight: float, cap: float
) -> None:
    assert 0 <= combine(gate, absolute, relative, weight, cap) <= min(gate, cap)
    low, high = sorted([absolute, relative])
    assert low - 1e-12 <= combine(1.0, absolute, relative, weight) <= high + 1e-12


class Tables(Frozen):
    """The tables of rewards.yaml, which says what each holds."""

    blends: tuple[tuple[float, float, float, float, float, float], ...]
    weights: tuple[tuple[dict[str, float | None], list[float], float], ...]
    required: tuple[tuple[float | None, float | None, float | None], ...]
    own: tuple[tuple[dict[str, float], float], ...]


TABLES = read_table(__file__, "rewards.yaml", Tables)


@pytest.mark.parametrize(("gate", "absolute", "relative", "weight", "cap", "reward"), TABLES.blends)
def test_gate_times_the_capped_blend(
    gate: float, absolute: float, relative: float, weight: float, cap: float, reward: float
) -> None:
    assert combine(gate, absolute, relative, weight, cap) == pytest.approx(reward)


VOICE = RubricCriterion(name="voice", weight=0.5, description="sounds like it", anchors={})
LORE = RubricCriterion(name="lore", weight=0.3, description="knows its world", anchors={})
WIT = RubricCriterion(
    name="wit", weight=0.2, description="is fun", anchors={}, requires=Requirement(criterion="voice", at_least=0.5)
)
RUBRIC = Rubric(name="r", version="1", instructions="", criteria=(VOICE, LORE, WIT))


def parts(**values: float | None) -> list[tuple[str, float | None, float]]:
    return [(one.name, one.value, round(one.weight, 6)) for one in build_criteria(RUBRIC, values)]


@pytest.mark.parametrize(("values", "expected", "absolute"), TABLES.weights)
def test_weights_of_what_does_not_apply_are_shared_out(
    values: dict[str, float | None], expected: list[float], absolute: float
) -> None:
    names = ["voice", "lore", "wit"]
    assert parts(**values) == list(zip(names, [values.get(name) for name in names], expected, strict=True))
    assert compute_absolute(build_criteria(RUBRIC, values)) == pytest.approx(absolute)


@pytest.mark.parametrize(("voice", "wit", "counted"), TABLES.required)
def test_a_criterion_counts_only_when_what_it_requires_is_met(
    voice: float | None, wit: float | None, counted: float | None
) -> None:
    assert build_criteria(RUBRIC, {"voice": voice, "wit": wit})[2].value == counted


@given(voice=st.none() | UNIT, lore=st.none() | UNIT, wit=st.none() | UNIT)
def test_weights_add_up_and_the_absolute_stays_in_range(
    voice: float | None, lore: float | None, wit: float | None
) -> None:
    criteria = build_criteria(RUBRIC, {"voice": voice, "lore": lore, "wit": wit})
    applicable = [one for one in criteria if one.value is not None]
    assert math.fsum(one.weight for one in criteria) == pytest.approx(1.0 if applicable else 0.0)
    values = [one.value for one in criteria if one.value is not None] or [0.0]
    assert min(values) - 1e-12 <= compute_absolute(criteria) <= min(1.0, max(values) + 1e-12)


def test_rounding_never_lifts_the_absolute_above_one() -> None:
    tenths = [Criterion(name=str(number), value=1.0, weight=0.1000000001) for number in range(10)]
    assert compute_absolute(tenths) == 1.0


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((1.0, 0.0), (0.5, math.sqrt(0.5), (0.707007, -0.707007))),
        ((1.0, None, 0.0), (0.5, math.sqrt(0.5), (0.707007, None, -0.707007))),
        ((0.0, 0.5, 1.0), (0.5, 0.5, (-0.9998, 0.0, 0.9998))),
        ((0.4, 0.4), (0.4, 0.0, (0.0, 0.0))),
        ((1.0,), (None, None, (None,))),
        ((1.0, None), (None, None, (None, None))),
        ((None, None), (None, None, (None, None))),
        ((), (None, None, ())),
    ],
)
def test_the_statistics_of_a_group(
    rewards: tuple[float | None, ...], expected: tuple[float | None, float | None, tuple[float | None, ...]]
) -> None:
    found = statistics_of(*rewards)
    mean, std, advantages = expected
    assert [found.mean, found.std] == pytest.approx([mean, std])
    assert found.compute_advantages() == pytest.approx(advantages, abs=1e-6)


@given(rewards=REWARDS)
def test_statistics_are_those_of_the_rewards_that_there_are(rewards: list[float | None]) -> None:
    found = statistics_of(*rewards)
    present = [reward for reward in rewards if reward is not None]
    if len(present) < 2:
        assert (found.mean, found.std, found.low_signal) == (None, None, False)
        assert found.compute_advantages() == (None,) * len(rewards)
        return
    mean, std = statistics.fmean(present), statistics.stdev(present)
    assert [found.mean, found.std] == pytest.approx([mean, std], abs=1e-12)
    for reward, advantage in zip(rewards, found.compute_advantages(), strict=True):
        wanted = None if reward is None else (reward - mean) / (std + ADVANTAGE_EPSILON)
        assert advantage == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "low"),
    [
        ([score_of(0.0), score_of(1.0)], False),
        ([score_of(0.5), score_of(0.5)], True),
        ([score_of(0.5), score_of(0.5 + LOW_SIGNAL_STD)], True),
        ([score_of(0.5), score_of(0.5 + 2 * LOW_SIGNAL_STD)], False),
        ([score_of(0.0, "low_signal"), score_of(1.0)], True),
        ([score_of(1.0)], False),
        ([score_of(1.0), score_of(None)], False),
    ],
)
def test_a_group_that_teaches_nothing_says_so(scores: list[Score], low: bool) -> None:
    assert summarise_scores(scores).low_signal is low


@pytest.mark.parametrize(("parts", "reward"), TABLES.own)
def test_a_reward_of_its_own_has_no_part_that_is_relative(parts: dict[str, float], reward: float) -> None:
    assert compute_own_reward(Score.model_validate({"outcome": "scored", **parts})) == pytest.approx(reward)
    assert compute_own_reward(Score.pending()) is None


PARTS = st.lists(st.none() | st.floats(-1, 1), min_size=1, max_size=20)


@given(reward=st.sampled_from([0.0, 5e-324, 1.0]) | UNIT, parts=PARTS)
def test_turns_add_up_to_the_reward_exactly(reward: float, parts: list[float | None]) -> None:
    known = [round_turn_reward(part) for part in parts]
    split = split_by_turn(score_of(reward), known)
    assert split.turn_rewards[:-1] == tuple(part or 0.0 for part in known[:-1])
    assert (sum(split.turn_rewards), len(split.turn_rewards)) == (split.reward, len(parts))
    assert abs((split.reward or 0.0) - reward) < 1e-12


@given(reward=st.none() | UNIT, parts=st.lists(st.none() | st.floats(0, 0.05), max_size=20))
def test_what_was_given_changes_no_reward(reward: float | None, parts: list[float | None]) -> None:
    """Up to twice the reward may be given before the end."""
    whole = score_of(None if reward is None else 0.5 + reward / 2)
    split = split_by_turn(whole, [round_turn_reward(part) for part in parts])
    assert split.model_copy(update={"turn_rewards": ()}) == whole


@pytest.mark.parametrize("part", [1.5, -2.0, math.nan, math.inf])
def test_a_part_beyond_the_reward_is_a_fault_of_the_environment(part: float) -> None:
    with pytest.raises(ScoringFailed):
        round_turn_reward(part)
