"""Hands out batches: undelivered ones first, then new ones. Delivered batches are deleted."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, RowMapping, delete, exists, func, insert, select, update

from app.domain.trajectories import BatchFormer, BatchNotReady, BatchPart, BatchPlan, TrajectoryBatch
from app.store.database import Database
from app.store.rows import encode_json
from app.store.trajectory_rows import NO_ENVIRONMENT_KEY, SENT, TrajectoryRunRow, load_backlog, match_undelivered
from app.store.trajectory_tables import batches, bodies, trajectory_groups, trajectory_runs


def hand_out_batch(
    connection: Connection, database: Database, row: TrajectoryRunRow, life: str, form: BatchFormer
) -> TrajectoryBatch | BatchNotReady:
    """Hands out one batch within the transaction of `connection`, which has locked the run."""
    if not row.started:
        _update_run(connection, row.run, {"started": True})
    again = _hand_out_again(connection, database, row.run, life)
    if again is not None:
        return again
    formed = form(load_backlog(connection, database, row))
    if isinstance(formed, BatchNotReady):
        return formed
    if not formed.shares:  # of a pure function: cannot happen, and would be an endless row of empty batches
        raise ValueError("a batch without groups")
    number = row.batches + 1
    _assign_groups(connection, row.run, number, formed)
    connection.execute(insert(batches).values(run=row.run, number=number, holder=life, handed_at=database.read_clock()))
    _update_run(connection, row.run, {"batches": number, "turns": _encode_turns(formed.turns)})
    return TrajectoryBatch(number, _load_parts(connection, row.run, number), again=False)


def _hand_out_again(connection: Connection, database: Database, run: str, life: str) -> TrajectoryBatch | None:
    """The first batch whose delivery is not known, if there is one."""
    lost = select(batches.c.number).where(*match_undelivered(database, run, life)).order_by(batches.c.number).limit(1)
    number = connection.execute(lost).scalar()
    if number is None:
        return None
    mine = (batches.c.run == run, batches.c.number == number)
    held = {"holder": life, "handed_at": database.read_clock()}
    connection.execute(update(batches).where(*mine).values(held))
    return TrajectoryBatch(number, _load_parts(connection, run, number), again=True)


def _update_run(connection: Connection, run: str, values: Mapping[str, object]) -> None:
    connection.execute(update(trajectory_runs).where(trajectory_runs.c.run == run).values(values))


def _encode_turns(turns: Mapping[int | None, float]) -> str:
    return encode_json({str(NO_ENVIRONMENT_KEY if key is None else key): turn for key, turn in turns.items()})


def _assign_groups(connection: Connection, run: str, number: int, formed: BatchPlan) -> None:
    groups = trajectory_groups
    taken = {share.sequence: share.size for share in formed.shares}
    known = select(groups).where(groups.c.run == run, groups.c.sequence.in_(taken))
    rows = {row["sequence"]: row for row in connection.execute(known).mappings()}
    for place, share in enumerate(formed.shares):
        _assign_slice(connection, rows[share.sequence], share.size, number, place)
    if formed.passed_over is not None:
        first = update(groups).where(groups.c.sequence == formed.passed_over)
        connection.execute(first.values(passed=groups.c.passed + 1))


def _assign_slice(connection: Connection, row: RowMapping, size: int, number: int, place: int) -> None:
    """Assigns the whole row, or its first `size` sequences, and leaves the rest in the queue."""
    groups = trajectory_groups
    here = update(groups).where(groups.c.sequence == row["sequence"])
    if size == row["size"]:
        connection.execute(here.values(batch=number, place=place))
        return
    rest = {"first": row["first"] + size, "size": row["size"] - size, "whole": False, "passed": 0}
    connection.execute(here.values(rest))
    piece = {name: row[name] for name in ("run", "env_id", "body_id", "first", "passed", "step")}
    connection.execute(insert(groups).values({**piece, "size": size, "whole": False, "batch": number, "place": place}))


def _load_parts(connection: Connection, run: str, number: int) -> tuple[BatchPart, ...]:
    groups = trajectory_groups.c
    statement = (
        select(bodies.c.body, groups.first, groups.size, groups.whole)
        .select_from(trajectory_groups.join(bodies, bodies.c.body_id == groups.body_id))
        .where(groups.run == run, groups.batch == number)
        .order_by(groups.place)
    )
    return tuple(BatchPart(*found) for found in connection.execute(statement))


def return_to_queue(connection: Connection, run: str, number: int) -> None:
    statement = update(batches).where(batches.c.run == run, batches.c.number == number)
    connection.execute(statement.values(holder=""))


def mark_sent(connection: Connection, run: str, numbers: Collection[int]) -> None:
    statement = update(batches).where(batches.c.run == run, batches.c.number.in_(sorted(numbers)))
    connection.execute(statement.values(holder=SENT))


def find_sent(connection: Connection, run: str) -> set[int]:
    sent = select(batches.c.number).where(batches.c.run == run, batches.c.holder == SENT)
    return set(connection.execute(sent).scalars())


def delete_delivered(connection: Connection, run: str, numbers: Collection[int], known_since: int) -> None:
    """Deletes delivered batches. Digests of their groups stay until they are older than `known_since`, and the body of
    the run's newest group stays as an example."""
    if not numbers:
        return
    groups = trajectory_groups
    gone = (groups.c.run == run, groups.c.batch.in_(numbers))
    ids = set(connection.execute(select(groups.c.body_id).where(*gone)).scalars())
    connection.execute(delete(groups).where(*gone))
    connection.execute(delete(batches).where(batches.c.run == run, batches.c.number.in_(numbers)))
    if ids:
        _delete_bodies(connection, run, max(ids), known_since)


def _delete_bodies(connection: Connection, run: str, last: int, known_since: int) -> None:
    kept = bodies.c.body.is_not(None)
    newest = connection.execute(select(func.max(bodies.c.body_id)).where(bodies.c.run == run, kept)).scalar()
    unneeded = (
        bodies.c.run == run,
        kept,
        bodies.c.body_id <= last,
        bodies.c.body_id != newest,
        ~exists().where(trajectory_groups.c.body_id == bodies.c.body_id),
    )
    connection.execute(update(bodies).where(*unneeded).values(body=None))
    connection.execute(delete(bodies).where(bodies.c.run == run, ~kept, bodies.c.created_at < known_since))
