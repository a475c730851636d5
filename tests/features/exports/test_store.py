"""Stored groups with their tasks, page by page, for training data."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.groups import GroupFilter
from app.domain.runs import Policy
from app.domain.scores import Score
from app.features.exports.model import ExportRequest, StoredGroup
from app.features.exports.store import ExportStore
from app.main.store import Store
from app.store import search
from app.store.group_rows import GroupToStore
from tests.support.store_cases import START, group, record
from tests.support.tables import read_table

LATER = START + timedelta(hours=1)


def later(item: GroupToStore) -> GroupToStore:
    return replace(item, group=item.group.model_copy(update={"created_at": LATER}))


ODD = "Maelis \x00 é"
PLAIN: list[tuple[dict[str, object], str]] = [
    ({}, "plain labelled other later npc"),
    ({"env": "npc_arena"}, "npc"),
    ({"run": "other"}, "other"),
    ({"label": ODD}, "labelled"),
    ({"purpose": "eval"}, "eval"),
    ({"label": ODD, "env": "gsm8k", "run": "run"}, "labelled"),
    ({"label": ODD, "env": "npc_arena"}, ""),
    ({"label": "nobody"}, ""),
    ({"purpose": "eval", "env": "gsm8k", "run": "run"}, "eval"),
    ({"since": LATER}, "later"),
    ({"since": LATER, "env": "npc_arena"}, ""),
    ({"until": LATER, "env": "gsm8k"}, "plain labelled other"),
    ({"until": START}, ""),
    ({"env": "\x00"}, ""),
    ({"run": "nobody's"}, ""),
]
OF_THE_LISTING = read_table(__file__, "store.yaml", list[tuple[dict[str, object], str]])


@pytest.mark.usefixtures("_as_among")
async def test_every_field_narrows_it_and_so_do_the_filters_of_the_listing(store: Store) -> None:
    async def find(asked: list[tuple[dict[str, object], str]]) -> list[tuple[dict[str, object], str]]:
        return [(where, " ".join(await ids(store, ExportRequest.model_validate(where).where))) for where, _ in asked]

    await stored(store)
    found = await find(PLAIN)
    policy = Policy(model="m \x00 é", step=4)
    flagged = group("flagged", [Score.exact(True)] * 2, run="other", policy=policy, flags=("late",))
    await store.groups.add([flagged, group("lost", [Score.unscored("budget")], run="other")])
    assert found + await find(OF_THE_LISTING) == PLAIN + OF_THE_LISTING


async def stored(store: Store) -> None:
    await store.tasks.put([record(0), record(1).model_copy(update={"label": "Maelis \x00 é"})])
    await store.groups.add([group("plain"), group("labelled", task_id="task_1"), group("eval", purpose="eval")])
    await store.groups.add([group("other", run="other"), later(group("later")), group("npc", environment="npc_arena")])


async def ids(store: Store, where: GroupFilter) -> list[str]:
    exports = store.part(ExportStore)
    last = await exports.get_newest_group_sequence()
    return [one.group.group_id async for page in exports.read_pages(where, 0, last, 100) for one in page]


@pytest.fixture(params=["few groups", "many groups"])
def _as_among(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are looked for as in a small store, and as in one where all that is here would be many."""
    if request.param == "many groups":
        monkeypatch.setattr(search, "FEW_TASKS", 0)
        monkeypatch.setattr(search, "WALKS", replace(search.WALKS, groups=1, at_once=1, candidates=1))


async def test_pages_end_where_they_were_told_to(store: Store) -> None:
    exports = store.part(ExportStore)
    empty = await exports.get_newest_group_sequence()
    await stored(store)
    last = await exports.get_newest_group_sequence()
    await store.groups.add([group("meanwhile")])
    where = ExportRequest().where
    pages = [[one.group.group_id for one in page] async for page in exports.read_pages(where, empty, last, 2)]
    assert pages == [["plain", "labelled"], ["other", "later"], ["npc"]]


async def test_a_group_comes_whole_with_its_task(store: Store) -> None:
    await store.tasks.put([record(0)])
    (kept,) = await store.groups.add([group()])
    found = [page async for page in store.part(ExportStore).read_pages(GroupFilter(), 0, 1, 1)]
    assert found == [[StoredGroup(sequence=1, group=kept, task=record(0))]]
