"""What benchmarks grow from a small store has the statistics that the service would have counted."""

from typing import Any

from sqlalchemy import select

from app.domain.judging import Judgement
from app.domain.runs import Policy
from app.domain.scores import Score
from app.main.store import Store
from app.store.database import open_for_inspection
from app.store.tables import groups, rollouts, rollups, task_rollups
from benchmarks.grown_stores import grow
from benchmarks.seeded_stores import ARENA, ARENA_RUN
from tests.support.store_cases import group, record, using

COPIES = 7


def read_rows(url: str, *tables: Any) -> list[set[tuple[Any, ...]]]:
    engine = open_for_inspection(url)
    with engine.connect() as connection:
        found = [{tuple(row) for row in connection.execute(select(table))} for table in tables]
    engine.dispose()
    return found


async def put_a_few(store: Store) -> None:
    await store.tasks.put([record(index).model_copy(update={"label": f"mira {index % 3}"}) for index in range(8)])
    judged = (Judgement(judge="ann", model="m", order=()),)
    for number in range(10):
        scores = [Score.exact(place > number // 3) for place in range(4)]
        policy = Policy(model="m", step=number % 2)
        await store.groups.add([group(f"group_{number:032x}", scores, task_id=f"task_{number % 8}", policy=policy)])
    named = group("group_" + "f" * 32, environment=ARENA, run=ARENA_RUN, judgements=judged)
    await store.groups.add([named])


async def count_again(store: Store) -> None:
    await store.statistics.forget_all()
    while await store.statistics.count_groups(50):
        pass


def test_a_grown_store_counts_what_a_scan_of_it_counts(store_url: str) -> None:
    using(store_url, put_a_few)
    grow(store_url, COPIES, lambda _: None)
    grown = read_rows(store_url, rollups, task_rollups)
    using(store_url, count_again)
    stored = [len(rows) for rows in read_rows(store_url, groups, rollouts)]
    assert (read_rows(store_url, rollups, task_rollups), stored) == (grown, [COPIES * 11, COPIES * 42])
