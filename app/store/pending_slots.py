"""Slots for samples that come one at a time: each joins the newest group of its scope, or begins the next one.

Many are assigned in one transaction: what they concern is read once, followed in memory, and written at the end.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, literal_column, or_, select, update
from sqlalchemy.sql.expression import Executable

from app.domain.groups import Group
from app.domain.parts import GroupSlot, Member, PendingGroup, RetryWindows, SampleName
from app.domain.tasks import Completion
from app.store.database import Database
from app.store.inserts import insert_rows
from app.store.part_tables import part_members, parts
from app.store.pending_groups import (
    MICROSECONDS_PER_SECOND,
    ClosingGroup,
    LateGroup,
    build_member_row,
    build_part_row,
    close_groups,
    describe_closing,
    insert_parts,
    lock_scopes,
)
from app.store.prepared_statements import PreparedStatement, is_among

HOLD_SECONDS: Final = 15.0
"""A holder without a heartbeat for this long counts as disconnected. Only on PostgreSQL; on SQLite holders count as
disconnected when the service starts."""

_NEWEST_GROUP: Final = PreparedStatement(
    lambda _: (
        select(parts)
        .where(parts.c.scope == bindparam("of"))
        .order_by(parts.c.generation.desc())
        .limit(literal_column("1"))
        .with_for_update()
    )
)
_PLACES: Final = PreparedStatement(
    lambda postgres: select(part_members.c.group_id, part_members.c.place, part_members.c.own_group).where(
        is_among(part_members.c.group_id, "newest", postgres)
    )
)
_NAMED_MEMBER: Final = (
    select(part_members, parts.c.state.label("group_state"))
    .join(parts, parts.c.group_id == part_members.c.group_id)
    .where(parts.c.scope == bindparam("of"), part_members.c.said == bindparam("fingerprint"))
    .order_by(parts.c.generation.desc())
    .limit(1)
)
_REASSIGNMENT: Final = (
    update(part_members)
    .where(part_members.c.group_id == bindparam("of"), part_members.c.place == bindparam("at"))
    .values(state="held", holder=bindparam("by"), held_until=bindparam("until"))
)


@dataclass(frozen=True)
class SampleArrival:
    """A sample that wants a place."""

    pending: PendingGroup
    completion: Completion
    seconds: float
    """How long a group that it begins waits for the others."""
    windows: RetryWindows
    name: SampleName
    scored: Group | None = None
    """The group that it is the whole of."""

    @property
    def retry_key(self) -> tuple[str, str]:
        """Scope and fingerprint by which a repeat of the sample is recognised."""
        return self.pending.scope, self.name.fingerprint or self.completion.identity_digest


@dataclass
class _NewestGroup:
    row: dict[str, Any]
    places: set[int] = field(default_factory=set)
    late: int = 0
    """How many of these came after it was closed."""
    fresh: list[Member] = field(default_factory=list)
    """Those that came now, in time."""
    is_new: bool = False
    scored: Group | None = None
    """As it is stored when it is closed, if it has its scores."""

    @property
    def is_open(self) -> bool:
        return bool(self.row["state"] == "open")

    @property
    def arrived(self) -> int:
        return len(self.places) - self.late

    def awaits_completions(self, now: int, windows: RetryWindows) -> bool:
        """Whether the group is open, or closed and still waits for missing completions."""
        if self.is_open:
            return True
        over = self.row["closed_at"] <= now - round(windows.late * MICROSECONDS_PER_SECOND)
        return not over and self.late < self.row["missing"]

    def find_free_place(self, name: SampleName) -> int | None:
        """The place that the sample names, or the next one; None if another has it."""
        if name.place is None:
            return max(self.places, default=-1) + 1
        return None if name.place in self.places else name.place


@dataclass
class _Assignments:
    """The groups and members that a transaction is about, as they become while it assigns slots."""

    now: int
    newest: dict[str, _NewestGroup]
    """By scope."""
    known: dict[tuple[str, str], list[dict[str, Any]]]
    """Members that a sample takes over, by what it is known as; the next one comes last."""
    states: dict[str, str]
    """Of groups that are not as `known` has them."""
    opened: list[_NewestGroup] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    reassigned: list[dict[str, Any]] = field(default_factory=list)
    closing: list[tuple[int, _NewestGroup]] = field(default_factory=list)
    """With the number of the arrival that closed it."""
    late: list[tuple[int, LateGroup]] = field(default_factory=list)

    @property
    def held_until(self) -> int:
        return self.now + round(HOLD_SECONDS * MICROSECONDS_PER_SECOND)

    def assign(self, number: int, arrival: SampleArrival) -> GroupSlot:
        newest = self.newest.get(arrival.pending.scope)
        if newest is not None and newest.is_open and newest.row["deadline"] <= self.now:
            self._close(number, newest)
        if (member := self._find_known(arrival)) is not None:
            return self._reassign(member)
        place = None if newest is None else newest.find_free_place(arrival.name)
        if newest is None or place is None or not newest.awaits_completions(self.now, arrival.windows):
            newest, place = self._open(arrival, newest), arrival.name.place or 0
        return self._take_place(number, arrival, newest, place)

    def _find_known(self, arrival: SampleArrival) -> dict[str, Any] | None:
        found = self.known.get(arrival.retry_key, [])
        if arrival.name.fingerprint:
            return found[-1] if found else None
        gone_after = self.now - round(arrival.windows.retry * MICROSECONDS_PER_SECOND)
        return found.pop() if found and found[-1]["held_until"] > gone_after else None

    def _reassign(self, member: dict[str, Any]) -> GroupSlot:
        holder, pending_id, own = secrets.token_hex(8), member["group_id"], member["own_group"]
        if "group_state" in member:
            place = {"of": pending_id, "at": member["place"], "by": holder, "until": self.held_until}
            self.reassigned.append(place)
        else:  # it came in this transaction
            member["holder"] = holder
        is_open = own is None and self.states.get(pending_id, member.get("group_state")) == "open"
        return GroupSlot(pending_id, own or pending_id, (member["place"],), open=is_open, holder=holder)

    def _open(self, arrival: SampleArrival, before: _NewestGroup | None) -> _NewestGroup:
        generation = 0 if before is None else before.row["generation"] + 1
        group_id = _create_group_id() if arrival.scored is None else arrival.scored.group_id
        row = build_part_row(arrival.pending, group_id, generation, self.now, arrival.seconds)
        opened = _NewestGroup(row, is_new=True)
        self.newest[arrival.pending.scope] = opened
        self.opened.append(opened)
        self.states[row["group_id"]] = "open"
        return opened

    def _take_place(self, number: int, arrival: SampleArrival, group: _NewestGroup, place: int) -> GroupSlot:
        member = Member(place=place, completion=arrival.completion, fingerprint=arrival.name.fingerprint)
        own = None if group.is_open else _create_group_id()
        holder = secrets.token_hex(8)
        row = build_member_row(group.row, member, "held", holder, self.held_until, own)
        self.members.append(row)
        if arrival.name.fingerprint:
            self.known.setdefault(arrival.retry_key, []).append(row)
        group.places.add(place)
        self.states[group.row["group_id"]] = group.row["state"]
        if own is not None:
            group.late += 1
            self.late.append((number, LateGroup(group.row, (member,), own)))
        else:
            group.fresh.append(member)
            if group.arrived == group.row["size"]:
                group.scored = arrival.scored
                self._close(number, group)
        pending_id = group.row["group_id"]
        return GroupSlot(pending_id, own or pending_id, (place,), open=group.is_open, holder=holder)

    def _close(self, number: int, group: _NewestGroup) -> None:
        closing = describe_closing(group.row, group.arrived, self.now)
        if group.scored is not None:
            closing["due"] = None  # nobody has to score it
        group.row = {**group.row, **closing}
        self.states[group.row["group_id"]] = "closed"
        self.closing.append((number, group))

    def write(self, connection: Connection, database: Database) -> dict[int, list[Group]]:
        """What there is to score, by the number of the arrival that closed it."""
        if self.opened:
            insert_parts(connection, [one.row for one in self.opened])
        closing = [ClosingGroup(one.row, one.fresh, one.is_new, one.scored) for _, one in self.closing]
        stored = close_groups(connection, database, closing, [late for _, late in self.late], self.now)
        closed = {one.row["group_id"] for _, one in self.closing}
        if self.members:
            rows = [row | ({"completion": None} if row["group_id"] in closed else {}) for row in self.members]
            insert_rows(connection, part_members, rows)
        if self.reassigned:
            connection.execute(_REASSIGNMENT, self.reassigned)
        begun: dict[int, list[Group]] = {}
        for number, group in zip([number for number, _ in (*self.closing, *self.late)], stored, strict=True):
            begun.setdefault(number, []).append(group)
        return begun


def assign_slots(connection: Connection, database: Database, items: Sequence[SampleArrival]) -> list[GroupSlot]:
    """A slot for each, as if they had come one after the other."""
    scopes = sorted({one.pending.scope for one in items})
    lock_scopes(connection, database, scopes)
    now = database.read_lease_clock(connection)
    newest = _load_newest_groups(connection, scopes)
    assignments = _Assignments(now, newest, _load_known_members(connection, database, items, now), {})
    slots = [assignments.assign(number, one) for number, one in enumerate(items)]
    begun = assignments.write(connection, database)
    return [_add_begun(slot, begun.get(number, ())) for number, slot in enumerate(slots)]


def _add_begun(slot: GroupSlot, begun: Iterable[Group]) -> GroupSlot:
    return GroupSlot(slot.pending_id, slot.group_id, slot.places, slot.open, slot.holder, tuple(begun))


def _create_group_id() -> str:
    return f"group_{secrets.token_hex(16)}"


def _load_newest_groups(connection: Connection, scopes: Sequence[str]) -> dict[str, _NewestGroup]:
    found = {}
    for scope in scopes:
        row = _NEWEST_GROUP.run(connection, of=scope).mappings().one_or_none()
        if row is not None:
            found[row["group_id"]] = _NewestGroup(dict(row))
    places: Sequence[Any] = _PLACES.run(connection, newest=list(found)).all() if found else ()
    for group_id, place, own_group in places:
        found[group_id].places.add(place)
        found[group_id].late += own_group is not None
    return {one.row["scope"]: one for one in found.values()}


def _load_known_members(
    connection: Connection, database: Database, items: Sequence[SampleArrival], now: int
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Under a fingerprint also members that were answered: the answer may have been lost. Without one those whose
    sender disconnected, since an equal sample is a retry; the newest come last."""
    known: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for scope, fingerprint in {one.retry_key for one in items if one.name.fingerprint}:
        row = connection.execute(_NAMED_MEMBER, {"of": scope, "fingerprint": fingerprint}).mappings().one_or_none()
        if row is not None:
            known[scope, fingerprint] = [dict(row)]
    unnamed = {one.retry_key for one in items if not one.name.fingerprint}
    if unnamed:
        asked = {
            "of": sorted({scope for scope, _ in unnamed}),
            "digests": sorted({digest for _, digest in unnamed}),
            "now": now,
        }
        for row in connection.execute(_select_abandoned(database.postgres), asked).mappings():
            known.setdefault((row["scope"], row["said"]), []).append(dict(row))
    return known


@cache
def _select_abandoned(postgres: bool) -> Executable:
    gone: ColumnElement[bool] = part_members.c.state == "left"
    if postgres:
        gone = or_(gone, and_(part_members.c.state == "held", part_members.c.held_until <= bindparam("now")))
    return (
        select(part_members, parts.c.state.label("group_state"))
        .join(parts, parts.c.group_id == part_members.c.group_id)
        .where(
            part_members.c.scope.in_(bindparam("of", expanding=True)),
            part_members.c.said.in_(bindparam("digests", expanding=True)),
            part_members.c.state != literal_column("'answered'"),
            gone,
        )
        .order_by(part_members.c.held_until)
    )
