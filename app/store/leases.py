"""Leases of slots of a stream."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, literal_column, select, update

from app.domain.digests import canonical_json, digest
from app.domain.runs import HeldLease, Lease, Stream
from app.domain.tasks import TaskKey
from app.domain.values import Split
from app.ports.store import LeaseResult, SlotLocator, StreamState
from app.store.database import Database
from app.store.inserts import insert_new_rows
from app.store.lease_allocation import (
    IS_LIVE,
    LeaseAllocation,
    OpenStream,
    find_held_tasks,
    match_held_leases,
    match_stream_row,
    open_stream,
)
from app.store.lease_tables import leases, streams
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.rows import Row, decode_json, from_micros
from app.store.tables import runs

TaskKind = tuple[str, Split]
"""An environment and a split."""

_LOCK_RUN: Final = PreparedStatement(lambda _: select(func.pg_advisory_xact_lock(bindparam("lock"))))
_SELECT_POSITION: Final = PreparedStatement(lambda _: select(streams.c.position).where(*match_stream_row()))
_MOVE_STREAM: Final = PreparedStatement(
    lambda _: update(streams).where(*match_stream_row()).values(position=bindparam("next"))
)
_UNCOUNT_LEASES: Final = PreparedStatement(
    lambda _: update(streams).where(*match_stream_row()).values(handed_out=streams.c.handed_out - bindparam("returned"))
)
_SELECT_HELD_TASKS: Final = PreparedStatement(lambda _: select(leases.c.index).where(*match_held_leases()))
_SELECT_LEASES: Final = PreparedStatement(
    lambda postgres: (
        select(leases, streams.c.params).join_from(leases, streams).where(is_among(leases.c.lease_id, "ids", postgres))
    )
)


def lease_slots(
    connection: Connection,
    database: Database,
    stream: Stream,
    count: int,
    seconds: float,
    locate: SlotLocator,
    step: int | None,
) -> LeaseResult:
    """Implements the port's `lease` within the transaction of `connection`."""
    if database.postgres:
        _lock_run(connection, stream)
    now = database.read_lease_clock(connection)
    opened = _open_stream(connection, database, stream, now)
    expires_at = now + round(seconds * 1_000_000)
    hand = LeaseAllocation(connection, stream, digest(stream.params), opened, now, expires_at, count, step)
    hand.assign_expired()
    hand.assign_deferred()
    position = hand.lease_new_positions(locate)
    outstanding = hand.write_leases(position)
    until = from_micros(expires_at)
    given = tuple(Lease(lease_id=lease_id, slot=slot, expires_at=until) for lease_id, slot in hand.given)
    return LeaseResult(leases=given, outstanding=outstanding, drained=locate(position) is None)


def reserve_positions(connection: Connection, database: Database, stream: Stream, count: int) -> int:
    first = _open_stream(connection, database, stream, database.read_clock()).position
    _MOVE_STREAM.run(connection, run=stream.run, stream=stream.digest, next=first + count)
    return first


def expire_leases(connection: Connection, database: Database, stream: Stream, lease_ids: Sequence[str]) -> None:
    """Expires leases at once and no longer counts them as handed out."""
    if database.postgres:
        _lock_run(connection, stream)
    mine = leases.c.run == stream.run, leases.c.stream == stream.digest, leases.c.lease_id.in_(lease_ids), IS_LIVE
    given = connection.execute(update(leases).where(*mine).values(expires_at=database.read_lease_clock(connection)))
    _UNCOUNT_LEASES.run(connection, run=stream.run, stream=stream.digest, returned=given.rowcount)


def load_leases(connection: Connection, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
    return {
        row["lease_id"]: HeldLease.model_validate(
            {name: row[name] for name in ("lease_id", "run", "environment", "split", "index", "step")}
            | {"params": decode_json(row["params"])}
        )
        for row in _SELECT_LEASES.run(connection, ids=list(lease_ids)).mappings()
    }


def load_oldest_step(connection: Connection, database: Database, run: str) -> int | None:
    """Reads the entries of leases that are out, and no row: every paced holder asks again and again."""
    out = leases.c.run == run, IS_LIVE, leases.c.expires_at > database.read_lease_clock(connection)
    return connection.execute(select(func.min(leases.c.step)).where(*out, leases.c.step.is_not(None))).scalar()


_SELECT_LEASING_RUNS: Final = PreparedStatement(
    lambda postgres: (
        select(runs.c.name, leases.c.index)
        .join_from(runs, leases, leases.c.run == runs.c.name)
        .where(
            leases.c.environment == bindparam("environment"),
            leases.c.split == bindparam("split"),
            leases.c.params_digest == bindparam("params"),
            is_among(leases.c.index, "indexes", postgres),
            IS_LIVE,
        )
    )
)


_SELECT_LIVE: Final = PreparedStatement(
    lambda _: (
        select(literal_column("1"))
        .select_from(runs)
        .join(leases, leases.c.run == runs.c.name)
        .where(leases.c.environment == bindparam("environment"), leases.c.split == bindparam("split"), IS_LIVE)
        .limit(literal_column("1"))
    )
)


def find_unleased(connection: Connection, kinds: Collection[TaskKind]) -> set[TaskKind]:
    """Those of which no task has a live lease."""
    return {kind for kind in kinds if _SELECT_LIVE.run(connection, environment=kind[0], split=kind[1]).first() is None}


def load_leasing_runs(connection: Connection, keys: Sequence[TaskKey]) -> list[frozenset[str]]:
    """By way of the runs, since the index of live leases begins with them."""
    kinds = [(key.environment, key.split, digest(key.params)) for key in keys]
    found: dict[tuple[tuple[str, str, str], int], set[str]] = {}
    for kind in set(kinds):
        environment, split, params = kind
        indexes = [key.index for key, own in zip(keys, kinds, strict=True) if own == kind]
        rows = _SELECT_LEASING_RUNS.run(
            connection, environment=environment, split=split, params=params, indexes=list(dict.fromkeys(indexes))
        )
        for row in rows.mappings():
            found.setdefault((kind, row["index"]), set()).add(row["name"])
    return [frozenset(found.get((kind, key.index), ())) for key, kind in zip(keys, kinds, strict=True)]


def load_stream_state(connection: Connection, database: Database, stream: Stream) -> StreamState:
    position = _SELECT_POSITION.run(connection, run=stream.run, stream=stream.digest).scalar()
    held = find_held_tasks(stream, digest(stream.params), database.read_lease_clock(connection))
    return StreamState(position=position or 0, held=frozenset(_SELECT_HELD_TASKS.run(connection, **held).scalars()))


def _open_stream(connection: Connection, database: Database, stream: Stream, now: int) -> OpenStream:
    """The stream, which is stored if it is new."""
    opened = open_stream(connection, stream, now)
    if opened is None:
        _add_stream(connection, stream, now)
        opened = open_stream(connection, stream, now)
    if opened is None:
        raise LookupError("a stream that was just stored is not there")
    return opened


def _add_stream(connection: Connection, stream: Stream, now: int) -> None:
    row: Row = {
        "run": stream.run,
        "digest": stream.digest,
        "environment": stream.environment,
        "split": stream.split,
        "params": canonical_json(stream.params),
        "params_digest": digest(stream.params),
        "select": canonical_json({name: list(values) for name, values in stream.select.items()}),
        "position": 0,
        "handed_out": 0,
        "created_at": now,
    }
    insert_new_rows(connection, streams, [row])


def _lock_run(connection: Connection, stream: Stream) -> None:
    """Serialises leasing per run and environment, since two streams of a run may contain the same task."""
    key = hashlib.sha256(f"{stream.run}/{stream.environment}".encode()).digest()[:8]
    _LOCK_RUN.run(connection, lock=int.from_bytes(key, "big", signed=True))
