"""What judges answered and spent."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from app.domain.budgets import Admission, Amount, BudgetAnswer, BudgetConfig, BudgetState, Reservation
from app.domain.judging import Judgement, Spending
from app.domain.scores import ReferenceKind, References
from app.main.store import Store
from app.ports.judges import CachedJudgement
from app.store.group_rows import GroupToStore
from tests.support.databases import MIGRATIONS
from tests.support.store_cases import MovableClock, group, opened, record, using
from tests.support.tables import read_table

USABLE = read_table(__file__, "usable_judgement.yaml", Judgement)
FAILED = USABLE.model_copy(update={"verdicts": (), "ranking": (), "error": "no", "failure": "unusable"})


async def test_a_usable_judgement_is_found_again_by_what_was_asked(store: Store) -> None:
    without_prompt = USABLE.model_copy(update={"prompt": ""})
    await store.judge_cache.put(USABLE)
    await store.judge_cache.put(FAILED.model_copy(update={"reading": "r2"}))
    assert (
        await store.judge_cache.get("r1"),
        await store.judge_cache.get("r2"),
        await store.judge_cache.get("r3"),
    ) == (CachedJudgement(without_prompt, claimed=False), None, None)


async def test_it_is_claimed_once_a_group_holds_it(store: Store) -> None:
    await store.tasks.put([record(0)])
    await store.judge_cache.put(USABLE)
    claims = [await store.judge_cache.get("r1")]
    whole = group("g", task_id="task_0")
    await store.groups.add([GroupToStore(whole.group, (USABLE,))])
    claims.append(await store.judge_cache.get("r1"))
    assert [claim.claimed for claim in claims if claim is not None] == [False, True]


@pytest.mark.dialects
def test_spending_adds_up_by_judge_and_day_and_survives(store_url: str) -> None:
    clock = MovableClock()

    async def spend(store: Store) -> None:
        await asyncio.gather(*(store.judge_cache.put(judgement) for judgement in [USABLE, FAILED] * 5))
        clock.forward(86_400)
        await store.judge_cache.put(USABLE)
        await store.judge_cache.put(USABLE.model_copy(update={"judge": "small", "cost_usd": None}))

    async def look(store: Store) -> list[BudgetState]:
        return [await store.judge_cache.get_budget_state(judge) for judge in ("big", "small", "none")]

    using(store_url, spend, clock)
    one = Spending(readings=1, calls=1, input_tokens=100, output_tokens=20, cost_usd=0.1)
    free = one.model_copy(update={"cost_usd": 0.0})
    big, *others = using(store_url, look, clock)
    total = big.total.model_copy(update={"cost_usd": round(big.total.cost_usd, 9)})
    eleven = Spending(readings=11, calls=11, input_tokens=1100, output_tokens=220, cost_usd=1.1)
    assert ([total, big.today, *others]) == [eleven, one, BudgetState(free, free), BudgetState()]


async def test_judgements_that_come_together_are_stored_together(store: Store) -> None:
    def make(judge: str, reading: str) -> Judgement:
        return USABLE.model_copy(update={"judge": judge, "reading": reading, "latency_seconds": 1.0, "cost_usd": 0.5})

    made = [make(judge, f"{judge} {number}") for judge in ("big", "small") for number in range(3)]
    states = await asyncio.gather(*map(store.judge_cache.put, made))
    found = await asyncio.gather(*(store.judge_cache.get(one.reading) for one in made))
    assert ([state.total.readings for state in states], [one is not None for one in found]) == ([3] * 6, [True] * 6)


def held(name: str, tokens: int, *, used: int = 0, seconds: float = 60.0, judge: str = "big") -> Reservation:
    return Reservation(name, judge, used=Amount(used, used / 8), open=Amount(tokens, tokens / 8), seconds=seconds)


TEN = BudgetConfig(tokens=10)


async def test_what_is_put_aside_is_there_for_nobody_else(store: Store) -> None:
    def at(used: int, opened: int) -> BudgetState:
        return BudgetState(used=Amount(used, used / 8), open=Amount(opened, opened / 8))

    cache = store.judge_cache
    assert [
        await cache.reserve(held("a", 6), TEN),
        await cache.reserve(held("b", 6), TEN),
        await cache.reserve(held("c", 11), TEN),
        await cache.reserve(held("d", 6, judge="small"), TEN),
        await cache.reserve(held("a", 5, used=4), TEN),
        await cache.reserve(held("b", 6), TEN),
        await cache.reserve(held("b", 1), TEN),
    ] == [
        Admission("now", at(0, 6)),
        Admission("later", at(0, 6)),
        Admission("never", at(0, 6)),
        Admission("now", at(0, 6)),
        Admission("now", at(4, 5)),
        Admission("later", at(4, 5)),
        Admission("now", at(4, 6)),
    ]


BOUNDS: list[tuple[BudgetConfig, BudgetAnswer]] = [
    (BudgetConfig(usd=0.2), "never"),
    (BudgetConfig(usd_per_day=0.1), "never"),
    (BudgetConfig(tokens=240), "never"),
    (BudgetConfig(usd=0.3), "now"),
    (BudgetConfig(usd_per_day=0.2), "now"),
    (BudgetConfig(tokens=241), "now"),
]


async def test_each_bound_holds_over_what_was_spent(store: Store, clock: MovableClock) -> None:
    await store.judge_cache.put(FAILED)
    clock.forward(86_400)
    await store.judge_cache.put(USABLE)
    wanted = Reservation("h", "big", used=Amount(), open=Amount(1, 0.05), seconds=1.0)
    assert [(bound, (await store.judge_cache.reserve(wanted, bound)).admits) for bound, _ in BOUNDS] == BOUNDS


async def test_a_judgement_takes_the_place_of_its_hold(store: Store) -> None:
    spent = Spending(readings=1, calls=1, input_tokens=1)
    over = BudgetState(spent, spent)
    rest = BudgetState(spent, spent, open=Amount(2, 0.25))
    cache = store.judge_cache
    for name in ("a", "b"):
        await cache.reserve(held(name, 2), TEN)
    paid = Judgement(judge="big", model="m", order=(), calls=1, input_tokens=1, error="no", failure="unusable")
    assert [await cache.put(paid, "a"), await cache.release("big", "b"), await cache.get_budget_state("big")] == [
        rest,
        over,
        over,
    ]


async def test_a_hold_whose_process_died_counts_as_a_call_without_an_answer(store: Store, clock: MovableClock) -> None:
    """Until its judgement comes after all."""
    lost = Spending(unanswered_calls=1, unanswered_tokens=5, unanswered_usd=0.625)
    spent = Spending(readings=1, calls=1, input_tokens=100, output_tokens=20, cost_usd=0.1)
    cache = store.judge_cache
    await cache.reserve(held("a", 3, used=2, seconds=30), TEN)
    seen = [await cache.get_budget_state("big")]
    clock.forward(31)
    seen.append(await cache.get_budget_state("big"))
    clock.forward(86_400)
    seen.append(await cache.get_budget_state("big"))
    seen.append((await cache.reserve(held("b", 6), TEN)).state)
    seen.append(await cache.put(USABLE, "a"))
    assert seen == [
        BudgetState(used=Amount(2, 0.25), open=Amount(3, 0.375)),
        BudgetState(lost, lost),
        BudgetState(lost),
        BudgetState(lost),
        BudgetState(spent, spent),
    ]


@pytest.mark.dialects
async def test_replicas_that_ask_at_once_never_hold_more_than_there_is(store: Store, store_url: str) -> None:
    """Two stores on one database, each with its own writer."""
    async with opened(store_url) as other, asyncio.timeout(60):
        asked = [
            one.judge_cache.reserve(held(f"{place}-{number}", 3), BudgetConfig(tokens=50))
            for number in range(20)
            for place, one in enumerate((store, other))
        ]
        admitted = [admission.admits for admission in await asyncio.gather(*asked)]
    state = await store.judge_cache.get_budget_state("big")
    assert (admitted.count("now"), state) == (16, BudgetState(open=Amount(48, 6.0)))


async def test_only_what_is_young_enough_is_kept(store_url: str, clock: MovableClock) -> None:
    store = Store.open(store_url, MIGRATIONS, clock=clock, judgement_days=1.0)
    for number in range(200):
        clock.forward(1)
        await store.judge_cache.put(USABLE.model_copy(update={"reading": f"r{number}"}))
    kept = [await store.judge_cache.get(f"r{number}") is not None for number in (0, 199)]
    clock.forward(86_400)
    kept += [await store.judge_cache.get(f"r{number}") is not None for number in (198, 199)]
    await store.close()
    assert kept == [True, True, False, True]


async def test_references_of_a_scene_are_those_that_were_stored_first(store: Store) -> None:
    replies: list[dict[ReferenceKind, str]] = [{"plain": "Aye.\x00"}, {"plain": "No."}]
    first, second = (References(replies=one, judge="big", model="m") for one in replies)
    before = await store.references.get("s")
    stored = [await store.references.put("s", one) for one in (first, second)]
    assert [before, *stored, await store.references.get("s")] == [None, first, first, first]


@pytest.mark.dialects
def test_of_two_stores_that_write_the_references_of_a_scene_at_once_the_first_counts_for_both(store_url: str) -> None:
    def write(own: int, gate: Barrier) -> list[References]:
        async def scenario(store: Store) -> list[References]:
            kept = []
            for scene in range(20):
                gate.wait(60)
                mine = References(replies={"plain": f"Aye {own}."}, judge="big", model="m")
                kept.append(await store.references.put(f"s{scene}", mine))
            return kept

        return using(store_url, scenario)

    with ThreadPoolExecutor(2) as threads:
        gate = Barrier(2)
        first, second = threads.map(write, (1, 2), (gate, gate))
    assert first == second
