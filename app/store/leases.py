"""Leases: each hands out one slot of a stream to one holder until a time.

A stream is one run's way to ask for tasks (environment, split, params, select). It goes through its positions in order.
Each position is a slot: a task of one epoch, and an epoch is one pass of the stream over its tasks in an order of its
own. Every task is handed out once per epoch, and within a run never to two holders at a time, whichever of its streams
they ask.

A stream that arrives at a task which somebody still holds defers the slot: to skip it would break the epoch, and to
wait would let one slow holder stop everybody. A call therefore takes slots from three sources, in this order: expired
leases, each of which is superseded by one of the next generation; deferred slots whose task is free; new positions.

A lease governs hand-out alone. Who answers after its end is scored, only flagged `late`. Times are those of the
database's clock on PostgreSQL, so that replicas agree on what has expired.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    select,
    update,
)

from app.domain.runs import HeldLease, Lease, Slot, Stream
from app.domain.tasks import TaskKey
from app.domain.values import Split, canonical_json, digest
from app.store.database import Database
from app.store.statements import (
    MICROSECONDS_PER_SECOND,
    PreparedStatement,
    Row,
    Value,
    decode_json,
    from_micros,
    insert_new_rows,
    insert_rows,
    is_among,
    is_outside,
    lock_names,
)
from app.store.tables import leases, runs, streams, tasks

StreamPlace = tuple[int, int]
"""(epoch, index) within a stream."""


SlotLocator = Callable[[int], Slot | None]
"""A pure function: the slot at a position of a stream; None past the end of a one-epoch stream."""


TaskNaming = Callable[[Sequence[int]], list[str]]
"""The ids of those tasks at these indexes that were made before."""


@dataclass(frozen=True)
class LeaseResult:
    """New leases. `outstanding` counts the stream's live leases, and ends at some hundreds; `drained` means that no
    position is left. `stored` are the named tasks that the store has."""

    leases: tuple[Lease, ...]
    outstanding: int
    drained: bool
    stored: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StreamState:
    """State of a stream. `position` is the next one to hand out; `held` are the indexes of tasks leased in the stream's
    run, from any of its streams."""

    position: int
    held: frozenset[int]


TaskKind = tuple[str, Split]
"""An environment and a split."""
MAX_DEFERRED = 256
"""Maximum number of deferred slots per stream. A stream with more waits for leases to end."""
MAX_COUNTED = 2 * MAX_DEFERRED
"""Counting of a stream's live and deferred leases ends at so many of each."""
# As literals, without which SQLite does not see that the partial indexes apply.
IS_LIVE = leases.c.state == literal_column("'live'")
_IS_DEFERRED = leases.c.state == literal_column("'deferred'")
IS_OF_TASK = and_(*(leases.c[name] == tasks.c[name] for name in ("environment", "split", "params_digest", "index")))
"""Whatever the version of the task."""


# Leasing slots, and giving them back.


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
    _lock_run(connection, stream)
    now = database.read_lease_clock(connection)
    opened = _open_stream(connection, database, stream, now)
    expires_at = now + round(seconds * MICROSECONDS_PER_SECOND)
    allocation = _LeaseAllocation(connection, stream, digest(stream.params), opened, now, expires_at, count, step)
    allocation.assign_expired()
    allocation.assign_deferred()
    position = allocation.lease_new_positions(locate)
    outstanding = allocation.write_leases(position)
    until = from_micros(expires_at)
    handed_out = tuple(Lease(lease_id=lease_id, slot=slot, expires_at=until) for lease_id, slot in allocation.assigned)
    return LeaseResult(leases=handed_out, outstanding=outstanding, drained=locate(position) is None)


def reserve_positions(connection: Connection, database: Database, stream: Stream, count: int) -> int:
    first = _open_stream(connection, database, stream, database.read_clock()).position
    _MOVE_STREAM.run(connection, run=stream.run, stream=stream.digest, next=first + count)
    return first


def expire_leases(connection: Connection, database: Database, stream: Stream, lease_ids: Sequence[str]) -> None:
    """Expires leases at once and no longer counts them as handed out."""
    _lock_run(connection, stream)
    mine = leases.c.run == stream.run, leases.c.stream == stream.digest, leases.c.lease_id.in_(lease_ids), IS_LIVE
    expired = connection.execute(update(leases).where(*mine).values(expires_at=database.read_lease_clock(connection)))
    _UNCOUNT_LEASES.run(connection, run=stream.run, stream=stream.digest, returned=expired.rowcount)


def _lock_run(connection: Connection, stream: Stream) -> None:
    """Serialises leasing per run and environment, since two streams of a run may contain the same task."""
    lock_names(connection, [f"leases {stream.run}/{stream.environment}"])


_MOVE_STREAM: Final = PreparedStatement(
    lambda _: update(streams).where(*_match_stream_row()).values(position=bindparam("next"))
)
_UNCOUNT_LEASES: Final = PreparedStatement(
    lambda _: (
        update(streams).where(*_match_stream_row()).values(handed_out=streams.c.handed_out - bindparam("returned"))
    )
)


# What leases are out.

_SELECT_LEASES: Final = PreparedStatement(
    lambda postgres: (
        select(leases, streams.c.params).join_from(leases, streams).where(is_among(leases.c.lease_id, "ids", postgres))
    )
)


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
    runs_of_tasks: dict[tuple[tuple[str, str, str], int], set[str]] = {}
    for kind in set(kinds):
        environment, split, params = kind
        indexes = [key.index for key, own in zip(keys, kinds, strict=True) if own == kind]
        rows = _SELECT_LEASING_RUNS.run(
            connection, environment=environment, split=split, params=params, indexes=list(dict.fromkeys(indexes))
        )
        for row in rows.mappings():
            runs_of_tasks.setdefault((kind, row["index"]), set()).add(row["name"])
    return [frozenset(runs_of_tasks.get((kind, key.index), ())) for key, kind in zip(keys, kinds, strict=True)]


_SELECT_POSITION: Final = PreparedStatement(lambda _: select(streams.c.position).where(*_match_stream_row()))
_SELECT_HELD_TASKS: Final = PreparedStatement(lambda _: select(leases.c.index).where(*_match_held_leases()))


def load_stream_state(connection: Connection, database: Database, stream: Stream) -> StreamState:
    position = _SELECT_POSITION.run(connection, run=stream.run, stream=stream.digest).scalar()
    held = _find_held_tasks(stream, digest(stream.params), database.read_lease_clock(connection))
    return StreamState(position=position or 0, held=frozenset(_SELECT_HELD_TASKS.run(connection, **held).scalars()))


# The row of a stream.


@dataclass(frozen=True)
class _OpenStream:
    """A stream as it stands when leases of it are asked for; on PostgreSQL its row is locked."""

    position: int
    has_expired: bool
    deferred: int
    """At most MAX_COUNTED."""


def _open_stream(connection: Connection, database: Database, stream: Stream, now: int) -> _OpenStream:
    """The stream, which is stored if it is new."""
    opened = _load_stream_row(connection, stream, now)
    if opened is None:  # two replicas may both add it: one row stays, and both read that
        _add_stream(connection, stream, now)
        opened = _load_stream_row(connection, stream, now)
    if opened is None:
        raise LookupError("a stream that was just stored is not there")
    return opened


def _load_stream_row(connection: Connection, stream: Stream, now: int) -> _OpenStream | None:
    """None for a stream that is not stored yet."""
    row = _LOCK_STREAM.run(connection, run=stream.run, stream=stream.digest, now=now).first()
    return None if row is None else _OpenStream(row.position, bool(row.has_expired), row.deferred)


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


# Who gets a lease in one call: slots of expired leases first, then deferred slots, then new positions.

_LeaseRow = dict[str, str | int | None]


@dataclass
class _LeaseAllocation:
    connection: Connection
    stream: Stream
    params_digest: str
    opened: _OpenStream
    now: int
    expires_at: int
    count: int
    step: int | None = None
    assigned: list[tuple[str, Slot]] = field(default_factory=list)
    rows: list[_LeaseRow] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    """Indexes of tasks leased in this call."""
    revived: int = 0
    """Deferred slots that were leased in this call."""

    @cached_property
    def _names(self) -> Iterator[str]:
        return _name_leases(self.now)

    @property
    def remaining(self) -> int:
        return self.count - len(self.assigned)

    def assign_expired(self) -> None:
        """Supersedes expired leases. Each slot gets a new lease or, while the task is leased elsewhere, is deferred."""
        if not self.opened.has_expired:
            return
        while self.remaining > 0 and (expired := self._run(_SELECT_EXPIRED, most=self.remaining)):
            _SUPERSEDE.run(self.connection, ids=[lease_id for lease_id, *_ in expired])
            slots = [Slot(position=position, epoch=epoch, index=index) for _, position, epoch, index, _ in expired]
            busy = self._find_busy_tasks([slot.index for slot in slots])
            for slot, (*_, generation) in zip(slots, expired, strict=True):
                self._lease_or_defer(slot, busy, generation + 1)

    def assign_deferred(self) -> None:
        if self.remaining <= 0 or not self.opened.deferred:
            return
        free = []
        # One task may have several deferred slots, of which a call takes the first. So it looks again until it has
        # enough: where the next slots are all of tasks that it took, others behind them may be free.
        while self.remaining > 0 and (slots := self._select_free_deferred()):
            for lease_id, position, epoch, index in slots:
                if index not in self.taken:
                    self._assign(lease_id, Slot(position=position, epoch=epoch, index=index))
                    free.append(lease_id)
        self.revived = len(free)
        if free:
            _REVIVE.run(self.connection, ids=free, until=self.expires_at, now=self.now, current_step=self.step)

    def lease_new_positions(self, locate: SlotLocator) -> int:
        """Leases new positions and returns the stream's next one."""
        position = self.opened.position
        # Without a bound, a stream over few tasks would defer them all again and again while their holders work.
        room = MAX_DEFERRED - (self.opened.deferred - self.revived)
        while self.remaining > 0:
            slots = _locate_slots(position, self.remaining, locate)
            if not slots:
                break
            busy = self._find_busy_tasks([slot.index for slot in slots])
            for slot in slots:
                if not self._is_free(slot, busy):
                    if room <= 0:
                        return position
                    room -= 1
                self._lease_or_defer(slot, busy, 1)
                position = slot.position + 1
        return position

    def write_leases(self, position: int) -> int:
        """Returns the number of the stream's live and deferred leases, of each at most MAX_COUNTED."""
        insert_rows(self.connection, leases, self.rows)
        outstanding: int = _CLOSE_STREAM.run(
            self.connection, run=self.stream.run, stream=self.stream.digest, next=position, leased=len(self.assigned)
        ).scalar_one()
        return outstanding

    def _is_free(self, slot: Slot, busy: Collection[int]) -> bool:
        return slot.index not in busy and slot.index not in self.taken

    def _lease_or_defer(self, slot: Slot, busy: Collection[int], generation: int) -> None:
        lease_id = next(self._names)
        free = self._is_free(slot, busy)
        if free:
            self._assign(lease_id, slot)
        self.rows.append(self._build_row(lease_id, slot, generation, "live" if free else "deferred"))

    def _build_row(self, lease_id: str, slot: Slot, generation: int, state: str) -> _LeaseRow:
        return self._shared_columns | {
            "lease_id": lease_id,
            "index": slot.index,
            "epoch": slot.epoch,
            "position": slot.position,
            "generation": generation,
            "state": state,
        }

    @cached_property
    def _shared_columns(self) -> _LeaseRow:
        return {
            "run": self.stream.run,
            "stream": self.stream.digest,
            "environment": self.stream.environment,
            "split": self.stream.split,
            "params_digest": self.params_digest,
            "expires_at": self.expires_at,
            "created_at": self.now,
            "group_id": None,
            "step": self.step,
        }

    def _assign(self, lease_id: str, slot: Slot) -> None:
        self.assigned.append((lease_id, slot))
        self.taken.add(slot.index)

    def _find_busy_tasks(self, indexes: list[int]) -> set[int]:
        """Indexes of tasks that are leased in this run, from any stream."""
        held = _find_held_tasks(self.stream, self.params_digest, self.now)
        return set(_SELECT_BUSY.run(self.connection, **held, indexes=indexes).scalars())

    def _select_free_deferred(self) -> Sequence[Any]:
        return _SELECT_FREE_DEFERRED.run(
            self.connection,
            run=self.stream.run,
            stream=self.stream.digest,
            now=self.now,
            most=self.remaining,
            taken=sorted(self.taken),
        ).all()

    def _run(self, statement: PreparedStatement, most: int) -> Sequence[Any]:
        return statement.run(
            self.connection, run=self.stream.run, stream=self.stream.digest, now=self.now, most=most
        ).all()


def _find_held_tasks(stream: Stream, params_digest: str, now: int) -> dict[str, Value]:
    """The values of `_match_held_leases`."""
    return {
        "run": stream.run,
        "environment": stream.environment,
        "split": stream.split,
        "params_digest": params_digest,
        "now": now,
    }


def _locate_slots(position: int, count: int, locate: SlotLocator) -> list[Slot]:
    slots: list[Slot] = []
    while len(slots) < count and (slot := locate(position + len(slots))) is not None:
        slots.append(slot)
    return slots


_DRAWN_DIGITS: Final = 19
_NAMES_AT_ONCE: Final = 32
"""The system is asked for random digits once for so many names."""


def _name_leases(now: int) -> Iterator[str]:
    """Names that begin with the time lie together in the index of names: a batch changes a few pages of it instead of
    one for each lease. The rest, of 76 bits, cannot be guessed."""
    while True:
        drawn = secrets.token_hex(_NAMES_AT_ONCE * _DRAWN_DIGITS // 2)
        for start in range(0, len(drawn), _DRAWN_DIGITS):
            yield f"lease_{now:013x}{drawn[start : start + _DRAWN_DIGITS]}"


# The statements of a call. They are prepared, since each call of a trainer runs them.


def _match_stream_row() -> tuple[ColumnElement[bool], ...]:
    return streams.c.run == bindparam("run"), streams.c.digest == bindparam("stream")


def _match_stream() -> tuple[ColumnElement[bool], ...]:
    return leases.c.run == bindparam("run"), leases.c.stream == bindparam("stream")


def _match_held_leases() -> tuple[ColumnElement[bool], ...]:
    """Conditions for live leases of the run on tasks of the stream's environment, split and params."""
    return (
        leases.c.run == bindparam("run"),
        leases.c.environment == bindparam("environment"),
        leases.c.split == bindparam("split"),
        leases.c.params_digest == bindparam("params_digest"),
        IS_LIVE,
        leases.c.expires_at > bindparam("now"),
    )


def _count_leases(state: ColumnElement[bool], most: int) -> ScalarSelect[Any]:
    some: Select[Any] = select(literal_column("1")).where(*_match_stream(), state).limit(literal_column(str(most)))
    return select(func.count()).select_from(some.subquery("counted")).scalar_subquery()


_LOCK_STREAM: Final = PreparedStatement(
    lambda _: (
        select(
            streams.c.position,
            exists().where(*_match_stream(), IS_LIVE, leases.c.expires_at <= bindparam("now")).label("has_expired"),
            _count_leases(_IS_DEFERRED, MAX_COUNTED).label("deferred"),
        )
        .where(*_match_stream_row())
        .with_for_update()
    )
)
_CLOSE_STREAM: Final = PreparedStatement(
    lambda _: (
        update(streams)
        .where(*_match_stream_row())
        .values(position=bindparam("next"), handed_out=streams.c.handed_out + bindparam("leased"))
        .returning(_count_leases(IS_LIVE, MAX_COUNTED) + _count_leases(_IS_DEFERRED, MAX_COUNTED))
    )
)


def _select_expired() -> Select[Any]:
    return (
        select(leases.c.lease_id, leases.c.position, leases.c.epoch, leases.c.index, leases.c.generation)
        .where(*_match_stream(), IS_LIVE, leases.c.expires_at <= bindparam("now"))
        .order_by(leases.c.expires_at, leases.c.position)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True)  # a group that answers one of them holds its lock
    )


_SELECT_EXPIRED: Final = PreparedStatement(lambda _: _select_expired())
_SUPERSEDE: Final = PreparedStatement(
    lambda postgres: update(leases).where(is_among(leases.c.lease_id, "ids", postgres)).values(state="superseded")
)


def _select_free_deferred(postgres: bool) -> Select[Any]:
    """Deferred slots whose tasks nobody holds, and that this call has not taken."""
    other = leases.alias()
    is_out = exists().where(
        *(other.c[name] == leases.c[name] for name in ("run", "environment", "split", "params_digest", "index")),
        other.c.state == literal_column("'live'"),
        other.c.expires_at > bindparam("now"),
    )
    return (
        select(leases.c.lease_id, leases.c.position, leases.c.epoch, leases.c.index)
        .where(*_match_stream(), _IS_DEFERRED, ~is_out, is_outside(leases.c.index, "taken", postgres))
        .order_by(leases.c.position)
        .limit(bindparam("most"))
    )


_SELECT_FREE_DEFERRED: Final = PreparedStatement(_select_free_deferred)
_REVIVE: Final = PreparedStatement(
    lambda postgres: (
        update(leases)
        .where(is_among(leases.c.lease_id, "ids", postgres))
        .values(
            state="live", expires_at=bindparam("until"), created_at=bindparam("now"), step=bindparam("current_step")
        )
    )
)
_SELECT_BUSY: Final = PreparedStatement(
    lambda postgres: select(leases.c.index).where(*_match_held_leases(), is_among(leases.c.index, "indexes", postgres))
)
