"""Batches formed from waiting groups: exact, in turn, whole where it can be, and never stuck without saying why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.features.atropos.model import (
    BatchNotReady,
    BatchPlan,
    EnvClient,
    EnvRegistration,
    QueuedGroup,
    TrajectoryBacklog,
)
from app.features.atropos.service import ALIVE_SECONDS, MAX_TIMES_PASSED, form_batch
from tests.support.tables import read_table
from tests.support.tiers import examples

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def env_client(
    env_id: int, weight: float = 1.0, minimum: float | None = None, silent: float = 0, size: int = 8
) -> EnvClient:
    registration = EnvRegistration(
        max_token_length=512, desired_name="env", weight=weight, group_size=size, min_batch_allocation=minimum
    )
    return EnvClient(env_id, f"env_{env_id}", registration, True, NOW - timedelta(seconds=silent))


def line(
    batch_size: int,
    groups: Sequence[tuple[int | None, int]],
    env_clients: Sequence[EnvClient] = (),
    turns: Mapping[int | None, float] | None = None,
) -> TrajectoryBacklog:
    """Groups are (environment, size), numbered from 0."""
    waiting = tuple(QueuedGroup(sequence, env_id, size) for sequence, (env_id, size) in enumerate(groups))
    return TrajectoryBacklog(batch_size, waiting, sum(size for _, size in groups), tuple(env_clients), turns or {}, NOW)


def taken(formed: BatchPlan | BatchNotReady) -> list[tuple[int, int]] | str:
    if isinstance(formed, BatchNotReady):
        return formed.reason
    return [(share.sequence, share.size) for share in formed.shares]


def after(before: TrajectoryBacklog, formed: BatchPlan) -> TrajectoryBacklog:
    """The line without what was taken, as the store leaves it."""
    sizes = {share.sequence: share.size for share in formed.shares}
    waiting = [
        replace(
            group,
            size=group.size - sizes.get(group.sequence, 0),
            whole=group.whole and group.sequence not in sizes,
            passed=0 if group.sequence in sizes else group.passed + (group.sequence == formed.passed_over),
        )
        for group in before.waiting
    ]
    left = tuple(group for group in waiting if group.size > 0)
    return replace(before, waiting=left, sequences=sum(group.size for group in left), turns=formed.turns)


def drained(current: TrajectoryBacklog, most: int = 10_000) -> tuple[list[BatchPlan], TrajectoryBacklog]:
    """Batches until there is none, and what is left."""
    batches: list[BatchPlan] = []
    while len(batches) < most and isinstance(formed := form_batch(current), BatchPlan):
        batches.append(formed)
        current = after(current, formed)
    return batches, current


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (line(16, [(0, 8), (0, 8), (0, 8), (0, 8)]), [(0, 8), (1, 8)]),
        (line(16, [(0, 4), (0, 8), (0, 8), (0, 4)]), [(0, 4), (1, 8), (3, 4)]),
        (
            line(16, [(0, 12), (0, 8)], [env_client(1, size=4)]),
            "The queue has 20 sequences in groups of 8, 12; no combination adds up to 16 yet.",
        ),
        (
            line(16, [(0, 8)] * 4, [env_client(0), env_client(1, minimum=0.5, silent=ALIVE_SECONDS + 1)]),
            [(0, 8), (1, 8)],
        ),
        (
            line(16, [(0, 8)] * 4, [env_client(0), replace(env_client(1, minimum=0.5), connected=False)]),
            [(0, 8), (1, 8)],
        ),
        (line(16, [(0, 8)]), "The queue has 8 of the 16 sequences of a batch."),
    ],
    ids=["oldest first", "whole groups", "others may complete it", "silent", "disconnected", "too few"],
)
def test_the_next_batch_or_why_there_is_none(given: TrajectoryBacklog, told: object) -> None:
    """A dead environment with a minimum stalls the original for ever."""
    assert taken(form_batch(given)) == told


@pytest.mark.parametrize(
    ("batch_size", "size", "expected"),
    read_table(__file__, "cut_groups.yaml", list[tuple[int, int, list[list[tuple[int, int]]]]]),
)
def test_a_group_is_cut_where_no_whole_ones_ever_fill_a_batch(
    batch_size: int, size: int, expected: list[list[tuple[int, int]]]
) -> None:
    """Each of these stalls the original for ever."""
    batches, _ = drained(line(batch_size, [(0, size)] * 8), 2)
    assert [taken(batch) for batch in batches] == expected


def test_an_odd_group_is_passed_a_few_times_and_then_fitted_in() -> None:
    """The original never takes a group of 12 among groups of 8 for batches of 16, and stalls behind it."""
    batches, _ = drained(line(16, [(0, 12)] + [(0, 8)] * 12))
    first = next(place for place, batch in enumerate(batches) if batch.shares[0].sequence == 0)
    assert (first, taken(batches[first])) == (MAX_TIMES_PASSED, [(0, 12), (9, 4)])


def test_weights_decide_who_is_next_over_time() -> None:
    """The original's batches do not know weights."""
    groups = [(0, 8)] * 200 + [(1, 8)] * 200
    batches, _ = drained(line(16, groups, [env_client(0, weight=1.0), env_client(1, weight=3.0)]), 50)
    given_to = Counter(groups[share.sequence][0] for batch in batches for share in batch.shares)
    assert given_to == {0: 25, 1: 75}


def test_a_light_environment_that_is_always_drained_gets_no_more_than_its_weight() -> None:
    env_clients = [env_client(0, weight=0.9), env_client(1, weight=0.1)]
    turns: Mapping[int | None, float] = {}
    got: Counter[int | None] = Counter()
    for _ in range(50):
        groups = [(0, 8), (0, 8), (0, 8), (1, 8)]
        formed = form_batch(line(16, groups, env_clients, turns))
        assert isinstance(formed, BatchPlan)
        turns = formed.turns
        got.update(groups[share.sequence][0] for share in formed.shares)
    assert got == {0: 90, 1: 10}


def test_who_was_away_has_nothing_to_catch_up_with() -> None:
    batches, _ = drained(line(8, [(0, 8)] * 4 + [(1, 8)] * 4, turns={0: 800.0}))
    assert [batch.shares[0].sequence for batch in batches] == [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_minimum_allocation_is_in_every_batch() -> None:
    env_clients = [env_client(0, weight=100), env_client(1, weight=0.01, minimum=0.5)]
    groups = [(0, 8)] * 6 + [(1, 8)] * 4
    batches, _ = drained(line(16, groups, env_clients), 4)
    assert [sorted(groups[share.sequence][0] for share in batch.shares) for batch in batches] == [[0, 1]] * 4


def test_a_living_environment_with_a_minimum_is_waited_for_by_name() -> None:
    env_clients = [env_client(0), env_client(1, minimum=0.5, silent=ALIVE_SECONDS)]
    assert "Environment 1 needs 8 sequences" in str(taken(form_batch(line(16, [(0, 8)] * 4, env_clients))))
    assert "batch_size 0" in str(taken(form_batch(line(0, [(0, 8)]))))


def test_minimums_that_do_not_fit_into_one_batch_together_take_turns() -> None:
    """They stall the original for ever."""
    env_clients = [env_client(env_id, minimum=0.3) for env_id in range(3)]
    batches, _ = drained(line(16, [(0, 8), (1, 8), (2, 8)] * 4, env_clients), 3)
    assert [taken(batch) for batch in batches] == [[(0, 8), (1, 8)], [(2, 8), (3, 8)], [(4, 8), (5, 8)]]


lines = st.builds(
    lambda batch_size, groups, weights: line(
        batch_size, groups, [env_client(env_id, weight=weight) for env_id, weight in enumerate(weights)]
    ),
    st.integers(1, 48),
    st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.integers(1, 40)), max_size=40),
    st.lists(st.floats(-1, 5), min_size=3, max_size=3),
)


@settings(deadline=None, max_examples=examples(300))
@given(lines)
def test_batches_are_exact_and_everything_is_taken_once(whole: TrajectoryBacklog) -> None:
    """And two batches' worth never wait."""
    batches, left = drained(whole)
    sizes = Counter({group.sequence: group.size for group in whole.waiting})
    for batch in batches:
        sizes.subtract({share.sequence: share.size for share in batch.shares})
    assert {sum(share.size for share in batch.shares) for batch in batches} <= {whole.batch_size}
    assert +sizes == Counter({group.sequence: group.size for group in left.waiting})
    assert min(sizes.values(), default=0) >= 0
    assert left.sequences < 2 * whole.batch_size


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(1, 48), st.integers(1, 16), st.integers(1, 40))
def test_groups_of_one_size_are_first_in_first_out(batch_size: int, size: int, count: int) -> None:
    batches, _ = drained(line(batch_size, [(0, size)] * count))
    order = [share.sequence for batch in batches for share in batch.shares]
    fits = batch_size % size == 0
    assert order == sorted(order) if fits else max(order, default=0) <= count
