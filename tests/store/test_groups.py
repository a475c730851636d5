"""Storing groups: once, whole, and never changed where they are scored."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.groups import GroupDetail
from app.domain.judging import Judgement
from app.domain.making import CandidateMaking, CountedDefect, GroupMaking, JudgeShare
from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.main.store import Store
from app.store.group_rows import GroupToStore
from app.store.groups import IdempotencyKey
from tests.support.store_cases import MovableClock, cycle, group, opened, record, stream
from tests.support.tables import read_table

HOSTILE = "NUL \x00, emoji \U0001f9d9, quote ' and \\u0000"
ALONE = "a lone \ud83d surrogate"

RICH = read_table(__file__, "rich_score.yaml", Score)


async def refused(call: Awaitable[object]) -> GatewayError:
    """The error that `call` ends with."""
    with pytest.raises(GatewayError) as caught:
        await call
    return caught.value


@pytest.fixture(autouse=True)
async def put_task(store: Store) -> None:
    await store.tasks.put([record(0)])


@pytest.mark.dialects
async def test_a_group_comes_back_as_it_was_given(store: Store) -> None:
    given = group(scores=[RICH, Score.unscored("judge_failed", HOSTILE)], policy=Policy(model=HOSTILE, step=2**40))
    call = ToolCall(id="1", function=FunctionCall(name="look", arguments={"at": HOSTILE}))
    messages = (Message(role="assistant", tool_calls=(call,)), Message(role="tool", content=HOSTILE))
    spoken = Completion(
        messages=messages, finish_reason="stop", token_ids=(1, 2), logprobs=(-0.5, -1e-9), extra={HOSTILE: [None, 1.5]}
    )
    rollouts = (given.group.rollouts[0].model_copy(update={"completion": spoken}), given.group.rollouts[1])
    whole = given.group.model_copy(update={"rollouts": rollouts, "flags": ("scoring_changed",)})
    assert (
        await store.groups.add([GroupToStore(whole)]),
        await store.groups.find(["group", "none", "\x00", ALONE]),
    ) == ([whole], {"group": whole})


async def test_a_known_group_is_returned_as_stored_and_nothing_is_added(store: Store) -> None:
    first, other = group(scores=[Score.exact(True)]), group(scores=[Score.exact(False)] * 3, flags=("late",))
    judged = GroupToStore(other.group, (Judgement(judge="j", model="m", order=()),))
    await store.groups.add([first])
    added = await store.groups.add([judged, group("new")])
    detail = await store.views.get_group("group")
    assert detail is not None
    assert (added, detail.group, detail.judgements) == ([first.group, group("new").group], first.group, ())


async def test_the_same_group_twice_in_one_call_is_stored_once(store: Store) -> None:
    first, other = group(scores=[Score.exact(True)]), group(scores=[Score.exact(False)] * 2)
    assert (await store.groups.add([first, other]), await store.groups.find(["group"])) == (
        [first.group] * 2,
        {"group": first.group},
    )


@pytest.mark.dialects
async def test_concurrent_repeats_agree_on_one_of_them(store: Store, store_url: str) -> None:
    """From two replicas, in different orders."""
    ids = [f"group_{number}" for number in range(12)]
    async with opened(store_url) as replica:
        calls = []
        for turn in range(8):
            items = [group(name, [Score.exact(turn % 2 == 0)]) for name in ids]
            side = replica if turn % 2 else store
            calls.append(side.groups.add(items if turn % 4 < 2 else items[::-1]))
        answers = [{one.group_id: one for one in added} for added in await asyncio.gather(*calls)]
    stored = await store.groups.find(ids)
    assert answers == [stored] * 8


async def test_a_group_about_an_unknown_task_is_refused_and_nothing_of_its_call_is_stored(store: Store) -> None:
    error = await refused(store.groups.add([group("good"), group("bad", task_id="task_unknown")]))
    assert (type(error), error.field, await store.groups.find(["good", "bad"])) == (NotFound, "task_id", {})


COMPLETED_LEASES = read_table(__file__, "completed_leases.yaml", dict[str, tuple[float, str, str, bool]])


@pytest.mark.parametrize(("seconds", "run", "task_id", "late"), COMPLETED_LEASES.values(), ids=COMPLETED_LEASES)
async def test_only_a_live_lease_on_the_same_run_and_task_is_completed(
    store: Store, clock: MovableClock, seconds: float, run: str, task_id: str, late: bool
) -> None:
    flags = ("late",) if late else ()
    await store.tasks.put([record(0), record(1)])
    leased = await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))
    clock.forward(seconds)
    item = group(run=run, task_id=task_id, lease_id=leased.leases[0].lease_id)
    added = await store.groups.add([item])
    outstanding = (await store.tasks.lease(stream(), 0, 60, cycle(1, epochs=1))).outstanding
    assert (added[0].flags, outstanding, (await store.groups.find(["group"]))["group"].flags) == (
        flags,
        int(late),
        flags,
    )


async def test_a_superseded_lease_completes_nothing(store: Store, clock: MovableClock) -> None:
    old = (await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))).leases[0]
    clock.forward(61)
    new = (await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))).leases[0]
    late = await store.groups.add([group("late", lease_id=old.lease_id)])
    between = (await store.tasks.lease(stream(), 0, 60, cycle(1, epochs=1))).outstanding
    good = await store.groups.add([group("good", lease_id=new.lease_id)])
    after = (await store.tasks.lease(stream(), 0, 60, cycle(1, epochs=1))).outstanding
    assert (late[0].flags, between, good[0].flags, after) == (("late",), 1, (), 0)


@pytest.mark.dialects
async def test_a_second_group_for_the_same_lease_is_late_and_a_repeat_of_the_first_is_not(store: Store) -> None:
    leased = await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))
    items = [group(name, lease_id=leased.leases[0].lease_id) for name in ("first", "second")]
    assert [[one.flags for one in await store.groups.add(items)] for _ in range(2)] == [[(), ("late",)]] * 2


async def test_an_unknown_lease_makes_late_and_no_lease_does_not(store: Store) -> None:
    added = await store.groups.add([group("a", lease_id="lease_\x00"), group("b", lease_id=None)])
    assert [(one.lease_id, one.flags) for one in added] == [("lease_\x00", ("late",)), (None, ())]


@pytest.mark.dialects
async def test_finishing_fills_in_what_is_missing_and_changes_nothing_that_is_scored(store: Store) -> None:
    begun = group(scores=[RICH, Score.pending(), Score.unscored("budget")], flags=("late",))
    given = group(scores=[Score.exact(False), Score.exact(True), RICH], flags=("partial_group",))
    expected = group(scores=[RICH, Score.exact(True), RICH], flags=("late", "partial_group")).group
    await store.groups.add([begun])
    finished = await store.groups.finish([given])
    again = await store.groups.finish([group(scores=[Score.exact(False)] * 3)])
    assert (finished, again, await store.groups.find(["group"]), await store.groups.list_unfinished(9)) == (
        [expected],
        [expected],
        {"group": expected},
        [],
    )


async def test_a_group_is_pending_until_its_last_rollout_is_not(store: Store) -> None:
    await store.groups.add([group(scores=[Score.pending()] * 2)])
    steps = [[Score.unscored("budget"), Score.pending()], [Score.pending(), RICH], [RICH, RICH]]
    assert [(await store.groups.finish([group(scores=step)]))[0].outcome for step in steps] == [
        "pending",
        "pending",
        "scored",
    ]


async def test_finishing_a_group_that_was_never_added_is_refused(store: Store) -> None:
    await store.groups.add([group("known", [Score.pending()])])
    error = await refused(store.groups.finish([group("known", [RICH]), group("unknown")]))
    assert (type(error), (await store.groups.find(["known"]))["known"].outcome) == (NotFound, "pending")


async def test_unfinished_groups_come_oldest_first(store: Store) -> None:
    pending = [group(f"p{number}", [Score.pending()]) for number in range(3)]
    await store.groups.add([pending[0], group("done"), pending[1], group("un", [Score.unscored("budget")])])
    await store.groups.add([pending[2]])
    assert (
        [one.group_id for one in await store.groups.list_unfinished(2)],
        len(await store.groups.list_unfinished(9)),
    ) == (["p0", "p1"], 3)


@pytest.mark.dialects
async def test_judgements_are_kept_with_their_prompts_whatever_they_hold(store: Store) -> None:
    failed = Judgement(judge="b", model=HOSTILE, order=("x",), raw=ALONE + HOSTILE, error=ALONE, prompt=ALONE)
    made = (
        Judgement(
            judge="a", model="m", order=("x", "y"), prompt=HOSTILE, prompt_digest="p", raw=HOSTILE, cost_usd=0.01
        ),
        Judgement(judge="a", model="m", order=("y", "x"), prompt=HOSTILE, input_tokens=5, latency_seconds=0.5, calls=2),
    )
    counted = CandidateMaking(candidate="x", means=(0.5,), defects=(CountedDefect(code=HOSTILE, reported=(0,)),))
    making = GroupMaking(
        relative_weight=0.5,
        criteria={HOSTILE: 1.0},
        shares=(JudgeShare(judges=(HOSTILE,), readings=(0,)),),
        candidates=(counted,),
        left_out={1: "lacks_its_mirror"},
    )
    expected = GroupDetail(
        group=group(scores=[RICH]).group,
        task=record(0),
        judgements=(failed, *made),
        making=making.move_readings((1).__add__),
    )
    await store.groups.add([group(scores=[Score.pending()], judgements=(failed,)), group("other")])
    await store.groups.finish([replace(group(scores=[RICH], judgements=made), making=making)])
    assert await store.views.get_group("group") == expected


async def test_a_key_with_another_body_is_refused_and_nothing_of_it_stored(store: Store) -> None:
    key, other = IdempotencyKey(HOSTILE, "body"), IdempotencyKey(HOSTILE, "other body")
    refusal = (InvalidRequest, "Idempotency-Key")
    await store.groups.check_key(other)
    await store.groups.add([group("a")], key)
    await store.groups.check_key(key)
    repeated = await store.groups.add([group("a")], key)
    errors = [await refused(store.groups.check_key(other)), await refused(store.groups.add([group("b")], other))]
    assert (repeated, [(type(one), one.field) for one in errors], list(await store.groups.find(["a", "b"]))) == (
        [group("a").group],
        [refusal, refusal],
        ["a"],
    )


async def test_a_key_is_stored_even_without_groups_and_not_with_a_call_that_fails(store: Store) -> None:
    await refused(store.groups.add([group(task_id="unknown")], IdempotencyKey("k", "failed")))
    nothing = await store.groups.add([], IdempotencyKey("k", "empty"))
    assert (nothing, type(await refused(store.groups.check_key(IdempotencyKey("k", "failed"))))) == ([], InvalidRequest)


@pytest.mark.dialects
async def test_a_number_that_no_column_holds_is_the_callers_fault(store: Store) -> None:
    error = await refused(store.groups.add([group(policy=Policy.model_construct(model="m", step=2**70))]))
    assert (type(error), await store.groups.find(["group"])) == (InvalidRequest, {})
