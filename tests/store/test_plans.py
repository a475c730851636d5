"""Every hot query finds its rows through an index, as the database itself says."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text, update

from app.domain.access import SignIn
from app.domain.groups import Group, GroupFilter
from app.domain.judging import Judgement
from app.domain.labels import Labeller
from app.domain.retention import PruneRule
from app.domain.rollups import RollupFilter, RollupKey
from app.domain.scores import Score
from app.domain.tasks import Context
from app.domain.values import digest
from app.features.exports.store import ExportStore
from app.features.labels.store import LabelQueue
from app.main.store import Store
from app.store.database import is_postgres, open_writer
from app.store.group_rows import build_group_row, build_judgement_rows, build_rollout_rows, build_score_columns
from app.store.groups import IdempotencyKey
from app.store.statements import insert_tuples
from app.store.tables import groups, judgements, leases, rescores, rollouts, rollups, scorings, streams, task_rollups
from tests.support.databases import connected
from tests.support.store_cases import START, cycle, group, record, stream, using
from tests.support.tables import read_table

Statement = tuple[str, Any]
"""As it went to the driver, with its parameters."""

pytestmark = pytest.mark.dialects

GROUPS = 4000

PLANS = read_table(__file__, "plans.yaml", dict[str, list[str]])
LATE = START + timedelta(hours=1)


def filler(n: int) -> Group:
    score = {1: Score.pending(), 2: Score.unscored("budget")}.get(n % 200, Score.exact(True))
    made = group(
        f"g{n}",
        [score],
        task_id=f"task_{n % 400}",
        environment=f"e{n % 40}",
        run=f"r{n % 80}",
        purpose="eval" if n % 100 == 0 else "train",
    ).group
    return made.model_copy(update={"created_at": LATE}) if n == GROUPS - 1 else made


def lease_filler(n: int) -> dict[str, str | int | None]:
    """Of the run that asks, and of other streams and tasks than the one it asks for."""
    return {
        "lease_id": f"l{n}",
        "run": "run",
        "stream": f"s{n % 40}",
        "environment": "gsm8k" if n % 2 else "npc_arena",
        "split": "train",
        "params_digest": digest(stream().params),
        "index": n + 400,
        "epoch": 0,
        "position": n,
        "generation": 1,
        "state": ("live", "deferred", "done", "superseded")[n // 40 % 4],
        "expires_at": 2**60 + n,
        "created_at": 0,
        "group_id": None,
        "step": n,
    }


def scoring_filler(n: int) -> dict[str, str | int]:
    """Of the nth group after the first."""
    return {
        "sequence": 1 + n,
        "scoring_id": f"s{n}",
        "group_sequence": 2 + n,
        "scoring_digest": "d",
        "outcome": "scored",
        "head": "{}",
        "created_at": 0,
    }


def fill(connection: Connection) -> None:
    """Enough rows that a plan is chosen for a reason."""
    fillers = [filler(n) for n in range(GROUPS)]
    first = 2  # one group is there already
    judgement = Judgement(judge="j", model="m", order=())
    judged = build_judgement_rows([(first + n, judgement) for n in range(GROUPS)], 0)
    connection.execute(insert(groups), [build_group_row(one) for one in fillers])
    rows = [row for n, one in enumerate(fillers) for row in build_rollout_rows(first + n, one.rollouts[:1])]
    insert_tuples(connection, rollouts, rows)
    connection.execute(insert(judgements), judged.judgements)
    connection.execute(insert(scorings), [scoring_filler(n) for n in range(GROUPS)])
    rescored = [
        {"scoring_sequence": 1 + n, "position": 0, **build_score_columns(Score.exact(True))} for n in range(GROUPS)
    ]
    connection.execute(insert(rescores), rescored)
    mine = connection.execute(select(streams)).mappings().one()
    connection.execute(insert(streams), [{**mine, "digest": f"s{n}"} for n in range(40)])
    connection.execute(insert(leases), [lease_filler(n) for n in range(GROUPS)])
    series = ("step", "label", "judge", "dataset", "bucket", "run")
    keys = [
        RollupKey(series[n % 6], f"e{n % 40}", f"r{n % 80}", "train", n, f'"l{n % 7}"', n)  # type: ignore[arg-type]
        for n in range(GROUPS)
    ]
    connection.execute(insert(rollups), [key._asdict() | {"digest": key.digest, "measures": "{}"} for key in keys])
    tried = [
        {"run": f"r{n % 80}", "environment": "gsm8k", "task_id": f"task_{n}", "sums": "[0,0,0]"} for n in range(GROUPS)
    ]
    connection.execute(insert(task_rollups), tried)
    connection.execute(update(groups).where(groups.c.sequence % 1000 == 7).values(counted=0))


def fill_and_analyze(url: str, fill: Callable[[Connection], object]) -> None:
    """With the statistics that a database in use has."""
    with connected(url) as connection:
        fill(connection)
        if is_postgres(connection.engine):
            connection.execute(text("ANALYZE"))


async def ask_all(store: Store, url: str) -> dict[str, list[Statement]]:
    """What each call sends to the database."""
    asked = record(7, "Question 7?")
    prompt = asked.prompt.model_copy(update={"metadata": {"scene": "ford"}})
    labelled = asked.model_copy(update={"label": "rare", "prompt": prompt})
    await store.tasks.put([labelled if index == 7 else record(index, f"Question {index}?") for index in range(400)])
    held = (await store.tasks.lease(stream(), 10, 60, cycle(100))).leases
    await store.tasks.lease(stream(), 1, 0, cycle(100))
    await store.tasks.freeze_contexts(stream(), {(0, index): Context() for index in range(10)})
    for number in range(40):
        await store.sheets.keep("npc_arena", f"e{number}", [f'{{"id": {number + n}}}' for n in range(10)])
        await store.sheets.begin_epochs(stream(f"r{number}"), range(10), "e1")
    await store.groups.add([group("fresh", [Score.pending()])])
    fill_and_analyze(url, fill)

    def find(**where: object) -> Awaitable[object]:
        return store.views.find_groups(GroupFilter.model_validate(where))

    async def export(last: int = GROUPS, **where: object) -> object:
        wanted = GroupFilter.model_validate({"purpose": "train", **where})
        async with aclosing(store.part(ExportStore).read_pages(wanted, 0, last, 5)) as pages:
            return await anext(pages)

    tasks, views, queue = store.tasks, store.views, store.part(LabelQueue)
    here = {"run": "r1", "environment": "e1"}
    three = {"task_ids": ("task_1", "task_2", "task_3"), "min_step": 0}
    of_run = stream("r1").model_copy(update={"environment": "e1"})
    answer = [group("answer", lease_id=held[0].lease_id), group("g3")]
    calls: dict[str, Awaitable[object]] = {
        "newest": find(),
        "of environment": find(environment="e1"),
        "of run, next page": find(run="r1", before=GROUPS // 2),
        "of run and environment": find(**here),
        "of run and environment, none": find(run="r1", environment="e2"),
        "of bounded runs": find(runs=("r7*", "r1")),
        "of task": find(task_id="task_1"),
        "pending": find(outcome="pending"),
        "unscored": find(outcome="unscored"),
        "unscored of run": find(outcome="unscored", run="r2"),
        "unscored of both": find(outcome="unscored", run="r2", environment="e2"),
        "unscored of environment": find(outcome="unscored", environment="e2"),
        "evaluations": find(purpose="eval"),
        "evaluations of both": find(purpose="eval", run="r0", environment="e0"),
        "evaluations of environment": find(purpose="eval", environment="e0"),
        "of a rare label": find(label="rare"),
        "of a rare scene": find(label="rare", scene="ford"),
        "late": find(since=LATE + timedelta(minutes=30)),
        "of tasks of a run": find(**here, **three),
        "by judge": find(**here, judge="ann"),
        "scores": views.load_scores(("group_1", "group_2")),
        "export of run and environment": export(run="r1", env="e1"),
        "export of unscored of run": export(outcome="unscored", run="r2"),
        "export of evaluations of run": export(purpose="eval", run="r0"),
        "export of a label": export(label="rare"),
        "export of a scene": export(scene="ford"),
        "export of late groups": export(2 * GROUPS, since=LATE),
        "find": store.groups.find(["g1", "g2"]),
        "unfinished": store.groups.list_unfinished(5),
        "tasks": tasks.get(["task_1", "task_2"]),
        "held leases": tasks.get_leases([lease.lease_id for lease in held]),
        "contexts": tasks.get_frozen_contexts(stream(), [(0, 1), (0, 2)]),
        "edition": store.sheets.get("npc_arena", "e1"),
        "epochs": store.sheets.begin_epochs(stream(), [0, 1], "e1"),
        "oldest step": tasks.get_oldest_step("run"),
        "front": tasks.get_stream_state(stream()),
        "outcomes": store.outcomes.list_since(of_run, GROUPS // 2, 5_000, [1, 2]),
        "hand out": tasks.lease(stream(), 2, 60, cycle(100)),
        "add": store.groups.add(answer, IdempotencyKey("key", "body")),
        "finish": store.groups.finish([group("fresh", [Score.exact(True)])]),
        "left to label": queue.count_left(["e1"], None, Labeller("ada")),
        "drawn to label": queue.draw_doubtful(["e1"], "r1", Labeller("ada")),
        "uncounted": views.count_uncounted(),
        "statistics": views.get_statistics(None, None),
        "statistics of environment": views.get_statistics("e1", None),
        "statistics of run": views.get_statistics(None, "r1"),
        "statistics by label": views.get_statistics("e1", "r1", by="label"),
        "statistics of judge": views.get_statistics(None, "r1", judge="l1"),
        "last buckets": views.list_rollups(RollupFilter("bucket", "e1", "r1", first_bucket=GROUPS - 100)),
        "activity": store.runs.get_activity("r1"),
        "count": store.statistics.count_groups(3),
        "browser": store.keys.find_sign_ins(["a", "b"]),
        "browsers of a key": store.keys.has_sign_ins("k", 20),
        "sign in": store.keys.add_sign_in(SignIn("a", "k", LATE), 20),
        "detail": views.get_group("g1"),
    }
    if url.startswith("sqlite"):  # PostgreSQL reads tables whole that are as empty as some of these
        calls |= {
            "recall": store.groups.recall(["g1", "none"]),
            "prune": store.retention.prune_groups(await store.retention.plan(PruneRule()), GROUPS // 2, 8),
            "sweep": store.retention.sweep(PruneRule(), "leases", "", 10),
            "sweep of lines": store.retention.sweep(PruneRule(), "player_lines", "", 10),
        }
    return await statements_made(calls)


async def statements_made(calls: Mapping[str, Awaitable[object]]) -> dict[str, list[Statement]]:
    """What reads or changes rows that are there, by the call that sends it."""
    seen: list[Statement] = []

    def saw(_c: object, _cursor: object, statement: str, parameters: Any, _context: object, many: bool) -> None:
        looks = statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "WITH RECURSIVE"))
        if looks and "alembic" not in statement:
            seen.append((statement, parameters[0] if many else parameters))

    made: dict[str, list[Statement]] = {}
    event.listen(Engine, "before_cursor_execute", saw)
    try:
        for name, call in calls.items():
            await call
            made[name] = list(seen)
            seen.clear()
    finally:
        event.remove(Engine, "before_cursor_execute", saw)
    return made


READ_ALREADY = {"SCAN pk_given", "SCAN pk_counted", "SCAN pk_names", "SCAN pk_ranked"}
"""Lists that came with the statement, the few entries of an index that are counted or ranked, and names found one by
one."""


def read_of_sqlite(connection: Connection, statement: Statement) -> Iterator[str]:
    for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement[0]}", statement[1]):
        found = re.match(r"(SCAN|SEARCH) (\w+)(?: AS \w+)?(?: USING (?:COVERING )?(.*))?", row[3])
        if found is None:
            continue
        how, table, using_what = found.groups()
        index = re.match(r"INDEX (\w+)|INTEGER PRIMARY KEY|PRIMARY KEY", using_what or "INTEGER PRIMARY KEY")
        name = (index and index[1]) or f"pk_{table}"
        name = re.sub(r"sqlite_autoindex_(\w+)_1", lambda auto: f"pk_{auto[1]}", name)
        name = "uq_groups_group_id" if name == "pk_groups" and "group_id=?" in row[3] else name
        yield name if how == "SEARCH" else f"SCAN {name}"


def read_of_postgres(connection: Connection, statement: Statement) -> Iterator[str]:
    if "set_config" in statement[0]:  # for what follows of the call
        connection.exec_driver_sql(*statement)
        return
    rows = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement[0]}", statement[1]).scalar_one()
    plans = [row["Plan"] for row in (json.loads(rows) if isinstance(rows, str) else rows)]
    while plans:
        plan = plans.pop()
        plans += plan.get("Plans", [])
        if plan["Node Type"] == "Seq Scan":
            yield f"SCAN {plan['Relation Name']}"
        elif "Index Name" in plan:
            yield plan["Index Name"] if "Index Cond" in plan else f"SCAN {plan['Index Name']}"


def indexes_of(url: str, made: Mapping[str, Sequence[Statement]]) -> dict[str, set[str]]:
    engine = open_writer(url)
    read = read_of_postgres if is_postgres(engine) else read_of_sqlite
    with engine.connect() as connection:
        if is_postgres(engine):
            connection.execute(text("SET enable_seqscan = off"))  # most tables hold too few rows for an index to pay
            connection.commit()
        found = {}
        for name, all_ in made.items():
            found[name] = {one for each in all_ for one in read(connection, each)}
            connection.rollback()
    engine.dispose()
    return {name: indexes - READ_ALREADY for name, indexes in found.items()}


def test_hot_queries_use_their_indexes(store_url: str) -> None:
    made = using(store_url, lambda store: ask_all(store, store_url))
    expected = {name: set(PLANS[name]) for name in made}
    found = indexes_of(store_url, made)
    del expected["left to label"], expected["drawn to label"]
    counted = found.pop("left to label")
    drawn = {one for one in found.pop("drawn to label") if "groups" in one or "rollouts" in one}
    drawn.discard("ix_groups_run")  # which PostgreSQL may take for a list of numbers
    assert drawn == {"ix_groups_run_environment", "pk_rollouts"}
    found["of bounded runs"].discard("ix_groups_run_environment")  # names of runs are found by either
    found["unfinished"].discard("SCAN pk_parts")  # which is empty here: `test_part_plans` has many
    assert found.pop("prune", set()) <= expected.pop("prune", set())
    assert found == expected
    of_groups = {re.sub("(ix_groups_open).*", r"\1", one) for one in counted if "groups" in one}  # any index of the few
    assert of_groups == {"SCAN ix_groups_uncounted", "SCAN ix_groups_open"}
