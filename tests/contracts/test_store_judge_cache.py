"""What judges answered and spent."""

import asyncio
from datetime import timedelta

from app.domain.judging import Judgement, Spending, Verdict
from app.ports import GroupToStore, Recalled
from app.store.judge_cache import Keeping
from app.store.store import Store
from tests.contracts.store_cases import START, MovableClock, group, record, using
from tests.databases import MIGRATIONS

USABLE = Judgement(
    judge="big",
    model="m",
    order=("a", "b"),
    verdicts=(Verdict(candidate="a", scores={"charm": 0.5}, note="\x00 🐟 \ud800"),),
    ranking=(("a",), ("b",)),
    prompt="long",
    raw="{}",
    input_tokens=100,
    output_tokens=20,
    cost_usd=0.1,
    calls=1,
    reading="r1",
)
FAILED = USABLE.model_copy(update={"verdicts": (), "ranking": (), "error": "no", "failure": "unusable"})


def test_a_usable_judgement_is_found_again_by_what_was_asked(store_url: str) -> None:
    async def scenario(store: Store) -> tuple[Recalled | None, ...]:
        await store.judge_cache.put(USABLE)
        await store.judge_cache.put(FAILED.model_copy(update={"reading": "r2"}))
        return await store.judge_cache.get("r1"), await store.judge_cache.get("r2"), await store.judge_cache.get("r3")

    without_prompt = USABLE.model_copy(update={"prompt": ""})
    assert using(store_url, scenario) == (Recalled(without_prompt, claimed=False), None, None)


def test_it_is_claimed_once_a_group_holds_it(store_url: str) -> None:
    async def scenario(store: Store) -> list[bool]:
        await store.tasks.put([record(0)])
        await store.judge_cache.put(USABLE)
        claims = [await store.judge_cache.get("r1")]
        whole = group("g", task_id="task_0")
        await store.groups.add([GroupToStore(whole.group, (USABLE,))])
        claims.append(await store.judge_cache.get("r1"))
        return [claim.claimed for claim in claims if claim is not None]

    assert using(store_url, scenario) == [False, True]


def test_spending_adds_up_by_judge_and_day_and_survives(store_url: str) -> None:
    clock = MovableClock()

    async def spend(store: Store) -> None:
        await asyncio.gather(*(store.judge_cache.put(judgement) for judgement in [USABLE, FAILED] * 5))
        clock.forward(86_400)
        await store.judge_cache.put(USABLE)
        await store.judge_cache.put(USABLE.model_copy(update={"judge": "small", "cost_usd": None}))

    async def look(store: Store) -> list[Spending]:
        today = START + timedelta(days=1)
        return [
            await store.judge_cache.spending("big"),
            await store.judge_cache.spending("big", today),
            await store.judge_cache.spending("small"),
            await store.judge_cache.spending("none"),
        ]

    using(store_url, spend, clock)
    one = Spending(readings=1, calls=1, input_tokens=100, output_tokens=20, cost_usd=0.1)
    total, *others = using(store_url, look, clock)
    assert total.model_copy(update={"cost_usd": round(total.cost_usd, 9)}) == Spending(
        readings=11, calls=11, input_tokens=1100, output_tokens=220, cost_usd=1.1
    )
    assert others == [one, one.model_copy(update={"cost_usd": 0.0}), Spending()]


def test_only_what_is_young_enough_and_the_newest_are_kept(store_url: str) -> None:
    clock = MovableClock()

    async def scene() -> list[bool]:
        store = Store.open(store_url, MIGRATIONS, clock=clock, judgements=Keeping(days=1.0, entries=50))
        try:
            for number in range(200):
                clock.forward(1)
                await store.judge_cache.put(USABLE.model_copy(update={"reading": f"r{number}"}))
            kept = [await store.judge_cache.get(f"r{number}") is not None for number in (149, 150, 199)]
            clock.forward(86_400)
            return [*kept, await store.judge_cache.get("r198") is not None, await store.judge_cache.get("r199") is None]
        finally:
            await store.close()

    assert asyncio.run(scene()) == [False, True, True, False, False]
