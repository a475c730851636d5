"""Who gets a lease in one call: slots of expired leases first, then deferred slots, then new positions."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, exists, func, insert, literal_column, select, update

from app.domain.runs import Slot, Stream
from app.ports.store import SlotLocator
from app.store.lease_tables import leases, streams

MAX_DEFERRED = 256
"""Maximum number of deferred slots per stream. A stream with more waits for leases to end."""

# As literals, so that SQLite sees that the partial indexes apply.
IS_LIVE = leases.c.state == literal_column("'live'")
_IS_DEFERRED = leases.c.state == literal_column("'deferred'")

LeaseRow = dict[str, str | int | None]


@dataclass
class LeaseAllocation:
    connection: Connection
    stream: Stream
    params_digest: str
    now: int
    expires_at: int
    count: int
    step: int | None = None
    given: list[tuple[str, Slot]] = field(default_factory=list)
    rows: list[LeaseRow] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    """Indexes of tasks leased in this call."""

    @property
    def wanted(self) -> int:
        return self.count - len(self.given)

    def assign_expired(self) -> None:
        """Supersedes expired leases. Each slot gets a new lease or, while the task is leased elsewhere, is deferred."""
        statement = (
            select(leases.c.lease_id, leases.c.generation, leases.c.position, leases.c.epoch, leases.c.index)
            .where(*self._match_stream(), IS_LIVE, leases.c.expires_at <= self.now)
            .order_by(leases.c.expires_at, leases.c.position)
            .with_for_update(skip_locked=True)
        )
        while self.wanted > 0 and (found := self._load_rows(statement.limit(self.wanted))):
            superseded = leases.c.lease_id.in_([row["lease_id"] for row in found])
            self.connection.execute(update(leases).where(superseded).values(state="superseded"))
            busy = self._find_busy_tasks([_parse_slot(row).index for row in found])
            for row in found:
                self._lease_or_defer(_parse_slot(row), busy, row["generation"] + 1)

    def assign_deferred(self) -> None:
        if self.wanted <= 0:
            return
        free = []
        for row in self._load_rows(self._select_free_deferred().limit(self.wanted)):
            slot = _parse_slot(row)
            if slot.index not in self.taken:
                self._assign(row["lease_id"], slot)
                free.append(row["lease_id"])
        if free:
            self.connection.execute(
                update(leases)
                .where(leases.c.lease_id.in_(free))
                .values(state="live", expires_at=self.expires_at, created_at=self.now, step=self.step)
            )

    def _select_free_deferred(self) -> Select[Any]:
        """Deferred slots whose tasks nobody holds."""
        other = leases.alias()
        is_out = exists().where(
            *(other.c[name] == leases.c[name] for name in ("run", "environment", "split", "params_digest", "index")),
            other.c.state == literal_column("'live'"),
            other.c.expires_at > self.now,
        )
        return (
            select(leases.c.lease_id, leases.c.position, leases.c.epoch, leases.c.index)
            .where(*self._match_stream(), _IS_DEFERRED, ~is_out)
            .order_by(leases.c.position)
        )

    def lease_new_positions(self, position: int, locate: SlotLocator) -> int:
        """Leases new positions and returns the stream's next one."""
        room = MAX_DEFERRED - count_outstanding(self.connection, self.stream, _IS_DEFERRED)
        while self.wanted > 0:
            slots = _locate_slots(position, self.wanted, locate)
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

    def write_leases(self, position: int) -> None:
        if self.rows:
            self.connection.execute(insert(leases), self.rows)
        self.connection.execute(
            update(streams)
            .where(*match_stream_row(self.stream))
            .values(position=position, handed_out=streams.c.handed_out + len(self.given))
        )

    def _is_free(self, slot: Slot, busy: Collection[int]) -> bool:
        return slot.index not in busy and slot.index not in self.taken

    def _lease_or_defer(self, slot: Slot, busy: Collection[int], generation: int) -> None:
        lease_id = f"lease_{secrets.token_hex(16)}"
        free = self._is_free(slot, busy)
        if free:
            self._assign(lease_id, slot)
        self.rows.append(self._build_row(lease_id, slot, generation, "live" if free else "deferred"))

    def _build_row(self, lease_id: str, slot: Slot, generation: int, state: str) -> LeaseRow:
        return {
            "lease_id": lease_id,
            "run": self.stream.run,
            "stream": self.stream.digest,
            "environment": self.stream.environment,
            "split": self.stream.split,
            "params_digest": self.params_digest,
            "index": slot.index,
            "epoch": slot.epoch,
            "position": slot.position,
            "generation": generation,
            "state": state,
            "expires_at": self.expires_at,
            "created_at": self.now,
            "group_id": None,
            "step": self.step,
        }

    def _assign(self, lease_id: str, slot: Slot) -> None:
        self.given.append((lease_id, slot))
        self.taken.add(slot.index)

    def _find_busy_tasks(self, indexes: Sequence[int]) -> set[int]:
        """Indexes of tasks that are leased in this run, from any stream."""
        held = match_held_leases(self.stream, self.params_digest, self.now)
        statement = select(leases.c.index).where(*held, leases.c.index.in_(indexes))
        return set(self.connection.execute(statement).scalars())

    def _load_rows(self, statement: Select[Any]) -> Sequence[RowMapping]:
        return self.connection.execute(statement).mappings().all()

    def _match_stream(self) -> tuple[Any, ...]:
        return leases.c.run == self.stream.run, leases.c.stream == self.stream.digest


def match_stream_row(stream: Stream) -> tuple[Any, ...]:
    return streams.c.run == stream.run, streams.c.digest == stream.digest


def match_held_leases(stream: Stream, params_digest: str, now: int) -> tuple[Any, ...]:
    """Conditions for live leases of the run on tasks of the stream's environment, split and params."""
    return (
        leases.c.run == stream.run,
        leases.c.environment == stream.environment,
        leases.c.split == stream.split,
        leases.c.params_digest == params_digest,
        IS_LIVE,
        leases.c.expires_at > now,
    )


def _parse_slot(row: RowMapping) -> Slot:
    return Slot(position=row["position"], epoch=row["epoch"], index=row["index"])


def _locate_slots(position: int, count: int, locate: SlotLocator) -> list[Slot]:
    slots: list[Slot] = []
    while len(slots) < count and (slot := locate(position + len(slots))) is not None:
        slots.append(slot)
    return slots


def count_outstanding(connection: Connection, stream: Stream, *states: Any) -> int:
    """Number of live or deferred leases of the stream. An expired lease counts until it is superseded."""
    here = leases.c.run == stream.run, leases.c.stream == stream.digest
    return sum(
        connection.execute(select(func.count()).select_from(leases).where(*here, state)).scalar_one()
        for state in states or (IS_LIVE, _IS_DEFERRED)
    )
