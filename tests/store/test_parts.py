"""Groups whose completions do not come together: whole, in time, counted once, whoever comes and goes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import InvalidRequest, NotFound
from app.domain.groups import Group, Rollout
from app.domain.parts import Arrival, GroupSlot, RetryWindows
from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.domain.values import utc_now
from app.main.store import Store
from app.store.group_rows import GroupToStore
from tests.store.test_groups import refused
from tests.support.store_cases import MovableClock, cycle, group, opened, record, stream

HOSTILE = "NUL \x00, emoji \U0001f9d9, quote ' and \\u0000"
WINDOWS = RetryWindows(late=120, retry=600)


@pytest.fixture(autouse=True)
async def put_task(store: Store) -> None:
    await store.tasks.put([record(0)])


def shared(group_id: str = "group_of_sample", lease_id: str | None = None) -> Group:
    """What completions have in common."""
    return Group(
        group_id=group_id,
        task_id="task_0",
        environment="gsm8k",
        run="run",
        lease_id=lease_id,
        policy=Policy(model=HOSTILE, step=3),
        purpose="train",
        outcome="pending",
        rollouts=(),
        created_at=utc_now(),
    )


def sample(text: str, size: int = 2, scope: str = "scope", seconds: float = 60) -> Arrival:
    return Arrival(shared(), (said(text),), scope=scope, key=HOSTILE, size=size, seconds=seconds)


def piece(group_id: str, index: int, *texts: str, size: int, seconds: float = 60) -> Arrival:
    completions = tuple(said(text) for text in texts)
    group = shared(group_id)
    return Arrival(group, completions, scope=group_id, key=HOSTILE, size=size, seconds=seconds, place=index)


def said(text: str) -> Completion:
    return Completion(text=text, finish_reason="stop", extra={"n": 1})


def answered(pending: Group) -> GroupToStore:
    rollouts = tuple(one.model_copy(update={"score": Score.exact(True)}) for one in pending.rollouts)
    return GroupToStore(pending.model_copy(update={"rollouts": rollouts}))


async def arrive(store: Store, index: int, *texts: str, size: int = 2, group_id: str = "group_a") -> GroupSlot:
    return await store.parts.assign_slot(piece(group_id, index, *texts, size=size), WINDOWS)


async def seat(store: Store, index: int, *texts: str, size: int = 2) -> GroupSlot | InvalidRequest:
    """What it arrives at, or why it does not fit."""
    try:
        return await arrive(store, index, *texts, size=size)
    except InvalidRequest as error:
        return error


async def take(store: Store, text: str, size: int = 2, scope: str = "scope") -> GroupSlot:
    return await store.parts.assign_slot(sample(text, size, scope), WINDOWS)


def shown(group: Group) -> tuple[list[str], tuple[str, ...], str]:
    """What each rollout says, with the flags and the outcome."""
    return [f"{one.rollout_id[-1]}:{one.completion.text}" for one in group.rollouts], group.flags, group.outcome


def begun(seats: Sequence[GroupSlot | InvalidRequest]) -> list[tuple[list[str], tuple[str, ...], str]]:
    """Every group that these have closed."""
    return [shown(group) for seat in seats if isinstance(seat, GroupSlot) for group in seat.begun]


async def test_pieces_become_a_pending_group_in_the_order_of_their_places(store: Store, clock: MovableClock) -> None:
    open_seat = GroupSlot("group_a", "group_a", (1, 2), open=True)
    begun, whole = (["1:b", f"2:{HOSTILE}"], (), "pending"), (["0:a", "1:b", f"2:{HOSTILE}"], (), "pending")
    first = await arrive(store, 1, "b", HOSTILE, size=3)
    stored = await store.groups.find(["group_a"])
    come = shown((await store.parts.load_open_groups(["group_a", "none", "\x00"]))["group_a"])
    last = await arrive(store, 0, "a", size=3)
    (group,) = last.begun
    assert (group.policy, group.run, group.rollouts[0].completion) == (shared().policy, "run", said("a"))
    assert await store.groups.find(["group_a"]) == {"group_a": group}
    assert (first, stored, come, shown(group), last.open, await store.parts.load_open_groups(["group_a"])) == (
        open_seat,
        {},
        begun,
        whole,
        False,
        {},
    )


async def test_repeats_change_nothing_and_what_does_not_fit_is_named(store: Store, clock: MovableClock) -> None:
    pieces = [(0, "a", 3), (0, "a", 3), (0, "b", 3), (1, "b", 4), (1, "b", 3), (2, "c", 3), (2, "c", 3), (2, "d", 3)]
    seats = [await seat(store, index, text, size=size) for index, text, size in pieces]
    fields = [one.field if isinstance(one, InvalidRequest) else one.open for one in seats]
    assert fields == [True, True, "part.index", "part.size", True, False, False, "part.index"]
    assert begun(seats) == [(["0:a", "1:b", "2:c"], (), "pending")]


@pytest.mark.parametrize("by", ["sweep", "piece"])
async def test_at_the_deadline_it_is_closed_without_those_that_are_missing(
    store: Store, clock: MovableClock, by: str
) -> None:
    partial, alone = (["1:b"], ("partial_group",), "pending"), (["0:a"], ("late",), "pending")
    expected = [False, False, "part.index", "part.index"]
    await arrive(store, 1, "b", size=4)
    clock.forward(59)
    early = (await store.parts.get_status([])).due, await store.parts.claim_due(9)
    clock.forward(1)
    due = (await store.parts.get_status([])).due
    groups = await store.parts.claim_due(9) if by == "sweep" else []
    seats = [await seat(store, 0, "a", size=4), await seat(store, 0, "a", size=4)]
    seats += [await seat(store, 0, "x", size=4), await seat(store, 1, "b", "c", size=4)]
    homes = [one.field if isinstance(one, InvalidRequest) else one.group_id == "group_a" for one in seats]
    assert (
        early,
        due,
        [shown(group) for group in groups] + begun(seats),
        homes,
        len(await store.parts.claim_due(9)),
    ) == ((False, []), True, [partial, alone], expected, 0)


async def test_a_piece_that_is_refused_closes_no_group(store: Store, clock: MovableClock) -> None:
    await arrive(store, 1, "b", size=4)
    clock.forward(60)
    refusal = await seat(store, 1, "b", "c", size=4)
    assert isinstance(refusal, InvalidRequest)
    assert [shown(group) for group in await store.parts.claim_due(9)] == [(["1:b"], ("partial_group",), "pending")]


async def test_closing_completes_the_lease_that_the_pieces_answer(store: Store) -> None:
    leased = await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))
    lease_id = leased.leases[0].lease_id
    for place in range(2):
        before = (await store.tasks.lease(stream(), 0, 60, cycle(1, epochs=1))).outstanding
        answer = replace(piece("group_a", place, "a", size=2), group=shared("group_a", lease_id))
        (*_, last) = (await store.parts.assign_slot(answer, WINDOWS)).begun or (None,)
    after = (await store.tasks.lease(stream(), 0, 60, cycle(1, epochs=1))).outstanding
    assert last is not None
    assert (before, last.flags, last.lease_id == lease_id, after) == (1, (), True, 0)


@pytest.mark.dialects
async def test_of_many_pieces_at_once_over_two_replicas_one_closes_the_group(store: Store, store_url: str) -> None:
    async with opened(store_url) as replica:
        sides = [(replica if n % 2 else store, n) for n in range(64)]
        seats = await asyncio.gather(*(arrive(side, n % 32, f"{n % 32}", size=32) for side, n in sides))
    (group,) = (await store.groups.find(["group_a"])).values()
    assert ([rollout.completion.text for rollout in group.rollouts], len(begun(seats))) == (
        [str(n) for n in range(32)],
        1,
    )


@pytest.mark.dialects
async def test_a_piece_may_close_its_group(store: Store, clock: MovableClock) -> None:
    """Also one that is sent again, and the only one."""
    one, other = piece("group_a", 1, "b", size=3), piece("group_b", 0, "a", size=3)
    await store.parts.assign_slot(one, WINDOWS)
    again = await store.parts.assign_slot(replace(one, closes=True), WINDOWS)
    only = await store.parts.assign_slot(replace(other, closes=True), WINDOWS)
    partial = ("partial_group",)
    assert begun([again, only]) == [(["1:b"], partial, "pending"), (["0:a"], partial, "pending")]


@pytest.mark.dialects
async def test_samples_fill_a_group_and_then_the_next(store: Store, clock: MovableClock) -> None:
    """Equal ones are siblings while their holders wait, or have got their answer."""
    groups = [(["0:a", "1:a"], (), "pending")] * 2
    seated = [(0, 0), (0, 1), (2, 0), (2, 1), (4, 0)]
    seats = [await take(store, text) for text in ("a", "a", "a")]
    for seat in seats[:2]:
        await store.parts.release_slot(seat, answered=True)
    seats += [await take(store, "a"), await take(store, "a", scope="other")]
    ids = [seat.group_id for seat in seats]
    assert ([(ids.index(seat.group_id), *seat.places) for seat in seats], begun(seats)) == (seated, groups)


@pytest.mark.parametrize("closed", [False, True])
async def test_who_left_takes_its_place_again(store: Store, clock: MovableClock, closed: bool) -> None:
    seat = await take(store, "a")
    other = await take(store, "b") if closed else None
    await store.parts.release_slot(seat, answered=False)
    again, third = await take(store, "a"), await take(store, "a")
    same = (again.group_id, again.places, again.open) == (seat.group_id, seat.places, not closed)
    joined = third.group_id == seat.group_id
    assert (same, again.holder != seat.holder, joined, other is None or len(other.begun)) == (
        True,
        True,
        not closed,
        True,
    )


async def test_a_holder_that_comes_to_its_end_late_takes_nothing_from_the_next(
    store: Store, clock: MovableClock
) -> None:
    first = await take(store, "a")
    await store.parts.release_slot(first, answered=False)
    second = await take(store, "a")
    await store.parts.release_slot(first, answered=False)
    third = await take(store, "a")
    assert (second.places, third.places) == ((0,), (1,))


async def test_an_equal_sample_long_after_is_another_one(store: Store, clock: MovableClock) -> None:
    seat = await take(store, "a", size=1)
    await store.parts.release_slot(seat, answered=False)
    clock.forward(599)
    again = await take(store, "a", size=1)
    await store.parts.release_slot(again, answered=False)
    clock.forward(600)
    later = await take(store, "a", size=1)
    assert (again.group_id == seat.group_id, later.group_id == seat.group_id, len(again.begun), len(later.begun)) == (
        True,
        False,
        0,
        1,
    )


async def test_after_a_partial_group_as_many_as_were_missing_are_late_and_others_begin_anew(
    store: Store, clock: MovableClock
) -> None:
    partial = (["0:a"], ("partial_group",), "pending"), (["0:d"], ("partial_group",), "pending")
    alone = [([text], ("late",), "pending") for text in ("1:b", "2:c")]
    expected = [0, 1, 2, 1, 4, 5, 5], [partial[0], *alone, partial[1]]
    first = await take(store, "a", size=3)
    clock.forward(60)
    late = [await take(store, "b", size=3), await take(store, "c", size=3)]
    await store.parts.release_slot(late[0], answered=False)
    seats = [*late, await take(store, "b", size=3), await take(store, "d", size=3)]
    clock.forward(60 + 120)
    seats += [await take(store, "e", size=3), await take(store, "f", size=3)]
    ids = [first.group_id, *(seat.group_id for seat in seats)]
    assert ([ids.index(one) for one in ids], begun(seats)) == expected


@pytest.mark.dialects
async def test_holders_of_a_process_that_was_killed_have_left(
    store: Store, store_url: str, clock: MovableClock
) -> None:
    """On SQLite when the service starts again, on PostgreSQL when they have not been heard of for a while."""
    kept = (2,) if store_url.startswith("postgres") else (1,)  # on SQLite nobody else may live
    dead, alive = await take(store, "a", size=4), await take(store, "b", size=4)
    await store.parts.forget_holders()
    clock.forward(10)
    await store.parts.renew_holds([alive], [])
    clock.forward(6)
    again, other = await take(store, "a", size=4), await take(store, "b", size=4)
    assert (dead.places, again.places, other.places) == ((0,), (0,), kept)


async def test_what_nobody_scores_is_taken_up_and_what_somebody_scores_is_not(
    store: Store, clock: MovableClock
) -> None:
    groups = [seat.begun[0] for seat in [await take(store, str(n), 1) for n in range(3)]]
    await store.groups.finish([answered(groups[2])])
    clock.forward(59)
    await store.parts.renew_holds([], [groups[1].group_id])
    clock.forward(1)
    taken = [await store.parts.claim_due(9), await store.parts.claim_due(9)]
    look = await store.parts.get_status([group.group_id for group in groups])
    assert (taken == [[groups[0]], []], look.ended == {groups[2].group_id}, look.due) == (True, True, False)


@pytest.mark.dialects
async def test_what_a_replica_hands_over_is_taken_up_at_once(store: Store, store_url: str, clock: MovableClock) -> None:
    """By one that runs, which alone does: those that start leave what was gathered alone. A single service takes up
    everything when it starts."""
    everything = ["partial", "late", "gathered", "whole", "other"]
    expected = (["late", "whole", "other"], {"partial", "late", "gathered", "whole"})
    await arrive(store, 0, "a")
    clock.forward(61)
    late = await arrive(store, 1, "b")
    gathered = (await take(store, "c", 1)).begun[0].group_id
    await store.groups.add([group("whole", [Score.pending()]), group("done"), group("other", [Score.pending()])])
    names = {"group_a": "partial", late.group_id: "late", gathered: "gathered", "whole": "whole", "other": "other"}
    found = [names[one.group_id] for one in await store.groups.list_unfinished(9)]
    await store.parts.hand_over([late.group_id, gathered, "whole", "done", "never stored"])
    taken = {names[one.group_id] for one in await store.parts.claim_due(9)}
    assert (found, taken, await store.parts.claim_due(9)) == (
        *(expected if store_url.startswith("postgres") else (everything, set())),
        [],
    )


@pytest.mark.dialects
async def test_two_replicas_never_take_up_the_same(store: Store, store_url: str, clock: MovableClock) -> None:
    for n in range(40):
        await take(store, "a", scope=f"s{n}")
    clock.forward(60)
    async with opened(store_url, clock) as replica:
        calls = [side.parts.claim_due(3) for _ in range(10) for side in (store, replica)]
        taken = [group.group_id for groups in await asyncio.gather(*calls) for group in groups]
    assert (len(taken), len(set(taken))) == (40, 40)


async def test_old_cohorts_are_forgotten_and_their_groups_stay_what_they_are(store: Store, clock: MovableClock) -> None:
    await arrive(store, 0, "a", "b")
    await arrive(store, 0, "open", group_id="group_b")
    clock.forward(61)
    kept = await store.parts.delete_old(60)
    await store.groups.finish([GroupToStore(one) for one in (await store.groups.find(["group_a"])).values()])
    await store.parts.claim_due(9)
    clock.forward(86_400)
    cleared = kept, await store.parts.delete_old(86_400), await store.parts.claim_due(9)
    seats = [await seat(store, 1, "b"), await seat(store, 1, "x"), await seat(store, 0, "a", "b")]
    assert (
        cleared[:2],
        [one.field if isinstance(one, InvalidRequest) else one.group_id for one in seats],
        begun(seats),
    ) == ((0, 0), ["group_a", "part.index", "group_a"], [])


@pytest.mark.dialects
async def test_a_deadline_stays_when_the_wall_clock_is_set_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.parts.assign_slot(sample("one", seconds=0.05), WINDOWS)
    earlier = utc_now() - timedelta(hours=1)
    monkeypatch.setattr("app.store.database.utc_now", lambda: earlier)
    await asyncio.sleep(0.1)
    assert [len(group.rollouts) for group in await store.parts.claim_due(9)] == [1]


@pytest.mark.dialects
async def test_of_samples_that_come_at_once_each_has_its_own_place_and_its_own_fault(store: Store) -> None:
    whole = [["0:0 1", "1:0 2"], ["0:1 0", "1:1 1"], ["0:left", "1:0 0"]]
    await store.parts.release_slot(await take(store, "left", scope="s0"), answered=False)
    lost = replace(sample("x", scope="lost"), group=shared().model_copy(update={"task_id": "task_gone"}))
    taken = await asyncio.gather(
        *(take(store, f"{scope} {number}", scope=f"s{scope}") for number in range(3) for scope in range(2)),
        store.parts.assign_slot(lost, WINDOWS),
        take(store, "left", scope="s0"),
        return_exceptions=True,
    )
    seats = [one for one in taken if isinstance(one, GroupSlot)]
    places = len({(seat.pending_id, seat.places) for seat in seats})
    faults = [type(one) for one in taken if isinstance(one, Exception)]
    assert (faults, places, sorted(texts for texts, _, _ in begun(seats))) == ([NotFound], 7, whole)


async def test_pieces_of_a_task_that_is_not_stored_are_refused(store: Store) -> None:
    gone = shared().model_copy(update={"task_id": "task_gone"})
    lost = [replace(one, group=gone) for one in (piece("group_a", 0, "a", size=2), sample("a"))]
    assert [type(await refused(store.parts.assign_slot(one, WINDOWS))) for one in lost] == [NotFound, NotFound]


async def test_a_sample_judged_alone_is_stored_with_its_score_and_a_repeat_gets_what_is_stored(store: Store) -> None:
    stored = (["0:a"], ("older_policy",), "scored")
    seats = []
    for group_id, reward in (("group_first", 1.0), ("group_again", 0.0)):
        rollouts = (Rollout.begin(group_id, 0, said("a")),)
        waiting = shared(group_id).model_copy(update={"rollouts": rollouts, "flags": ("older_policy",)})
        scored = waiting.merge_scores([Score(reward=reward, outcome="scored")])
        seats.append(await store.parts.assign_slot(replace(sample("a", size=1), scored=scored), WINDOWS))
        await store.parts.release_slot(seats[-1], answered=False)
    found = await store.groups.find([seat.group_id for seat in seats])
    told = {name: (shown(group), group.scores[0].reward) for name, group in found.items()}
    assert (begun(seats), told, await store.groups.list_unfinished(9)) == ([stored], {"group_first": (stored, 1.0)}, [])
