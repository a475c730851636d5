"""Seeded mixtures: exact shares in every block, and positions that no member skips or repeats."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.service.handout import Draw, build_mix_stream, draw_members
from app.service.requests import MixMember
from app.service.task_order import BLOCK_SIZE, count_draws_below
from tests.support.tables import read_table

TABLE = read_table(__file__, "mixture.yaml", tuple[tuple[tuple[float, ...], list[int]], ...])

SEEDS = st.integers(0, 2**53 - 1)
WEIGHTS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8)


def shares(weights: Sequence[float], seed: int, block: int) -> list[int]:
    drawn = Counter(one.member for one in draw_members(weights, seed, block * BLOCK_SIZE, BLOCK_SIZE))
    return [drawn[member] for member in range(len(weights))]


@pytest.mark.parametrize(("weights", "expected"), TABLE)
@pytest.mark.parametrize("block", [0, 7])
def test_a_block_holds_the_exact_shares(weights: tuple[float, ...], expected: list[int], block: int) -> None:
    assert shares(weights, 11, block) == expected


@given(weights=WEIGHTS, seed=SEEDS)
def test_shares_are_whole_within_one_and_never_none(weights: list[float], seed: int) -> None:
    total = sum(weights)
    found = shares(weights, seed, 0)
    assert sum(found) == BLOCK_SIZE
    assert min(found) >= 1
    light = sum(share == 1 for share in found)  # these may have their place from the heaviest
    assert all(
        abs(share - weight / total * BLOCK_SIZE) <= 1 + light for share, weight in zip(found, weights, strict=True)
    )


@given(weights=WEIGHTS, seed=SEEDS, first=st.integers(0, 3 * BLOCK_SIZE), count=st.integers(1, 300))
def test_what_was_drawn_before_agrees_with_the_drawing(weights: list[float], seed: int, first: int, count: int) -> None:
    drawn = draw_members(weights, seed, first, count)
    places = list(count_draws_below(tuple(weights), seed, first))
    for one in drawn:
        assert one.position == places[one.member]
        places[one.member] += 1
    assert tuple(places) == count_draws_below(tuple(weights), seed, first + count)


@given(weights=WEIGHTS, seed=SEEDS, first=st.integers(0, 2**40 - 600), cut=st.integers(0, 300))
def test_a_drawing_is_the_same_in_one_batch_or_in_two(weights: list[float], seed: int, first: int, cut: int) -> None:
    whole = draw_members(weights, seed, first, 300)
    assert draw_members(weights, seed, first, cut) + draw_members(weights, seed, first + cut, 300 - cut) == whole


def test_the_order_follows_the_seed_and_changes_from_block_to_block() -> None:
    weights = (1.0, 1.0)

    def members(seed: int, block: int) -> tuple[int, ...]:
        return tuple(one.member for one in draw_members(weights, seed, block * BLOCK_SIZE, BLOCK_SIZE))

    assert members(1, 0) == members(1, 0)
    assert len({members(1, 0), members(1, 1), members(2, 0)}) == 3


def test_the_order_is_the_same_in_every_process_and_version_of_python() -> None:
    members_and_positions = [(0, 0), (1, 0), (1, 1), (1, 2), (0, 1), (1, 3)]
    assert draw_members((2.0, 1.0), 5, 0, 6) == tuple(Draw(*drawn) for drawn in members_and_positions)


MIX = (MixMember(env="toy", weight=2.0), MixMember(env="slow", split="test", params={"a": 1}))


@pytest.mark.parametrize(
    "other",
    [
        MIX[:1],
        MIX[::-1],
        (MIX[0].model_copy(update={"weight": 3.0}), MIX[1]),
        (MIX[0], MIX[1].model_copy(update={"split": "train"})),
        (MIX[0], MIX[1].model_copy(update={"params": {"a": 2}})),
        (MIX[0].model_copy(update={"env": "gsm8k"}), MIX[1]),
    ],
)
def test_another_mixture_counts_its_positions_apart(other: tuple[MixMember, ...]) -> None:
    assert build_mix_stream("r", other).digest != build_mix_stream("r", MIX).digest


def test_the_same_mixture_is_counted_on() -> None:
    again = (MixMember(env="toy", weight=2.0), MixMember(env="slow", split="test", params={"a": 1}))
    assert build_mix_stream("r", again) == build_mix_stream("r", MIX)
