"""Ways to find groups: the first that applies is taken."""

from dataclasses import replace
from functools import partial

import pytest

from app.domain.groups import GroupFilter, parse_text_query
from app.domain.scores import Score
from app.main.store import Store
from app.service.background import TextIndexer
from app.store import search
from app.store.search import search_groups, walk_groups
from tests.support.store_cases import group, record
from tests.support.tables import read_table

ON_WAYS = [
    *read_table(__file__, "ways.yaml", list[tuple[GroupFilter, str]]),
    (GroupFilter(task_ids=("task_1", "\ud800")), "nothing"),
    (GroupFilter(text=parse_text_query("ferry"), task_ids=("task_1",)), "words"),
]


async def test_each_filter_has_its_way(store: Store) -> None:
    await store.tasks.put([record(0)])
    await store.groups.add([group()])
    taken = []
    for where, _ in ON_WAYS:
        found = await store.views.database.read(partial(search_groups, where=where))
        taken.append((where, found.way and found.way.name))
    assert taken == ON_WAYS


@pytest.mark.parametrize("step", [1, 2, 64])
@pytest.mark.parametrize("indexed", [True, False])
async def test_a_walk_comes_to_every_group_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: int, indexed: bool
) -> None:
    """In whatever way its searches find them, and however far each goes."""
    monkeypatch.setattr(search, "_FIRST_STEP", step)
    monkeypatch.setattr(search, "WALKS", replace(search.WALKS, groups=3, at_once=2, most_at_once=2, candidates=3))
    await store.tasks.put([record(0), record(1).model_copy(update={"label": "hob"})])
    scores = (Score.exact(True), Score.exact(False), Score.unscored("budget"))
    await store.groups.add(
        [
            group(
                f"g{n}",
                [scores[n % 3]] * 2,
                task_id=f"task_{n % 2}",
                run="ab"[n % 2],
                flags=("late",) if n % 5 == 0 else (),
            )
            for n in range(20)
        ]
    )
    if indexed:
        await TextIndexer(store.texts, store.claims).catch_up()

    async def walk(**where: object) -> list[int]:
        """The numbers of the groups, which are sequences from 1."""
        wanted = GroupFilter.model_validate(where)
        return [one - 1 async for some in walk_groups(store.views.database, wanted, 1, 19) for one in some]

    inside = range(1, 19)
    assert [
        await walk(),
        await walk(run="a"),
        await walk(flag="late"),
        await walk(flag="late", run="b"),
        await walk(label="hob", outcome="scored"),
        await walk(min_mean=0.5),
        await walk(runs=("a*",), reason="budget"),
        await walk(run="c"),
    ] == [
        [*inside],
        [n for n in inside if n % 2 == 0],
        [n for n in inside if n % 5 == 0],
        [n for n in inside if n % 10 == 5],
        [n for n in inside if n % 2 == 1 and n % 3 != 2],
        [n for n in inside if n % 3 == 0],
        [n for n in inside if n % 2 == 0 and n % 3 == 2],
        [],
    ]
