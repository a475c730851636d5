"""Reduced groups have digests in place of parts, and everything else as before; what is not final stays whole."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, cast

import pytest
from pydantic import JsonValue
from sqlalchemy import insert, update

from app.domain.errors import InvalidRequest
from app.domain.groups import Group, GroupDetail
from app.domain.keeping import KeepLevel, PartDigest, ReducedCompletion, ReducedReading, digest_text
from app.domain.labels import LabelLease, Labeller, QueueDraw
from app.domain.making import GroupMaking
from app.domain.parts import Arrival, RetryWindows
from app.domain.retention import KeptGroups, Reduced, ReduceRule
from app.domain.rollups import RollupFilter, Series
from app.domain.runs import Run
from app.domain.scores import Score
from app.domain.tasks import Completion, Message
from app.domain.values import canonical_json
from app.features.health.store import RunHealthStore, run_anchors
from app.features.labels.store import LabelQueue, label_leases, labels
from app.main.store import Store
from app.service.background import Pruner, ReduceSchedule
from app.store.claims import build_claim
from app.store.copy import measure_database
from app.store.group_rows import GroupToStore
from app.store.statements import encode_json, to_micros
from app.store.tables import runs
from tests.store.test_retention import asked, rebuild, scoring
from tests.support.databases import MIGRATIONS, connected
from tests.support.former_reductions import drop_texts
from tests.support.store_cases import START, MovableClock, group, opened, record

LATER = START + timedelta(days=1)
SERIES: tuple[Series, ...] = ("run", "step", "label", "judge", "bucket")
MAKING = GroupMaking(relative_weight=0.5, criteria={"wit": 1.0}, shares=(), candidates=())


def said(number: int) -> Completion:
    chance = Random(number)
    ids, odds = tuple(chance.choices(range(150_000), k=400)), tuple(-chance.random() for _ in range(400))
    if number % 2:
        return Completion(text=f"Blue, number {number}.", token_ids=ids, logprobs=odds, extra={"mine": number})
    thinking = Message(role="assistant", content=f"Red {number}.", reasoning_content=f"I think of {number}.")
    return Completion(messages=(thinking,), finish_reason="stop", token_ids=ids, logprobs=odds)


def stored(number: int, **given: Any) -> GroupToStore:
    made = group(
        f"group_{number:032x}",
        [Score(outcome="scored", reward=0.5, judges=("ann",)), Score.exact(True)],
        judgements=(asked(f"Which is better? {number}", raw=f"The first. {number}"), asked("the same")),
        **given,
    )
    members = tuple(
        one.model_copy(update={"completion": said(number + place)}) for place, one in enumerate(made.group.rollouts)
    )
    return GroupToStore(made.group.model_copy(update={"rollouts": members}), made.judgements, MAKING)


async def fill(store: Store, items: Sequence[GroupToStore]) -> list[Group]:
    await store.tasks.put([record(0)])
    return await store.groups.add(items)


async def reduce(store: Store, keep: KeepLevel = "texts", **given: Any) -> Reduced:
    pruner = Pruner(store.retention, store.claims, pauses=0.0)
    rule = ReduceRule(before=given.pop("before", LATER), keep=keep, **given)
    return await pruner.reduce(await pruner.plan_reduction(rule), lambda _: None)


async def read(store: Store, number: int) -> GroupDetail:
    found = await store.views.get_group(f"group_{number:032x}")
    assert found is not None
    return found


async def read_statistics(store: Store) -> list[object]:
    everything: list[object] = [await store.views.list_rollups(RollupFilter(series, purpose=None)) for series in SERIES]
    return [*everything, await store.runs.get_activity("run"), await store.runs.get_ledger("run")]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def numbers(listed: Sequence[float] | None) -> PartDigest:
    return PartDigest(sha256=sha(canonical_json(list(listed or ()))), count=400)


async def test_a_reduced_group_has_digests_in_place_of_its_parts_and_is_otherwise_the_same(
    store: Store, clock: MovableClock
) -> None:
    await fill(store, [stored(1)])
    before = await read(store, 1)
    done, again = await reduce(store), await reduce(store)
    after = await read(store, 1)
    mark: dict[str, Any] = {"by": "operator", "at": START}
    expected = tuple(
        whole.model_copy(
            update={
                "completion": whole.completion.model_copy(update={"token_ids": None, "logprobs": None}),
                "reduced": ReducedCompletion(
                    tokens=numbers(whole.completion.token_ids), logprobs=numbers(whole.completion.logprobs), **mark
                ),
            }
        )
        for whole in before.group.rollouts
    )
    readings = tuple(
        one.model_copy(
            update={
                "prompt": "",
                "raw": "",
                "reduced": ReducedReading(
                    prompt=digest_text(one.prompt), raw=digest_text(one.raw) if one.raw else None, **mark
                ),
            }
        )
        for one in before.judgements
    )
    whole = before.model_copy(
        update={"group": before.group.model_copy(update={"rollouts": expected}), "judgements": readings}
    )
    assert (after, done.model_copy(update={"bytes": 0}), done.bytes > 0, again) == (
        whole,
        Reduced(groups=1, rollouts=2, prompts=2),
        True,
        Reduced(),
    )


async def test_what_lacked_its_text_before_keeps_the_digests_of_it(
    store: Store, clock: MovableClock, store_url: str
) -> None:
    await fill(store, [stored(1)])
    dropped = drop_texts(store_url)
    await reduce(store)
    seen = [one.model_dump() for one in (await read(store, 1)).group.rollouts]
    whole = {"at", "by", "identity", "logprobs", "text", "tokens"}
    assert [(one["reduced"]["identity"], {*one["reduced"]}, one["completion"]["token_ids"]) for one in seen] == [
        (said(1).identity_digest, whole, None),
        (said(2).identity_digest, whole | {"thought"}, None),
    ]
    assert (dropped, seen[1]["reduced"]["thought"]["characters"]) == (1, 13)


async def test_statistics_and_answers_to_repeats_are_as_before(store: Store, clock: MovableClock) -> None:
    items = [stored(n) for n in range(12)]

    async def look(store: Store) -> tuple[object, ...]:
        ids = [item.group.group_id for item in items]
        again = await store.groups.add(items)
        known = await store.groups.recall(ids)
        return (
            await read_statistics(store),
            [(one.group_id, one.scores, one.outcome) for one in again],
            {name: one and one.scores for name, one in known.items()},
        )

    await fill(store, items)
    seen = [await look(store)]
    await reduce(store)
    seen.append(await look(store))
    await rebuild(store)
    first, *others = [*seen, await look(store)]
    assert others == [first, first]


async def test_a_piece_that_is_sent_again_is_known_by_its_digest(
    store: Store, clock: MovableClock, store_url: str
) -> None:
    await fill(store, [stored(1)])
    drop_texts(store_url)
    await reduce(store)
    group_id = f"group_{1:032x}"
    empty = stored(1).group.model_copy(update={"rollouts": ()})
    first = Arrival(empty, (said(2),), scope=group_id, key="key", size=2, seconds=60.0, place=1)
    same = await store.parts.assign_slot(first, RetryWindows())
    with pytest.raises(InvalidRequest, match="another completion"):
        await store.parts.assign_slot(replace(first, completions=(said(3),)), RetryWindows())
    assert (same.group_id, same.begun) == (group_id, ())


@pytest.mark.dialects
async def test_two_replicas_reduce_each_group_once(store: Store, clock: MovableClock, store_url: str) -> None:
    await fill(store, [stored(n) for n in range(60)])
    async with opened(store_url, MovableClock()) as other:
        done = await asyncio.gather(reduce(store), reduce(other))
    plan = await store.retention.plan_reduction(ReduceRule(before=LATER, keep="texts"))
    counts = (sum(one.groups for one in done), sum(one.rollouts for one in done))
    assert (counts, plan.groups) == ((60, 120), 0)


async def test_what_somebody_waits_for_or_reads_again_stays_whole(
    store: Store, clock: MovableClock, store_url: str
) -> None:
    waiting = [group(f"group_{n:032x}", [score]) for n, score in ((4, Score.pending()), (5, Score.unscored("budget")))]
    items = [stored(0), stored(1), stored(2), stored(3, purpose="eval"), *waiting, stored(6)]
    counts = {"anchor": 1, "labelled": 2, "pending": 1, "purpose": 1, "unscored": 1}
    await fill(store, items)
    ids = [item.group.group_id for item in items]
    label: dict[str, object] = {"kind": "queue", "state": "live", "labeller": "ann", "environment": "gsm8k"}
    leased = {"labeller": "bea", "environment": "gsm8k", "arm": "uniform", "second": False, "wanted": 1}
    held = {"state": "live", "created_at": 0, "draw": "{}", "lease_id": "x", "group_id": ids[1]}
    with connected(store_url) as connection:
        connection.execute(insert(labels), label | {"label_id": "l", "group_id": ids[0], "body": "", "created_at": 0})
        connection.execute(insert(label_leases), leased | held)
        connection.execute(insert(run_anchors), {"run": "run", "group_sequence": 3, "created_at": 0})
    plan = await store.retention.plan_reduction(ReduceRule(before=LATER, keep="texts"))
    await reduce(store)
    found = await store.groups.find(ids)
    assert (plan.kept, [n for n, name in enumerate(ids) if found[name].rollouts[0].reduced is not None]) == (
        tuple(KeptGroups.model_validate({"because": name, "groups": count}) for name, count in counts.items()),
        [6],
    )


async def test_what_has_no_text_is_not_given_to_people_or_judges(
    store: Store, clock: MovableClock, store_url: str
) -> None:
    async def look(store: Store) -> tuple[int, int, bool]:
        queue = store.part(LabelQueue)
        drawn = [await draw(("gsm8k",), None, Labeller("ann")) for draw in (queue.draw_uniform, queue.draw_doubtful)]
        unread = await store.part(RunHealthStore).find_shadow_group("run")
        return (
            len([one for one in drawn if one is not None]),
            len(await store.part(RunHealthStore).freeze_anchors("run", 2)),
            unread is not None,
        )

    await store.runs.create(Run(name="run", seed=1, created_at=START))
    await fill(store, [stored(n) for n in range(4)])
    await reduce(store)
    whole = await store.part(LabelQueue).draw_uniform(("gsm8k",), None, Labeller("ann"))
    assert whole is not None
    shadowed = await store.part(RunHealthStore).find_shadow_group("run")
    drop_texts(store_url)
    lease = LabelLease(
        lease_id="item",
        labeller="ann",
        group_id=whole.group_id,
        environment="gsm8k",
        run="run",
        draw=QueueDraw(lease_id="item", arm="uniform"),
        wanted=1,
        state="live",
        expires_at=START,
    )
    assert [
        shadowed is not None,
        await store.part(LabelQueue).claim(lease, 60.0),
        await look(store),
    ] == [True, None, (0, 0, False)]


async def test_the_choice_of_a_run_goes_before_the_rule(store: Store, clock: MovableClock) -> None:
    items = [stored(0, run="run"), stored(1, run="spare"), stored(2, run="whole"), stored(3, run=None)]
    levels: dict[str, KeepLevel | None] = {"run": None, "spare": "texts", "whole": "all"}
    parts = ("tokens", "logprobs")
    asked = [await store.retention.has_keep_rules()]
    for name, keep in levels.items():
        await store.runs.create(Run(name=name, seed=1, keep=keep, created_at=START))
    asked.append(await store.retention.has_keep_rules())
    await fill(store, items)
    await reduce(store)
    found = await store.groups.find([item.group.group_id for item in items])
    marks = [found[item.group.group_id].rollouts[0].reduced for item in items]
    assert (asked, [None if one is None else (one.by, one.missing) for one in marks]) == (
        [False, True],
        [("operator", parts), ("run", parts), None, ("operator", parts)],
    )


async def test_a_later_scoring_brings_prompts_that_go_in_their_turn(store: Store, clock: MovableClock) -> None:
    await fill(store, [stored(1)])
    await reduce(store)
    await store.scorings.put(scoring(f"group_{1:032x}").model_copy(update={"scores": (Score.exact(True),) * 2}))
    seen = [[one.prompt for one in (await read(store, 1)).scorings[0].judgements]]
    await reduce(store)
    seen.append([one.prompt for one in (await read(store, 1)).scorings[0].judgements])
    assert seen == [["again"], [""]]


@pytest.mark.dialects
async def test_sizes_are_those_of_what_is_left(store: Store, clock: MovableClock, store_url: str) -> None:
    def measure() -> int:
        return sum(one.stored.bytes for one in measure_database(store_url, MIGRATIONS, to_micros(LATER)).runs)

    await fill(store, [stored(n) for n in range(60)])
    before = measure()
    plan = await store.retention.plan_reduction(ReduceRule(before=LATER, keep="texts"))
    await reduce(store)
    after = measure()
    assert (0 < after < before, plan.bytes == pytest.approx(before - after, rel=0.5)) == (True, True)


async def test_a_schedule_does_nothing_where_nobody_says_that_anything_goes(store: Store, clock: MovableClock) -> None:
    await fill(store, [stored(1, run="spare")])
    pruner = Pruner(store.retention, store.claims, pauses=0.0, clock=clock)
    schedule = ReduceSchedule(keep="all", older_than_seconds=60.0)
    one, two = (build_claim("job", "reduce") for _ in range(2))
    done = [await pruner.reduce_if_due(schedule, one)]
    await store.runs.create(Run(name="spare", seed=1, keep="texts", created_at=START))
    clock.forward(3601)
    done += [await pruner.reduce_if_due(schedule, one), await pruner.reduce_if_due(schedule, two)]
    assert [None if one is None else one.groups for one in done] == [None, 1, None]


_MOST = {"tokens": "digest", "logprobs": "digest", "judge_prompts": "digest"}


@pytest.mark.parametrize(
    ("rule", "level"),
    [
        ({}, "all"),
        (_MOST, "texts"),
        (_MOST | {"text": "digest", "thought": "digest", "share": 0.2}, "texts"),
        (_MOST | {"judge_prompts": "sample"}, "all"),
        ({"tokens": "digest", "logprobs": "digest"}, "all"),
        ({"text": "digest", "thought": "digest"}, "all"),
    ],
)
async def test_a_rule_of_before_is_the_level_that_keeps_more(
    store: Store, clock: MovableClock, store_url: str, rule: dict[str, object], level: KeepLevel
) -> None:
    await store.runs.create(Run(name="run", seed=1, keep="texts", created_at=START))
    with connected(store_url) as connection:
        connection.execute(update(runs).values(keep=encode_json(cast(JsonValue, rule))))
    await fill(store, [stored(1)])
    plan = await store.retention.plan_reduction(ReduceRule(before=LATER))
    run = await store.runs.get("run")
    assert (run is not None and run.keep, plan.of_runs, plan.groups) == (level, {"run": level}, int(level == "texts"))
