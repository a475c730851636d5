"""What keys use and hold, on both databases: counted once, whatever happens to leases, groups and processes."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, text

from app.domain.access import Caller, work_for
from app.domain.budgets import Amount, KeyQuotas, KeyUsage
from app.domain.judging import Judgement
from app.domain.parts import GroupSlot, RetryWindows
from app.domain.scores import Score
from app.main.store import Store
from app.store.budgets import HandOut, HandOutPart, JudgingDemand, JudgingRequest, NoRoom
from app.store.group_rows import GroupToStore
from app.store.tables import holds
from tests.store.test_parts import sample
from tests.store.test_plans import statements_made
from tests.support.databases import Postgres
from tests.support.store_cases import MovableClock, cycle, group, opened, record, stream

BOUND = Amount(1000, 1.0)
HALF = Amount(500, 0.5)
DAY = KeyQuotas(requests_per_day=100, judge_usd_per_day=10.0, leases=8)
PAID = Judgement(judge="j", model="m", order=("a",), calls=1, input_tokens=30, output_tokens=12, cost_usd=0.5)


def ask(count: int, *, quotas: KeyQuotas = DAY, leased: bool = True, run: str | None = "run") -> HandOut:
    return HandOut("ada", quotas, run, leased, (HandOutPart("gsm8k", count, BOUND),))


def demand(quotas: KeyQuotas, *demands: JudgingDemand, key: str = "ada") -> JudgingRequest:
    return JudgingRequest(key, quotas, demands, needs_request=False)


async def hand_out(store: Store, count: int, seconds: float = 60.0) -> list[str]:
    """Leases of tasks for which something is reserved."""
    grant = await store.quotas.reserve(ask(count))
    leased = await store.tasks.lease(stream(), count, seconds, cycle(100))
    names = [lease.lease_id for lease in leased.leases]
    await store.quotas.confirm("ada", grant.hold, dict.fromkeys(names, grant.expected["gsm8k"]))
    return names


def show(usage: KeyUsage) -> tuple[int, int, float, float]:
    return usage.requests, usage.leases, usage.held_usd, usage.judge_usd


async def test_what_is_put_aside_is_free_when_a_group_is_scored_and_when_its_lease_is_over(
    store: Store, clock: MovableClock
) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    first, second, _ = await hand_out(store, 3)
    seen = [await store.quotas.load_usage("ada")]
    await store.groups.add([group("waits", [Score.pending()], lease_id=first, sender="ada")])
    seen.append(await store.quotas.load_usage("ada"))
    await store.groups.add([group("scored", task_id="task_1", lease_id=second, sender="ada")])
    seen.append(await store.quotas.load_usage("ada"))
    clock.forward(61)
    seen.append(await store.quotas.load_usage("ada"))
    assert [show(one) for one in seen] == [(1, 3, 3.0, 0.0), (1, 2, 3.0, 0.0), (1, 1, 2.0, 0.0), (1, 0, 1.0, 0.0)]


async def count_holds(store: Store) -> int:
    counted = select(func.count()).select_from(holds)
    return await store.views.database.read(lambda connection: connection.execute(counted).scalar_one())


async def test_what_was_put_aside_for_leases_that_nobody_answered_is_forgotten(
    store: Store, clock: MovableClock
) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    await hand_out(store, 3)
    held = [await count_holds(store)]
    for hours in (1, 24):
        clock.forward(hours * 3600)
        await store.quotas.admit_judging(demand(DAY, JudgingDemand("g", "gsm8k", BOUND, "a")))
        held.append(await count_holds(store))
    assert held == [4, 2, 1]  # with the run's own admission


async def test_what_is_overdue_is_forgotten_once_in_a_batch_row_by_row(store: Store) -> None:
    """A list of names is compared with each row by PostgreSQL, as long as it has no statistics."""
    cap = KeyQuotas(judge_usd_per_day=9.0, hard=True)
    asked = [demand(cap, *(JudgingDemand(f"{batch} {n}", "gsm8k", BOUND) for n in range(2))) for batch in range(2)]
    made = await statements_made({"admit": asyncio.gather(*map(store.quotas.admit_judging, asked))})
    deleting = [statement for statement, _ in made["admit"] if statement.startswith("DELETE")]
    assert [(one.count("FROM holds"), one.count("JOIN")) for one in deleting] == [(1, 0)]


async def test_a_batch_whose_process_died_is_free_after_a_minute(store: Store, clock: MovableClock) -> None:
    await store.quotas.reserve(ask(8))
    seen = [await store.quotas.load_usage("ada")]
    clock.forward(61)
    assert [show(one) for one in [*seen, await store.quotas.load_usage("ada")]] == [(1, 8, 8.0, 0.0), (1, 0, 0.0, 0.0)]


@pytest.mark.dialects
async def test_judgements_are_charged_to_the_key_that_they_were_made_for_on_their_day(
    store: Store, clock: MovableClock
) -> None:
    for name in ("ada", "ada", "bob"):
        with work_for(Caller(name, frozenset())):
            await store.judge_cache.put(PAID)
    await store.judge_cache.put(PAID)
    today = [await store.quotas.load_usage(name) for name in ("ada", "bob", "")]
    clock.forward(86_400)
    tomorrow = [await store.quotas.load_usage("ada")]
    assert [(one.judge_tokens, one.judge_usd) for one in [*today, *tomorrow]] == [
        (84, 1.0),
        (42, 0.5),
        (0, 0.0),
        (0, 0.0),
    ]


async def test_a_group_is_expected_to_cost_what_groups_of_its_run_did(store: Store) -> None:
    await store.tasks.put([record(0)])
    before = await store.quotas.reserve(ask(1))
    await store.groups.add([group(f"g{number}", judgements=(PAID,)) for number in range(8)])
    grants = [before, await store.quotas.reserve(ask(1)), await store.quotas.reserve(ask(1, run="other"))]
    assert [grant.expected["gsm8k"] for grant in grants] == [BOUND, Amount(42, 0.5), BOUND]


async def test_a_run_without_leases_is_admitted_for_the_day_as_long_as_there_is_room(
    store: Store, clock: MovableClock
) -> None:
    narrow = KeyQuotas(judge_usd_per_day=0.4)
    spent = "judge_usd_per_day"

    async def admit(run: str) -> str | None:
        grant = await store.quotas.admit_judging(demand(narrow, JudgingDemand("g", "gsm8k", BOUND, run)))
        return grant.refused["g"].quota if grant.refused else None

    answers = [await admit("early")]
    with work_for(Caller("ada", frozenset())):
        await store.judge_cache.put(PAID)
    answers += [await admit("early"), await admit("late")]
    refused = await store.quotas.reserve(ask(1, quotas=narrow, leased=False))
    answers.append(None if refused.exceeded is None else refused.exceeded.quota)
    clock.forward(86_400)
    assert [*answers, await admit("late")] == [None, None, spent, spent, None]


@pytest.mark.dialects
async def test_a_run_that_was_handed_tasks_is_admitted_for_a_day(store: Store, clock: MovableClock) -> None:
    narrow = KeyQuotas(judge_usd_per_day=1.0)
    clock.forward(20 * 3600)  # an hour before midnight
    await store.quotas.reserve(ask(1, quotas=narrow, leased=False, run=None))
    clock.forward(3600)
    with work_for(Caller("ada", frozenset())):
        await asyncio.gather(*(store.judge_cache.put(PAID) for _ in range(2)))
    asked = [demand(narrow, JudgingDemand("g", "gsm8k", BOUND, run)) for run in (None, "other")]
    assert [bool((await store.quotas.admit_judging(one)).refused) for one in asked] == [False, True]


@pytest.mark.dialects
async def test_four_services_hand_out_no_more_than_the_quotas_allow(store: Store, store_url: str) -> None:
    quotas = KeyQuotas(leases=10, requests_per_day=1000, judge_usd_per_day=7.5)
    async with opened(store_url) as second, opened(store_url) as third, opened(store_url) as fourth:
        every = [store, second, third, fourth] * 6
        grants = await asyncio.gather(*(one.quotas.reserve(ask(1, quotas=quotas)) for one in every))
    usage = await store.quotas.load_usage("ada")
    refused = {grant.exceeded.quota for grant in grants if grant.exceeded is not None}
    assert (sum(grant.exceeded is None for grant in grants), refused, show(usage)) == (
        7,
        {"judge_usd_per_day"},
        (7, 7, 7.0, 0.0),
    )


async def test_a_batch_locks_all_keys_and_scopes_before_its_first_unit(postgres: Postgres) -> None:
    """Otherwise two replicas can each hold a lock that the other waits for."""
    mine = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    asked = demand(DAY, JudgingDemand("g", "gsm8k", BOUND))
    async with opened(postgres.migrated()) as store:
        await store.tasks.put([record(0)])
        locked, *_ = await asyncio.gather(
            store.views.database.write(lambda connection: connection.execute(mine).scalar_one()),
            store.quotas.admit_judging(asked),
            store.quotas.reserve(ask(1)),
            store.quotas.give_back("bob", ()),
            store.parts.assign_slot(sample("a"), RetryWindows(), asked),
            store.parts.assign_slot(sample("b", scope="other"), RetryWindows()),
        )
    assert locked == 4


async def test_a_batch_that_cannot_be_made_holds_nothing(store: Store) -> None:
    grant = await store.quotas.reserve(ask(4))
    await store.quotas.confirm("ada", grant.hold, {})
    assert show(await store.quotas.load_usage("ada")) == (1, 0, 0.0, 0.0)


async def ask_for(store: Store, quotas: KeyQuotas, *demands: JudgingDemand, key: str = "ada") -> list[bool]:
    """Whether each of these may be judged."""
    refused = (await store.quotas.admit_judging(demand(quotas, *demands, key=key))).refused
    return [one.name not in refused for one in demands]


def answer_to(lease: str, name: str = "first", **more: Any) -> JudgingDemand:
    return JudgingDemand(name, "gsm8k", BOUND, "run", lease_id=lease, **more)


THREE = KeyQuotas(judge_usd_per_day=3.0)


@pytest.mark.dialects
async def test_a_lease_pays_for_the_first_group_that_names_it_and_for_its_repeats(store: Store) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    first, second, third = await hand_out(store, 3)
    answers = await ask_for(store, THREE, answer_to(first), answer_to(first, places=(1,)), answer_to(first, "other"))
    answers += await ask_for(store, THREE, answer_to(second), key="bob")
    await store.groups.add([group("first", [Score.pending()], lease_id=first, sender="ada")])
    answers += await ask_for(store, THREE, answer_to(first), answer_to(first, "other"), answer_to(second, "second"))
    await store.groups.finish([group("first", lease_id=first, sender="ada", judgements=(PAID,))])
    answers += await ask_for(store, THREE, answer_to(first), answer_to(first, "other"), answer_to(third, "third"))
    # What the first has left is room for another group, and then for none.
    answers += await ask_for(store, THREE, answer_to(first, "one more"))
    assert answers == [True, True, False, True, True, False, True, True, True, True, False]


async def test_a_group_whose_judges_failed_is_tried_again_under_its_lease(store: Store) -> None:
    """Also where nothing is left; another group of the lease is not."""
    await store.tasks.put([record(index) for index in range(4)])
    (lease,) = await hand_out(store, 1)
    used_up = KeyQuotas(judge_usd_per_day=1e-6)
    answers = await ask_for(store, used_up, answer_to(lease))
    failed = group("first", [Score.unscored("judge_failed", "away")], lease_id=lease, sender="ada")
    await store.groups.add([failed])
    answers += await ask_for(store, used_up, answer_to(lease), answer_to(lease, "other"))
    answers += await ask_for(store, KeyQuotas(judge_usd_per_day=1e-6, hard=True), answer_to(lease))
    assert answers == [True, True, False, False]


@pytest.mark.dialects
async def test_a_group_that_stays_unscored_takes_nothing_when_it_comes_again(store: Store) -> None:
    await store.tasks.put([record(0)])
    failed, stale = Score.unscored("judge_failed", "away"), Score.unscored("stale")
    scores = {"masked": [failed], "stale": [stale, stale], "half stale": [stale, failed]}
    await store.groups.add([group(name, given) for name, given in scores.items()])
    await store.groups.mask("masked")
    full = KeyQuotas(judge_usd_per_day=0.5, hard=True)
    answers = await ask_for(store, full, *(JudgingDemand(name, "gsm8k", BOUND) for name in scores))
    assert answers == [True, True, False]


async def test_a_lease_that_is_over_pays_for_nothing_unless_its_group_came_before(
    store: Store, clock: MovableClock
) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    early, late = await hand_out(store, 2)
    narrow = KeyQuotas(judge_usd_per_day=1.5)
    answers = await ask_for(store, narrow, answer_to(early))
    clock.forward(61)
    usage = await store.quotas.load_usage("ada")
    answers += await ask_for(store, narrow, answer_to(early), answer_to(late, "late"))
    assert (answers, usage.held_usd, usage.leases) == ([True, True, False], 1.0, 0)


@pytest.mark.dialects
async def test_of_many_groups_that_name_one_lease_at_four_services_one_is_paid_for(
    store: Store, store_url: str
) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    (lease,) = await hand_out(store, 1)
    async with opened(store_url) as second, opened(store_url) as third, opened(store_url) as fourth:
        every = [store, second, third, fourth] * 6
        asked = [ask_for(one, THREE, answer_to(lease, f"g{number}")) for number, one in enumerate(every)]
        answers = await asyncio.gather(*asked)
    # The lease keeps one of the three dollars, and the others are room for two more groups.
    assert (sum(map(sum, answers)), show(await store.quotas.load_usage("ada"))) == (3, (1, 1, 3.0, 0.0))


@pytest.mark.dialects
async def test_a_hard_quota_is_a_cap_for_runs_without_leases_at_four_services(store: Store, store_url: str) -> None:
    cap = KeyQuotas(judge_usd_per_day=5.5, hard=True)
    async with opened(store_url) as second, opened(store_url) as third, opened(store_url) as fourth:
        every = [store, second, third, fourth] * 6
        asked = [ask_for(one, cap, JudgingDemand(f"g{n}", "gsm8k", BOUND, "file")) for n, one in enumerate(every)]
        answers = await asyncio.gather(*asked)
    soft = await ask_for(store, KeyQuotas(judge_usd_per_day=5.5), JudgingDemand("soft", "gsm8k", BOUND, "file"))
    assert (sum(map(sum, answers)), soft) == (5, [True])


async def test_a_hard_quota_asks_for_the_rest_of_a_group_that_is_larger_than_its_lease(store: Store) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    (lease,) = await hand_out(store, 1)
    large = JudgingDemand("first", "gsm8k", BOUND.times(3), "run", lease_id=lease)
    answers = [await ask_for(store, KeyQuotas(judge_usd_per_day=limit, hard=True), large) for limit in (2.5, 3.0)]
    assert (answers, show(await store.quotas.load_usage("ada"))) == ([[False], [True]], (1, 1, 3.0, 0.0))


@pytest.mark.dialects
async def test_samples_that_name_no_lease_take_what_the_lease_of_their_task_has_kept(store: Store) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    await hand_out(store, 1)
    samples = [JudgingDemand(f"s{n}", "gsm8k", HALF, "run", "task_0") for n in range(3)]
    full = KeyQuotas(judge_usd_per_day=1.0, hard=True)
    answers = [await ask_for(store, full, one) for one in samples]
    assert (answers, show(await store.quotas.load_usage("ada"))) == ([[True], [True], [False]], (1, 1, 1.0, 0.0))


async def test_a_group_that_comes_again_takes_no_more_of_the_lease_of_its_task(store: Store) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    await hand_out(store, 1)
    full = KeyQuotas(judge_usd_per_day=1.0, hard=True)
    half = [JudgingDemand(name, "gsm8k", HALF, "run", "task_0") for name in ("a", "a", "b", "c")]
    answers = [await ask_for(store, full, one) for one in half]
    assert (answers, show(await store.quotas.load_usage("ada"))) == (
        [[True], [True], [True], [False]],
        (1, 1, 1.0, 0.0),
    )


async def test_what_is_reserved_lasts_as_long_as_its_group_is_judged(store: Store, clock: MovableClock) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    (lease,) = await hand_out(store, 1)
    cap = KeyQuotas(judge_usd_per_day=9.0, hard=True)
    await ask_for(
        store, cap, answer_to(lease, "led"), *(JudgingDemand(name, "gsm8k", BOUND) for name in ("own", "died"))
    )
    waits = [group(name, [Score.pending()], lease_id=of, sender="ada") for name, of in (("led", lease), ("own", None))]
    await store.groups.add(waits)
    held = [(await store.quotas.load_usage("ada")).held_usd]
    clock.forward(5 * 3600)
    held.append((await store.quotas.load_usage("ada")).held_usd)
    await ask_for(store, cap, JudgingDemand("next", "gsm8k", BOUND))  # forgets what is overdue
    held.append((await store.quotas.load_usage("ada")).held_usd)
    await store.groups.finish([group("led", lease_id=lease, sender="ada"), group("own", sender="ada")])
    held.append((await store.quotas.load_usage("ada")).held_usd)
    assert held == [3.0, 2.0, 3.0, 1.0]


async def test_the_first_sample_reserves_what_its_group_may_take_and_the_others_nothing(store: Store) -> None:
    await store.tasks.put([record(0)])
    asked = demand(KeyQuotas(judge_usd_per_day=1.0, hard=True), JudgingDemand("", "gsm8k", BOUND))
    held: list[float] = []

    async def send(text: str, scope: str = "scope") -> GroupSlot | None:
        """Whose sender leaves before it is answered; None where there is no room for it."""
        one = sample(text, scope=scope)
        one = replace(one, group=one.group.model_copy(update={"sender": "ada"}))
        slot: GroupSlot | None = None
        with suppress(NoRoom):
            slot = await store.parts.assign_slot(one, RetryWindows(), asked)
            await store.parts.release_slot(slot, answered=False)
        held.append((await store.quotas.load_usage("ada")).held_usd)
        return slot

    async def finish(slot: GroupSlot | None, score: Score) -> None:
        assert slot is not None
        stored = (await store.groups.find([slot.group_id]))[slot.group_id]
        await store.groups.finish([GroupToStore(stored.merge_scores([score, score]))])

    first, again, last, other, pending = [
        await send(*said) for said in (("a",), ("a",), ("b",), ("c", "other"), ("a",))
    ]
    await finish(last, Score.unscored("judge_failed", "away"))
    retried = await send("a")  # all of its group is judged again
    await finish(retried, Score.exact(True))
    after = await send("b")
    places = [None if slot is None else (slot.group_id, slot.places) for slot in (again, other, pending, retried)]
    assert first is not None
    assert after is not None
    assert (places, held) == (
        [(first.group_id, (0,)), None, (first.group_id, (0,)), (first.group_id, (0,))],
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    )


async def test_what_samples_reserve_lasts_as_long_as_their_group_waits_for_others(
    store: Store, clock: MovableClock
) -> None:
    await store.tasks.put([record(0)])
    asked = demand(KeyQuotas(judge_usd_per_day=1.0, hard=True), JudgingDemand("", "gsm8k", BOUND))
    held: list[float] = []
    for hours, said in ((0, "a"), (20, "b")):
        clock.forward(hours * 3600)
        held.append((await store.quotas.load_usage("ada")).held_usd)
        await store.parts.assign_slot(sample(said, seconds=86_400), RetryWindows(), asked)
    clock.forward(5 * 3600)
    assert [*held, (await store.quotas.load_usage("ada")).held_usd] == [0.0, 1.0, 1.0]


async def test_a_sample_without_room_closes_a_group_whose_time_is_over_all_the_same(
    store: Store, clock: MovableClock
) -> None:
    await store.tasks.put([record(0)])
    first = await store.parts.assign_slot(sample("a", seconds=1), RetryWindows())
    clock.forward(2)
    asked = demand(KeyQuotas(judge_usd_per_day=0.1, hard=True), JudgingDemand("", "gsm8k", BOUND))
    with pytest.raises(NoRoom) as refused:
        await store.parts.assign_slot(sample("b"), RetryWindows(), asked)
    assert [(one.group_id, len(one.rollouts), one.outcome) for one in refused.value.begun] == [
        (first.group_id, 1, "pending")
    ]


async def test_pieces_after_their_group_closed_need_room_under_a_hard_quota(store: Store) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    await store.groups.add([group("closed", sender="ada")])
    piece = JudgingDemand("closed", "gsm8k", BOUND, "run", places=(3,), late_name="late")
    answers = [await ask_for(store, KeyQuotas(judge_usd_per_day=0.5, hard=hard), piece) for hard in (False, True)]
    await store.groups.add([group("late", sender="ada")])
    answers.append(await ask_for(store, KeyQuotas(judge_usd_per_day=0.5, hard=True), piece))  # a repeat takes nothing
    assert answers == [[True], [False], [True]]


async def test_a_key_releases_what_it_reserved_itself(store: Store) -> None:
    same = JudgingDemand("same", "gsm8k", BOUND, needs_room=True)
    grants = [await store.quotas.admit_judging(demand(THREE, same, key=key)) for key in ("ada", "bob")]
    await store.quotas.give_back("bob", tuple(grants[1].reserved.values()))
    held = [(await store.quotas.load_usage(key)).held_usd for key in ("ada", "bob")]
    assert held == [1.0, 0.0]


async def test_what_is_given_back_is_what_nobody_else_asked_for(store: Store) -> None:
    """A lease pays for another group again, and has what was moved from it; the last who relies on something frees
    it."""
    await store.tasks.put([record(index) for index in range(4)])
    paying, unnamed = await hand_out(store, 2)
    cap = KeyQuotas(judge_usd_per_day=5.0, hard=True)
    more = JudgingDemand("larger", "gsm8k", BOUND.times(2), "run", "task_1")
    shared = JudgingDemand("shared", "gsm8k", BOUND, needs_room=True)
    asked = demand(cap, answer_to(paying), more, shared, shared)
    reserved = (await store.quotas.admit_judging(asked)).reserved
    again = (await store.quotas.admit_judging(demand(cap, answer_to(paying), shared))).reserved
    held = [(await store.quotas.load_usage("ada")).held_usd]
    for given in (reserved, again):
        await store.quotas.give_back("ada", tuple(given.values()))
        held.append((await store.quotas.load_usage("ada")).held_usd)
    answers = await ask_for(store, cap, answer_to(paying, "other"))
    held.append((await store.quotas.load_usage("ada")).held_usd)
    assert (list(reserved), list(again), held, answers, unnamed != paying) == (
        ["first", "larger", "shared"],
        ["first", "shared"],
        [4.0, 3.0, 2.0, 2.0],
        [True],
        True,
    )


async def test_what_is_over_a_quota_is_told(store: Store) -> None:
    with work_for(Caller("ada", frozenset())):
        await store.judge_cache.put(PAID)
    (use,) = (await store.quotas.load_usage("ada")).list_uses(KeyQuotas(judge_usd_per_day=0.3))
    told = use.describe().partition(", until")[0]
    assert (round(use.over, 9), told) == (0.2, "judge_usd_per_day is 0.3: 0.5 used, 0.2 over, 0 free")
