"""Flags and models are found by the index of texts, wherever it is, and among groups that it does not have."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from app.domain.groups import Group, GroupFilter, parse_text_query
from app.domain.runs import Policy
from app.domain.scores import Score
from app.main.store import Store
from app.service.background import TextIndexer
from app.store import search, text_index
from app.store.group_rows import GroupToStore
from tests.support.store_cases import group, record

FLAGS = ("late", "latest", "well-met", "d\u00e9j\u00e0 \ue001", "truncated")
EVERY = 40
WANTED: Sequence[Mapping[str, object]] = [
    *({"flag": flag} for flag in FLAGS),
    {"flag": "lat"},
    {"flag": "masked"},
    {"model": "big"},
    {"model": "big/"},
    {"flag": "late", "model": "small"},
    {"flag": "late", "run": "long"},
    {"flag": "late", "environment": "qa", "min_mean": 0.6},
    {"flag": "late", "purpose": "eval"},
    {"flag": "late", "outcome": "pending"},
    {"flag": "late", "runs": ("lo*",)},
    {"flag": "late", "task_id": "task_1"},
]


def make_groups(seed: int) -> Iterator[GroupToStore]:
    chosen = random.Random(seed)
    for number in range(EVERY):
        scores = [Score.exact(chosen.random() < 0.5).model_copy(update={"flags": pick(chosen)}) for _ in range(2)]
        if chosen.random() < 0.3:
            scores[1] = Score.pending()
        yield group(
            f"g{number}",
            scores,
            task_id=f"task_{chosen.randrange(2)}",
            environment=chosen.choice(("gsm8k", "qa")),
            run=chosen.choice(("long", "short", None)),
            policy=chosen.choice((Policy(model="big", step=1), Policy(model="small"), None)),
            purpose="eval" if chosen.random() < 0.2 else "train",
            flags=pick(chosen),
        )


def pick(chosen: random.Random) -> tuple[str, ...]:
    return tuple(flag for flag in FLAGS if chosen.random() < 0.15)


def matches(one: Group, where: Mapping[str, object]) -> bool:
    flags = {*one.flags, *(flag for score in one.scores for flag in score.flags)}
    rewards = [score.reward for score in one.scores if score.reward is not None]
    told = {
        "flag": where.get("flag") in flags,
        "model": one.policy is not None and one.policy.model == where.get("model"),
        "run": one.run == where.get("run"),
        "runs": one.run == "long",
        "environment": one.environment == where.get("environment"),
        "purpose": one.purpose == where.get("purpose"),
        "outcome": one.outcome == where.get("outcome"),
        "task_id": one.task_id == where.get("task_id"),
        "min_mean": len(rewards) > 1 and sum(rewards) / len(rewards) >= 0.6,
    }
    return all(told[name] for name in where)


async def find_all(store: Store, where: Mapping[str, object], rising: bool, limit: int) -> list[str]:
    """Page by page."""
    found: list[str] = []
    edge: dict[str, object] = {"after": 0} if rising else {}
    while True:
        page = await store.views.find_groups(GroupFilter.model_validate({**where, **edge, "limit": limit}))
        found += [one.group_id for one in page.groups]
        if page.next_before is None:
            return found
        edge = {"after" if rising else "before": page.next_before}


@pytest.mark.dialects
@pytest.mark.parametrize("looked_at", [4, pytest.param(2_000, marks=pytest.mark.slow)])
async def test_what_is_found_does_not_depend_on_how_far_the_index_is(
    store: Store, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr(search, "PAGES", replace(search.PAGES, groups=looked_at, candidates=looked_at))
    monkeypatch.setattr(text_index, "SPAN", 8)

    async def check(store: Store) -> list[tuple[bool, Mapping[str, object], list[str]]]:
        """What differs from looking at every group."""
        stored = await store.groups.find([f"g{number}" for number in range(EVERY)])
        differing = []
        for where in WANTED:
            right = [one for one in stored if matches(stored[one], where)]
            for rising in (False, True):
                found = await find_all(store, where, rising, 3)
                in_order = sorted(right, key=lambda one: int(one[1:]), reverse=not rising)
                if found != in_order:
                    differing.append((rising, where, found))
        return differing

    indexer = TextIndexer(store.texts, store.claims)
    await store.tasks.put([record(0), record(1)])
    made = [*make_groups(7)]
    await store.groups.add(made[:25])
    seen: list[object] = [await check(store)]
    await indexer.catch_up()
    seen.append(await check(store))
    await store.groups.add(made[25:])
    begun = next(one for one in made if one.group.outcome == "pending")
    late = Score.exact(True).model_copy(update={"flags": ("late",)})
    rollouts = (begun.group.rollouts[0], begun.group.rollouts[1].model_copy(update={"score": late}))
    await store.groups.finish([GroupToStore(begun.group.model_copy(update={"rollouts": rollouts}), ())])
    seen.append(await check(store))
    await indexer.catch_up()
    assert [*seen, await check(store)] == [[], [], [], []]


async def test_a_group_that_is_masked_is_found_by_that_flag(store: Store) -> None:
    async def look(**where: object) -> list[str]:
        found = await store.views.find_groups(GroupFilter.model_validate(where))
        return [one.group_id for one in found.groups]

    indexer = TextIndexer(store.texts, store.claims)
    await store.tasks.put([record(0)])
    await store.groups.add([group("failed", [Score.unscored("budget")]), group("other")])
    await indexer.catch_up()
    seen: list[object] = [await look(flag="masked")]
    await store.groups.mask("failed")
    seen.append(await look(flag="masked"))
    await indexer.catch_up()
    assert [*seen, await look(flag="masked"), await look(flag="masked", text=parse_text_query("many"))] == [
        [],
        ["failed"],
        ["failed"],
        ["failed"],
    ]
