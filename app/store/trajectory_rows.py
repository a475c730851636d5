"""Reads runs, environments and queues from the trajectory tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, RowMapping, case, func, literal_column, select

from app.domain.trajectories import (
    EnvClient,
    EnvRegistration,
    QueueCount,
    QueuedGroup,
    QueueLag,
    TrainerRegistration,
    TrajectoryBacklog,
    TrajectoryRun,
)
from app.store.database import Database
from app.store.rows import from_micros
from app.store.trajectory_tables import batches, env_clients, trajectory_groups, trajectory_runs

SENT = "sent"
"""The holder of a batch whose reply went out in full, whatever becomes of the process that sent it."""

IN_TRANSIT_SECONDS = 60
"""On PostgreSQL: how long a batch handed out by another process counts as in transit."""

_NAME = TypeAdapter(str)
_TURNS = TypeAdapter(dict[int, float])
NO_ENVIRONMENT_KEY = -1
"""The key in `turns` for groups without an environment."""

_IS_WAITING = trajectory_groups.c.batch.is_(None)


@dataclass(frozen=True)
class TrajectoryRunRow:
    """A run with a registered trainer."""

    run: str
    registration: TrainerRegistration
    started: bool
    batches: int
    step_before: int
    turns: Mapping[int | None, float]
    env_clients: tuple[EnvClient, ...]


def lock_run(connection: Connection, database: Database, run: str) -> TrajectoryRunRow | None:
    """The run, locked until the transaction ends; None without a trainer."""
    if database.postgres:
        connection.execute(select(trajectory_runs.c.run).where(trajectory_runs.c.run == run).with_for_update())
    return load_run(connection, run)


def load_run(connection: Connection, run: str) -> TrajectoryRunRow | None:
    row = connection.execute(select(trajectory_runs).where(trajectory_runs.c.run == run)).mappings().first()
    if row is None or row["registration"] is None:
        return None
    turns = {
        None if key == NO_ENVIRONMENT_KEY else key: turn for key, turn in _TURNS.validate_json(row["turns"]).items()
    }
    return TrajectoryRunRow(
        run=run,
        registration=TrainerRegistration.model_validate_json(row["registration"]),
        started=row["started"],
        batches=row["batches"],
        step_before=row["step_before"],
        turns=turns,
        env_clients=load_clients(connection, run),
    )


def load_clients(connection: Connection, run: str) -> tuple[EnvClient, ...]:
    rows = connection.execute(
        select(env_clients).where(env_clients.c.run == run).order_by(env_clients.c.env_id)
    ).mappings()
    return tuple(_parse_client(row) for row in rows)


def _parse_client(row: RowMapping) -> EnvClient:
    return EnvClient(
        env_id=row["env_id"],
        name=_NAME.validate_json(row["name"]),
        registration=EnvRegistration.model_validate_json(row["said"]),
        connected=row["connected"],
        seen_at=from_micros(row["seen_at"]),
    )


def load_backlog(connection: Connection, database: Database, row: TrajectoryRunRow) -> TrajectoryBacklog:
    """The queue of a run. Reads, per environment and size, only what could fit into one batch plus one group."""
    groups = trajectory_groups.c
    here = (groups.run == row.run, _IS_WAITING)
    size = max(1, row.registration.batch_size)
    place = func.row_number().over(partition_by=(groups.env_id, groups.size), order_by=groups.sequence)
    ranked = select(
        groups.sequence, groups.env_id, groups.size, groups.passed, groups.whole, place.label("place")
    ).where(*here)
    inner = ranked.subquery("ranked")
    chosen = (
        select(inner.c.sequence, inner.c.env_id, inner.c.size, inner.c.passed, inner.c.whole)
        .where((inner.c.place - 1) * inner.c.size <= size)
        .order_by(inner.c.sequence)
    )
    return TrajectoryBacklog(
        batch_size=row.registration.batch_size,
        waiting=tuple(QueuedGroup(*found) for found in connection.execute(chosen)),
        sequences=connection.execute(select(func.coalesce(func.sum(groups.size), 0)).where(*here)).scalar_one(),
        env_clients=row.env_clients,
        turns=row.turns,
        now=from_micros(database.read_clock()),
    )


def load_lag(connection: Connection, run: str) -> QueueLag:
    """Of groups that are not in a batch yet."""
    runs, groups = trajectory_runs.c, trajectory_groups.c
    lag = runs.step_before + runs.batches - groups.step
    counted = [case((lag >= 0, one)) for one in (literal_column("1"), lag)]
    statement = (
        select(func.count(counted[0]), func.sum(counted[1]), func.max(counted[1]), func.count(case((lag < 0, 1))))
        .select_from(trajectory_groups.join(trajectory_runs, runs.run == groups.run))
        .where(groups.run == run, _IS_WAITING, groups.step.is_not(None))
    )
    count, total, largest, older = connection.execute(statement).one()
    return QueueLag(count, float(total / count) if count else None, largest, older)


def match_undelivered(database: Database, run: str, life: str) -> tuple[ColumnElement[bool], ...]:
    """Conditions for batches that must be handed out again."""
    mine = (batches.c.run == run, batches.c.holder.not_in([life, SENT]))
    if not database.postgres:
        return mine
    arrived_by = database.read_clock() - IN_TRANSIT_SECONDS * 1_000_000
    return (*mine, (batches.c.handed_at <= arrived_by) | (batches.c.holder == literal_column("''")))


def load_run_state(connection: Connection, database: Database, run: str, life: str) -> TrajectoryRun:
    row = connection.execute(select(trajectory_runs).where(trajectory_runs.c.run == run)).mappings().first()
    if row is None:
        return TrajectoryRun(run=run)
    groups = trajectory_groups.c
    numbers = select(batches.c.number).where(*match_undelivered(database, run, life))
    lost = list(connection.execute(numbers).scalars())
    counted = select(groups.env_id, groups.size, func.count()).where(groups.run == run)
    counted = counted.group_by(groups.env_id, groups.size)
    found = [tuple(each) for each in connection.execute(counted.where(_IS_WAITING))]
    if lost:
        found += [tuple(each) for each in connection.execute(counted.where(groups.batch.in_(lost)))]
    registered = row["registration"]
    return TrajectoryRun(
        run=run,
        registration=None if registered is None else TrainerRegistration.model_validate_json(registered),
        started=row["started"],
        step=row["step_before"] + row["batches"] - len(lost),
        env_clients=load_clients(connection, run),
        queue_counts=tuple(QueueCount(*each) for each in found),
        undelivered=len(lost),
    )
