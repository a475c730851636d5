"""The queue of items and the labels on them, on each database."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any, Literal

import pytest
from sqlalchemy import update

from app.domain.errors import Conflict, NotFound
from app.domain.labels import Arm, Label, LabelLease, Labeller, QueueDraw, ReplyLabel
from app.domain.scores import Criterion, Score
from app.features.labels import store as label_rows
from app.features.labels.store import LabelQueue, LabelStore
from app.main.store import Store
from tests.support.databases import connected
from tests.support.store_cases import START, MovableClock, group, opened, record

ENVIRONMENTS = ("gsm8k",)


def lease(
    name: str, labeller: str, group_id: str, *, wanted: int = 1, second: bool = False, arm: Arm = "uniform"
) -> LabelLease:
    draw = QueueDraw(lease_id=name, arm=arm, second=second)
    return LabelLease(
        lease_id=name,
        labeller=labeller,
        group_id=group_id,
        environment="gsm8k",
        run="run",
        draw=draw,
        wanted=wanted,
        state="live",
        expires_at=START,
    )


def label(
    name: str, labeller: str, group_id: str = "g0", kind: Literal["own_pick", "pair"] = "own_pick", **said: object
) -> Label:
    given = {"environment": "gsm8k", "run": "run", "order": ((f"{group_id}-0",), (f"{group_id}-1",)), **said}
    return Label.model_validate(
        {"label_id": name, "kind": kind, "labeller": labeller, "group_id": group_id, "created_at": START, **given}
    )


async def fill(store: Store, count: int = 3) -> None:
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"g{number}") for number in range(count)])


async def left(store: Store, labeller: str) -> set[str]:
    queue = store.part(LabelQueue)
    drawn = [await queue.draw_doubtful(ENVIRONMENTS, None, Labeller(labeller)) for _ in range(60)]
    found = {one.group_id for one in drawn if one is not None}
    assert len(found) == (await queue.count_left(ENVIRONMENTS, None, Labeller(labeller)))[1]
    return found


@pytest.mark.dialects
async def test_two_people_never_hold_the_same_item_and_what_expires_returns(store: Store, clock: MovableClock) -> None:
    await fill(store)
    queue = store.part(LabelQueue)
    claims = await asyncio.gather(*(queue.claim(lease(f"l{n}", f"p{n}", "g0"), 60) for n in range(5)))
    (holder,) = [one for one in claims if one is not None]
    told: list[object] = [await left(store, "eve"), await queue.count_drawn(ENVIRONMENTS, "run")]
    clock.forward(61)
    told += [await left(store, "eve"), await queue.find_held(holder.by, ENVIRONMENTS, None)]
    taken = await queue.claim(lease("again", "eve", "g0"), 60)
    assert taken is not None
    told += [taken.expires_at - START]
    with pytest.raises(Conflict, match="went to somebody else"):
        await store.part(LabelStore).put(label("x", holder.labeller), holder.lease_id, merge=False, show_judge=False)
    found = [*told, await left(store, "bob")]
    assert found == [{"g1", "g2"}, {"uniform": 1}, {"g0", "g1", "g2"}, None, timedelta(seconds=121), {"g1", "g2"}]


async def test_work_is_not_lost_when_the_time_is_over_and_nobody_else_came(store: Store, clock: MovableClock) -> None:
    await fill(store)
    await store.part(LabelQueue).claim(lease("l", "ada", "g0"), 60)
    clock.forward(600)
    made = await store.part(LabelStore).put(label("x", "ada"), "l", merge=False, show_judge=True)
    assert (made.kind, made.saw_judge, made.draw is not None) == ("queue", True, True)


async def test_a_second_label_is_somebody_elses_and_nobody_sees_scores_before(store: Store) -> None:
    await fill(store)
    queue, put = store.part(LabelQueue), store.part(LabelStore).put
    await queue.claim(lease("l1", "ada", "g0", wanted=2), 60)
    first = await put(label("one", "ada"), "l1", merge=False, show_judge=True)
    own = await queue.find_awaiting_second(Labeller("ada"), ENVIRONMENTS, None)
    waiting = await queue.find_awaiting_second(Labeller("bob"), ENVIRONMENTS, None)
    assert waiting is not None
    claims = [await queue.claim(lease(f"s{n}", n, "g0", wanted=2, second=True), 60) for n in ("bob", "cy")]
    none = await queue.find_awaiting_second(Labeller("dan"), ENVIRONMENTS, None)
    second = await put(label("two", "bob"), "sbob", merge=False, show_judge=True)
    found = [first.saw_judge, own, waiting.lease_id, [one is not None for one in claims], none, second.saw_judge]
    assert found == [False, None, "l1", [True, False], None, True]


async def test_a_label_can_be_replaced_extended_and_taken_back(store: Store) -> None:
    said = {"g0-0": ReplyLabel(levels={"a": 1}, defect=True)}
    more = {"g0-0": ReplyLabel(levels={"b": 2}), "g0-1": ReplyLabel(defect=False)}
    labels, queue = store.part(LabelStore), store.part(LabelQueue)
    await fill(store)
    put, marks = labels.put, [await labels.find_mark("gsm8k")]
    await queue.claim(lease("l", "ada", "g0"), 60)
    await put(label("one", "ada", replies=said, seconds=2.0), "l", merge=False, show_judge=False)
    marks.append(await labels.find_mark("gsm8k"))
    merged = await put(label("two", "ada", replies=more, order=(), seconds=3.0), None, merge=True, show_judge=False)
    with pytest.raises(NotFound):
        await labels.withdraw("two", Labeller("eve"), 60)
    kept = [one.label_id for _, one in await labels.list_labels("gsm8k", None, 0, 9)]
    marks.append(await labels.find_mark("gsm8k"))
    await labels.withdraw("two", Labeller("ada"), 60)
    marks.append(await labels.find_mark("gsm8k"))
    held = await queue.find_held(Labeller("ada"), ENVIRONMENTS, "run")
    assert held is not None
    assert len({*marks}) == 4  # it changes with every label that is stored, replaced or withdrawn
    skipped = await queue.skip("l", Labeller("ada"))
    arms = await queue.count_arms(ENVIRONMENTS, None)
    mine, others = await left(store, "ada"), await left(store, "bob")
    replies = {"g0-0": ReplyLabel(levels={"a": 1, "b": 2}, defect=True), "g0-1": ReplyLabel(defect=False)}
    found = [merged.replies, merged.seconds, merged.kind, kept, skipped.state, arms["uniform"].skipped, mine, others]
    assert found == [replies, 5.0, "queue", ["two"], "skipped", 1, {"g1", "g2"}, {"g0", "g1", "g2"}]


async def test_a_held_item_is_renewed_only_while_its_time_runs(store: Store, clock: MovableClock) -> None:
    """Else two people would hold it."""
    await fill(store)
    queue = store.part(LabelQueue)
    mine = await queue.claim(lease("l", "ada", "g0"), 60)
    assert mine is not None
    renewed = await queue.renew(mine, 90)
    clock.forward(91)
    late = await queue.renew(mine, 90)
    others = await queue.claim(lease("m", "bob", "g0"), 60)
    found = [renewed and renewed.expires_at - START, late, others is not None, await queue.renew(mine, 90)]
    assert found == [timedelta(seconds=90), None, True, None]


@pytest.mark.parametrize("probes", [0, 10, label_rows.PROBES])
async def test_each_group_of_the_filter_is_drawn_as_often(
    store: Store, monkeypatch: pytest.MonkeyPatch, probes: int
) -> None:
    monkeypatch.setattr(label_rows, "PROBES", probes)
    queue = store.part(LabelQueue)
    await store.tasks.put([record(0)])
    stored = [group(f"g{n}", run=("a", "b", None)[n % 3]) for n in range(36)]
    await store.groups.add([*stored, group("unscored", [Score.unscored("budget")], run="a"), group("g36", run="a")])
    await queue.claim(lease("l", "bob", "g3").model_copy(update={"run": "a"}), 3600)
    told: list[object] = []
    for run in ("a", None):
        drawn = [await queue.draw_uniform(ENVIRONMENTS, run, Labeller("ada")) for _ in range(600)]
        found = Counter(int(one.group_id[1:]) for one in drawn if one is not None)
        told += [await queue.count_left(ENVIRONMENTS, run, Labeller("ada")), {*found}]
        assert max(found.values()) < (120 if run else 60)  # 50 and 17 on average
    assert told == [(13, 12), {*range(0, 37, 3)} - {3}, (37, 36), {*range(37)} - {3}]


async def test_a_label_that_is_sent_again_is_the_same_label(store: Store) -> None:
    """As where the answer to it was lost. Nothing is stored twice, and its seconds count once."""
    said: dict[str, Any] = {"replies": {"g0-0": ReplyLabel(defect=True)}, "seconds": 3.0}
    labels = store.part(LabelStore)
    await fill(store)
    put = labels.put
    for number in range(2):
        await store.part(LabelQueue).claim(lease(f"l{number}", "ada", f"g{number}"), 60)
    first = await put(label("one", "ada", **said), "l0", merge=False, show_judge=False)
    again = await put(label("two", "ada", **said), "l0", merge=False, show_judge=False)
    shown = await put(label("three", "ada", **said), "l0", merge=False, show_judge=True)
    after = await put(label("four", "ada", **said), "l0", merge=False, show_judge=True)
    more: dict[str, Any] = {"order": (), "replies": {"g1-0": ReplyLabel(levels={"a": 1})}, "seconds": 2.0}
    parts = [
        await put(label(name, "ada", "g1", **more), "l1", merge=True, show_judge=False) for name in ("x", "y", "z")
    ]
    with pytest.raises(Conflict, match="stays as it is"):
        await put(label("five", "ada"), "l0", merge=False, show_judge=True)
    stored = [one.label_id for _, one in await labels.list_labels("gsm8k", None, 0, 9)]
    found = [again == first, (shown.label_id, shown.saw_judge), after == shown, {one.seconds for one in parts}, stored]
    assert found == [True, ("three", True), True, {2.0}, ["three", "x"]]


async def test_doubtful_groups_are_drawn_first(store: Store) -> None:
    """Those on which judges disagree in more replies, then those of a low signal, then any."""

    def score(reward: float, *flags: str) -> Score:
        return Score.model_validate({"outcome": "scored", "reward": reward, "gate": 1.0, "flags": flags})

    cases = {
        "plain": [score(0.2), score(0.6)],
        "one": [score(0.2, "judges_disagree"), score(0.6)],
        "same": [score(0.2, "low_signal"), score(0.2, "low_signal")],
        "both": [score(0.2, "judges_disagree"), score(0.6, "position_dominated")],
        "gated": [Score.gated("refuses"), score(0.6)],
    }
    queue, order = store.part(LabelQueue), list[str]()
    await store.tasks.put([record(0)])
    await store.groups.add([group(name, scores) for name, scores in cases.items()])
    while (drawn := await queue.draw_doubtful(ENVIRONMENTS, None, Labeller("ada"))) is not None:
        order.append(drawn.group_id)
        await queue.claim(lease(drawn.group_id, "ada", drawn.group_id, arm="doubtful"), 60)
    assert (order[:3], {*order[3:]}) == (["both", "one", "same"], {"plain", "gated"})


async def test_only_what_a_uniform_draw_finds_is_in_figures(store: Store) -> None:
    """A group that a doubtful draw found before a uniform one is not asked about again, and counts from then on."""
    queue, labels = store.part(LabelQueue), store.part(LabelStore)
    scores = [Score(outcome="scored", reward=0.5, gate=1.0, judges=("j",)) for _ in range(2)]
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"g{number}", scores) for number in range(3)])
    arms: tuple[Arm, ...] = ("uniform", "doubtful", "doubtful")
    for number, arm in enumerate(arms):
        await queue.claim(lease(f"l{number}", "ada", f"g{number}", arm=arm), 60)
        await labels.put(label(f"x{number}", "ada", f"g{number}"), f"l{number}", merge=False, show_judge=False)

    async def look() -> list[object]:
        counted = [one.labels[0].label_id for one in await labels.list_labelled("j", ENVIRONMENTS, None)]
        arms = await queue.count_arms(ENVIRONMENTS, None)
        return [counted, {arm: counts.labelled for arm, counts in arms.items()}]

    before, mark = await look(), await labels.find_mark("gsm8k")
    drawn = [await queue.draw_uniform(ENVIRONMENTS, None, Labeller(name)) for name in ("bob", "ada")]
    kept = [one.draw and one.draw.arm for _, one in await labels.list_labels("gsm8k", None, 0, 9)]
    assert [before, drawn, await look(), kept, mark != await labels.find_mark("gsm8k")] == [
        [["x0"], {"uniform": 1, "doubtful": 2}],
        [None, None],
        [["x0", "x1", "x2"], {"uniform": 3}],
        [*arms],
        True,
    ]


async def test_what_was_drawn_before_draws_were_plain_is_read(store: Store, store_url: str) -> None:
    """Its probability stays. What was drawn at random was drawn uniformly."""
    await fill(store)
    queue, labels = store.part(LabelQueue), store.part(LabelStore)
    for number, arm in enumerate(("random", "targeted")):
        name = f"l{number}"
        await queue.claim(lease(name, "ada", f"g{number}"), 60)
        await labels.put(label(f"x{number}", "ada", f"g{number}"), name, merge=False, show_judge=False)
        draw = {"lease_id": name, "arm": arm, "reasons": ["capped"], "probability": 0.25, "second": False}
        draw |= {"other_probability": 0.5, "population": 4}
        (body,) = [one for _, one in await labels.list_labels(None, None, number, 1)]
        former = json.dumps(body.model_dump(mode="json") | {"draw": draw})
        with connected(store_url) as connection:
            leased = update(label_rows.label_leases).where(label_rows.label_leases.c.lease_id == name)
            connection.execute(leased.values(arm=arm, draw=json.dumps(draw)))
            table = label_rows.labels
            connection.execute(update(table).where(table.c.label_id == body.label_id).values(body=former))
    draws = [one.draw for _, one in await labels.list_labels(None, None, 0, 9)]
    held = await queue.find_lease("l1")
    assert [draws, held and held.draw, await queue.count_drawn(ENVIRONMENTS, None)] == [
        [
            QueueDraw(lease_id="l0", arm="uniform", probability=0.25),
            QueueDraw(lease_id="l1", arm="doubtful", probability=0.25),
        ],
        QueueDraw(lease_id="l1", arm="doubtful", probability=0.25),
        {"uniform": 1, "doubtful": 1},
    ]


async def test_labelled_groups_come_with_the_judges_own_scores(store: Store) -> None:
    scores = [
        Score(
            outcome="scored",
            reward=reward,
            gate=gate,
            cap=cap,
            absolute=reward,
            judges=("j",),
            criteria=(Criterion(name="voice", value=reward, weight=1.0),),
        )
        for reward, gate, cap in ((0.5, 1.0, None), (0.25, 1.0, 0.25), (0.0, 0.0, None))
    ]
    labels = store.part(LabelStore)
    await store.tasks.put([record(0)])
    await store.groups.add([group("g0", scores), group("g1", scores)])
    await store.part(LabelQueue).claim(lease("l", "ada", "g0"), 60)
    await labels.put(label("one", "ada"), "l", merge=False, show_judge=False)
    await labels.put(label("two", "ada", "g1"), None, merge=False, show_judge=False)
    (found,) = await labels.list_labelled("j", ENVIRONMENTS, "run")
    others = await labels.list_labelled("other", ENVIRONMENTS, None)
    rewards = {"g0-0": 0.5, "g0-1": 0.25, "g0-2": 0.0}
    told = [found.task_id, found.rewards, found.gated, found.capped, found.levels["g0-0"], others]
    assert told == ["task_0", rewards, ("g0-2",), ("g0-1",), {"voice": 0.5}, []]


def choose(name: str, chosen: str, chat: str = "turn", labeller: str = "ann") -> Label:
    choice = {"prompt": [{"role": "user", "content": "Hob?"}], "chosen": chosen, "rejected": ["x"], "chat": chat}
    return Label.model_validate(
        {"label_id": name, "kind": "pair", "labeller": labeller, "created_at": START, "choice": choice}
    )


async def test_one_choice_of_a_chat_is_live_whatever_was_chosen_before(store: Store) -> None:
    labels, told = store.part(LabelStore), list[list[str]]()
    await labels.add_imported([choose("imported", "a", "other")])
    await labels.replace_choice("bob", "turn", choose("bob's", "a", labeller="bob"))
    for chosen in (choose("1", "a"), choose("2", "b"), choose("3", "a"), choose("same again", "a"), None):
        await labels.replace_choice("ann", "turn", chosen)
        told.append([one.label_id for _, one in await labels.list_labels(None, None, 0, 99)])
    kept = ["imported", "bob's"]
    assert told == [[*kept, "1"], [*kept, "2"], [*kept, "3"], [*kept, "3"], kept]


@pytest.mark.dialects
async def test_replicas_that_choose_at_once_leave_one_choice(store: Store, store_url: str) -> None:
    async with opened(store_url) as replica:
        choices = [choose(str(number), f"reply {number}") for number in range(6)]
        stores = [one.part(LabelStore) for one in (store, replica)] * 3
        await asyncio.gather(*map(lambda one, made: one.replace_choice("ann", "turn", made), stores, choices))
    assert len(await store.part(LabelStore).list_labels(None, None, 0, 99)) == 1
