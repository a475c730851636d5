"""Which tasks a run with a target is given, and what is counted for it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import httpx
import pytest

from app.domain.rollups import PassRates, TaskOutcome
from app.domain.runs import Slot, Stream
from app.service.task_order import (
    EXPLORATION_INTERVAL,
    REREAD_GROUPS,
    WINDOW_SIZE,
    DifficultyEstimator,
    choose_nearest_to_pass_rate,
    order_by_weight,
    order_tasks,
)
from app.store.leases import SlotLocator
from app.store.tasks import OutcomeStore
from tests.support.gateways import Gateways
from tests.support.store_cases import cycle, stream


def outcome(sequence: int, index: int = 0, passed: float = 4, *, pending: bool = False) -> TaskOutcome:
    return TaskOutcome(sequence=sequence, index=index, tried=8, passed=passed, pending=pending)


def rates_of(passed: dict[int, float]) -> PassRates:
    rates = PassRates()
    for index, rate in passed.items():
        rates.add_outcome(TaskOutcome(sequence=1, index=index, tried=8, passed=8 * rate))
    return rates


def aimed(locate: SlotLocator, rates: PassRates, *held: int, target: float = 0.5) -> SlotLocator:
    return choose_nearest_to_pass_rate(locate, target, rates, lambda _: None, set(held))


def indexes(locate: SlotLocator, positions: Iterable[int]) -> list[int]:
    """-1 past the end."""
    return [-1 if (slot := locate(position)) is None else slot.index for position in positions]


class TestWindows:
    def test_a_place_gives_the_nearest_task_of_its_window(self) -> None:
        rates = rates_of({index: 0.5 if index % WINDOW_SIZE == 5 else 0.0 for index in range(4 * WINDOW_SIZE)})
        locate = aimed(cycle(2 * WINDOW_SIZE), rates)
        assert [locate(position) for position in (1, 2)] == [
            Slot(position=1, epoch=0, index=WINDOW_SIZE + 5),
            Slot(position=2, epoch=1, index=5),
        ]

    def test_nothing_known_is_the_first_of_each_window(self) -> None:
        assert indexes(aimed(cycle(1000), PassRates()), range(4)) == [0, WINDOW_SIZE, 2 * WINDOW_SIZE, 3 * WINDOW_SIZE]

    def test_now_and_then_the_first_of_a_window_is_taken(self) -> None:
        rates = rates_of({index: 0.5 if index % WINDOW_SIZE == 5 else 0.0 for index in range(1000)})
        found = indexes(
            aimed(cycle(10**6), rates), [0, EXPLORATION_INTERVAL - 2, EXPLORATION_INTERVAL - 1, EXPLORATION_INTERVAL]
        )
        assert found == [
            5,
            (EXPLORATION_INTERVAL - 2) * WINDOW_SIZE + 5,
            (EXPLORATION_INTERVAL - 1) * WINDOW_SIZE,
            EXPLORATION_INTERVAL * WINDOW_SIZE + 5,
        ]

    def test_a_task_that_is_held_is_passed_over(self) -> None:
        rates = rates_of({WINDOW_SIZE: 0.5, WINDOW_SIZE + 1: 0.25, WINDOW_SIZE + 2: 1.0})
        assert indexes(aimed(cycle(1000), rates, WINDOW_SIZE), [1]) == [WINDOW_SIZE + 1]

    def test_a_set_smaller_than_a_window_gives_each_task_before_one_twice(self) -> None:
        rates = rates_of({0: 0.0, 1: 0.5, 2: 1.0, 3: 0.25})
        found = indexes(aimed(cycle(4), rates), range(1, 6))
        assert (sorted(found[:4]), found[0], found[4]) == ([0, 1, 2, 3], 1, 1)

    def test_past_the_end_there_is_nothing(self) -> None:
        locate = aimed(cycle(WINDOW_SIZE + 2, epochs=1), rates_of({WINDOW_SIZE + 1: 0.5}))
        assert indexes(locate, [0, 1, 2]) == [0, WINDOW_SIZE + 1, -1]

    def test_weights_keep_their_shares(self) -> None:
        """Every task of the light pool is at the target, none of the heavy one."""
        heavy, light = tuple(range(64)), tuple(range(64, 128))
        rates = rates_of({index: 0.0 if index in heavy else 0.5 for index in range(128)})
        pools = [(3.0, heavy), (1.0, light)]
        passed_over: set[int] = set()
        locate = order_by_weight(
            pools, 1, lambda pool: choose_nearest_to_pass_rate(pool, 0.5, rates, lambda _: None, passed_over)
        )
        assert sum(index in light for index in indexes(locate, range(1000))) == 250


class KeptOutcomes(OutcomeStore):
    """The port over a dict by run, and what was asked."""

    def __init__(self, kept: dict[str, list[TaskOutcome]]) -> None:
        self.kept = kept
        self.asked: list[tuple[int, list[int]]] = []

    async def list_since(
        self, stream: Stream, sequence: int, limit: int, others: Sequence[int] = ()
    ) -> list[TaskOutcome]:
        self.asked.append((sequence, list(others)))
        await asyncio.sleep(0)
        found = sorted(self.kept.get(stream.run, []), key=lambda one: one.sequence)
        newest = [one for one in found if one.sequence > sequence][-limit:]
        return [one for one in found if one in newest or one.sequence in others]


def counts(kept: KeptOutcomes, *steps: list[TaskOutcome]) -> list[int]:
    """How many groups are counted after each step, which replaces what is stored."""

    async def scene() -> list[int]:
        difficulty = DifficultyEstimator(kept)
        found = []
        for step in steps:
            kept.kept["run"] = step
            found.append((await difficulty.estimate_rates(stream())).counted)
        return found

    return asyncio.run(scene())


class TestCounting:
    def test_every_group_is_counted_once(self) -> None:
        first, more = [outcome(1), outcome(2)], [outcome(3), outcome(900)]
        kept = KeptOutcomes({})
        assert (counts(kept, first, first, first + more, first + more), kept.asked[-1]) == (
            [2, 2, 4, 4],
            (900 - REREAD_GROUPS, []),
        )

    def test_a_pending_group_is_counted_when_it_is_scored_however_much_comes_meanwhile(self) -> None:
        later = [outcome(place) for place in range(2, 2 + 3 * REREAD_GROUPS)]
        kept = KeptOutcomes({})
        found = counts(
            kept, [outcome(1, pending=True)], [outcome(1, pending=True), *later], [outcome(1), *later], later
        )
        assert (found, [others for _, others in kept.asked]) == (
            [0, len(later), len(later) + 1, len(later) + 1],
            [[], [1], [1], []],
        )

    def test_a_group_that_comes_to_be_seen_after_a_later_one_is_counted(self) -> None:
        assert counts(KeptOutcomes({}), [outcome(7)], [outcome(6), outcome(7)]) == [1, 2]

    def test_hand_outs_at_the_same_time_count_once(self) -> None:
        async def scene() -> list[int]:
            difficulty = DifficultyEstimator(KeptOutcomes({"run": [outcome(1), outcome(2)]}))
            return [
                rates.counted
                for rates in await asyncio.gather(*(difficulty.estimate_rates(stream()) for _ in range(3)))
            ]

        assert asyncio.run(scene()) == [2, 2, 2]

    def test_streams_of_a_run_share_what_is_known_and_runs_do_not(self) -> None:
        async def scene() -> list[int]:
            difficulty = DifficultyEstimator(KeptOutcomes({"run": [outcome(1)], "other": []}))
            asked = [stream(digest="one"), stream(digest="two"), stream("other"), stream(split="test")]
            found = [await difficulty.estimate_rates(one) for one in asked]
            return [found[0] is found[1], found[0] is found[2], found[0] is found[3], found[2].counted > 0]

        assert asyncio.run(scene()) == [True, False, False, False]


@pytest.mark.parametrize("labels", [(None, None, None), ("easy", "hard", "middling")])
def test_fewer_groups_teach_nothing(labels: tuple[str | None, ...]) -> None:
    """A policy that gets a third of the tasks always right, a third never, and a third every other time."""

    def label(index: int) -> str | None:
        return labels[index % 3]

    def constant(narrowed: Callable[[SlotLocator, PassRates], SlotLocator]) -> int:
        """Groups out of 600 whose completions are all right or all wrong."""
        rates, found = PassRates(), 0
        for place in range(600):
            [index] = indexes(narrowed(order_tasks(300, 7, one_epoch=False), rates), [place])
            passed = (8, 0, 4)[index % 3]
            found += passed != 4
            rates.add_outcome(TaskOutcome(sequence=1, index=index, label=label(index), tried=8, passed=passed))
        return found

    uniform = constant(lambda locate, _: locate)
    aimed_at = constant(lambda locate, rates: choose_nearest_to_pass_rate(locate, 0.5, rates, label, set()))
    assert aimed_at <= uniform / 2


def test_a_run_with_the_level_auto_goes_where_its_policy_can_learn(gateways: Gateways) -> None:
    """A policy that guesses one small number: right now and then where one letter is asked for, never elsewhere."""
    guesses = [{"text": f"<answer>{number}</answer>"} for number in range(1, 5)]
    levels: list[str] = []
    with httpx.Client(base_url=f"{gateways.of().url}/envs/letter_counting") as client:
        for _ in range(8):
            asked = {"run": "auto-levels", "batch_size": 8, "params": {"level": "auto"}}
            tasks = client.post("/next-batch", json=asked).raise_for_status().json()["tasks"]
            levels += [task["metadata"]["level"] for task in tasks]
            groups = [{"task_id": one["task_id"], "lease_id": one["lease_id"], "completions": guesses} for one in tasks]
            client.post("/score", json={"groups": groups}).raise_for_status()
    assert (len({*levels[:8]}) > 1, levels[16:].count("first") > 40) == (True, True), levels
