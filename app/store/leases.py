"""Leases of slots of a stream."""

import hashlib
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, select, update

from app.domain.digests import canonical_json, digest
from app.domain.runs import HeldLease, Lease, Stream
from app.domain.tasks import TaskKey
from app.ports.store import LeaseResult, SlotLocator, StreamState
from app.store.database import Database
from app.store.lease_allocation import (
    IS_LIVE,
    LeaseAllocation,
    count_outstanding,
    match_held_leases,
    match_stream_row,
)
from app.store.lease_tables import leases, streams
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.rows import decode_json, from_micros
from app.store.tables import runs


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
    position = _open_stream(connection, database, stream, now)
    expires_at = now + round(seconds * 1_000_000)
    hand = LeaseAllocation(connection, stream, digest(stream.params), now, expires_at, count, step)
    hand.assign_expired()
    hand.assign_deferred()
    position = hand.lease_new_positions(position, locate)
    hand.write_leases(position)
    given = tuple(
        Lease(lease_id=lease_id, slot=slot, expires_at=from_micros(hand.expires_at)) for lease_id, slot in hand.given
    )
    outstanding = count_outstanding(connection, stream)
    return LeaseResult(leases=given, outstanding=outstanding, drained=locate(position) is None)


def reserve_positions(connection: Connection, database: Database, stream: Stream, count: int) -> int:
    first = _open_stream(connection, database, stream, database.read_clock())
    connection.execute(update(streams).where(*match_stream_row(stream)).values(position=first + count))
    return first


def expire_leases(connection: Connection, database: Database, stream: Stream, lease_ids: Sequence[str]) -> None:
    """Expires leases at once and no longer counts them as handed out."""
    if database.postgres:
        _lock_run(connection, stream)
    mine = leases.c.run == stream.run, leases.c.stream == stream.digest, leases.c.lease_id.in_(lease_ids), IS_LIVE
    given = connection.execute(update(leases).where(*mine).values(expires_at=database.read_lease_clock(connection)))
    counted = streams.c.handed_out - given.rowcount
    connection.execute(update(streams).where(*match_stream_row(stream)).values(handed_out=counted))


def load_leases(connection: Connection, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
    statement = select(leases, streams.c.params).join_from(leases, streams).where(leases.c.lease_id.in_(lease_ids))
    return {
        row["lease_id"]: HeldLease.model_validate(
            {name: row[name] for name in ("lease_id", "run", "environment", "split", "index", "step")}
            | {"params": decode_json(row["params"])}
        )
        for row in connection.execute(statement).mappings()
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
    position = connection.execute(select(streams.c.position).where(*match_stream_row(stream))).scalar()
    held = select(leases.c.index).where(
        *match_held_leases(stream, digest(stream.params), database.read_lease_clock(connection))
    )
    return StreamState(position=position or 0, held=frozenset(connection.execute(held).scalars()))


def _open_stream(connection: Connection, database: Database, stream: Stream, now: int) -> int:
    """The stream's next position, with its row locked on PostgreSQL."""
    mine = select(streams.c.position).where(*match_stream_row(stream)).with_for_update()
    position: int | None = connection.execute(mine).scalar()
    if position is not None:
        return position
    row = {
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
    connection.execute(database.insert_new(streams), row)
    return int(connection.execute(mine).scalar_one())


def _lock_run(connection: Connection, stream: Stream) -> None:
    """Serialises leasing per run and environment, since two streams of a run may contain the same task."""
    key = hashlib.sha256(f"{stream.run}/{stream.environment}".encode()).digest()[:8]
    connection.execute(select(func.pg_advisory_xact_lock(int.from_bytes(key, "big", signed=True))))
