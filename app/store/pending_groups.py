"""Operations on pending groups within a transaction: open, add members, close into stored groups."""

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    bindparam,
    cast,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.expression import Executable

from app.domain.errors import NotFound
from app.domain.groups import Group
from app.domain.parts import (
    UNNAMED,
    GroupSlot,
    Member,
    Mismatch,
    PendingGroup,
    PendingGroupStatus,
    RetryWindows,
    SampleName,
)
from app.domain.tasks import Completion
from app.domain.values import digest
from app.ports.store import GroupToStore, PendingGroupStore
from app.store.database import Database
from app.store.group_rows import EncodedTexts, GroupHead, load_groups
from app.store.groups import add_groups, require_unpruned
from app.store.statements import (
    PreparedStatement,
    decode,
    decode_json,
    encode,
    encode_completion,
    encode_json,
    filter_storable,
    from_micros,
    insert_rows,
    is_among,
)
from app.store.tables import groups, part_members, parts

MICROSECONDS_PER_SECOND: Final = 1_000_000
CLAIM_SECONDS: Final = 60.0
"""The scorer of a closed group must renew its claim within this time; otherwise another replica takes over."""

PartRow = RowMapping | Mapping[str, Any]
"""A row of `parts`, also one that is not written yet."""

_CLOSING: Final = ("state", "missing", "closed_at", "due")
_CLOSE_PART: Final = (
    update(parts)
    .where(parts.c.group_id == bindparam("new_group_id"))
    .values({name: bindparam(f"new_{name}") for name in _CLOSING})
)
_POSTPONE_PART: Final = update(parts).where(parts.c.group_id == bindparam("of")).values(due=bindparam("new_due"))
_FORGET_COMPLETIONS: Final = PreparedStatement(
    lambda postgres: (
        update(part_members).where(is_among(part_members.c.group_id, "closed", postgres)).values(completion=None)
    )
)
_SELECT_MEMBERS: Final = PreparedStatement(
    lambda postgres: (
        select(part_members)
        .where(is_among(part_members.c.group_id, "given", postgres), part_members.c.own_group.is_(None))
        .order_by(part_members.c.group_id, part_members.c.place)
    )
)


def lock_scope(connection: Connection, database: Database, scope: str) -> None:
    lock_scopes(connection, database, [scope])


def lock_scopes(connection: Connection, database: Database, scopes: Iterable[str]) -> None:
    """Serialises writes of each scope, also before there is a row to lock."""
    if database.postgres:
        digests = [hashlib.sha256(f"parts {scope}".encode()).digest()[:8] for scope in scopes]
        keys = sorted(int.from_bytes(one, "big", signed=True) for one in digests)
        connection.execute(select(func.pg_advisory_xact_lock(func.unnest(cast(keys, ARRAY(BigInteger))))))


def open_group(
    connection: Connection, pending: PendingGroup, group_id: str, generation: int, now: int, seconds: float
) -> PartRow:
    require_unpruned(connection, [group_id])
    row = build_part_row(pending, group_id, generation, now, seconds)
    insert_parts(connection, [row])
    return row


def build_part_row(pending: PendingGroup, group_id: str, generation: int, now: int, seconds: float) -> dict[str, Any]:
    """The row of a group that is open."""
    deadline = now + round(seconds * MICROSECONDS_PER_SECOND)
    head = GroupHead(
        policy=pending.policy, lease_id=pending.lease_id, hand_out_step=pending.hand_out_step, sender=pending.sender
    )
    return {
        "group_id": group_id,
        "scope": pending.scope,
        "generation": generation,
        "key": encode_json(pending.key),
        "size": pending.size,
        "task_id": pending.task_id,
        "environment": pending.environment,
        "run": pending.run,
        "head": encode(head),
        "purpose": pending.purpose,
        "deadline": deadline,
        "state": "open",
        "missing": 0,
        "closed_at": None,
        "due": deadline,
        "created_at": now,
    }


def insert_parts(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        insert_rows(connection, parts, rows)
    except IntegrityError as error:
        raise NotFound("the group's task is not stored", field="task_id") from error


def load_group_row(connection: Connection, group_id: str) -> PartRow:
    return connection.execute(select(parts).where(parts.c.group_id == group_id)).mappings().one()


def parse_group(row: PartRow) -> PendingGroup:
    head = decode(GroupHead, row["head"])
    return PendingGroup(
        scope=row["scope"],
        task_id=row["task_id"],
        environment=row["environment"],
        run=row["run"],
        lease_id=head.lease_id,
        policy=head.policy,
        purpose=row["purpose"],
        key=str(decode_json(row["key"])),
        size=row["size"],
        hand_out_step=head.hand_out_step,
        sender=head.sender,
    )


def load_members(connection: Connection, group_ids: Collection[str]) -> Sequence[RowMapping]:
    """Members that did not come late, ordered by place."""
    return _SELECT_MEMBERS.run(connection, given=list(group_ids)).mappings().all()


def insert_members(
    connection: Connection, row: PartRow, members: Sequence[Member], now: int, *, own_group: str | None = None
) -> None:
    """Inserts members that name their place and are not held."""
    rows = [build_member_row(row, member, "answered", "", now, own_group) for member in members]
    insert_rows(connection, part_members, rows)


def build_member_row(
    row: PartRow, member: Member, state: str, holder: str, held_until: int, own_group: str | None
) -> dict[str, Any]:
    return {
        "group_id": row["group_id"],
        "place": member.place,
        "scope": row["scope"],
        "said": member.digest,
        "completion": None if own_group else encode_completion(member.completion),
        "own_group": own_group,
        "state": state,
        "holder": holder,
        "held_until": held_until,
    }


def close_group(connection: Connection, database: Database, row: PartRow, now: int) -> Group:
    """Closes the group with the completions that have arrived and stores it as pending. The caller scores it."""
    closed = {**row, **describe_closing(row, count_members(connection, row["group_id"]), now)}
    (stored,) = close_groups(connection, database, [ClosingGroup(closed)], [], now)
    return stored


def add_late_group(
    connection: Connection, database: Database, row: PartRow, members: Sequence[Member], group_id: str, now: int
) -> Group:
    """Stores a separate group for members that arrived after theirs was closed."""
    late = LateGroup(row, tuple(members), group_id)
    (stored,) = close_groups(connection, database, [], [late], now)
    return stored


@dataclass(frozen=True)
class ClosingGroup:
    """A group with its row as it is then, and members that are not stored before."""

    row: PartRow
    fresh: Sequence[Member] = ()
    is_new: bool = False
    """Whether its row is written as it is closed, and all its members with it."""
    scored: Group | None = None
    """The group, if it has its scores already."""

    def build(self, come: Sequence[Member]) -> Group:
        if self.scored is not None:
            return self.scored.model_copy(update={"created_at": from_micros(self.row["created_at"])})
        return _build_group(self.row, (*come, *self.fresh))


@dataclass(frozen=True)
class LateGroup:
    """Members that arrived after their group was closed, with the id of the group that scores them."""

    row: PartRow
    members: tuple[Member, ...]
    group_id: str


def describe_closing(row: PartRow, arrived: int, now: int) -> dict[str, Any]:
    """The columns of a group that is closed now."""
    due = now + round(CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
    return {"state": "closed", "missing": row["size"] - arrived, "closed_at": min(now, row["deadline"]), "due": due}


def close_groups(
    connection: Connection,
    database: Database,
    closing: Sequence[ClosingGroup],
    late: Sequence[LateGroup],
    now: int,
) -> list[Group]:
    """Stores groups, those that are closed first: as pending, but for those with scores."""
    opened_before = [one.row for one in closing if not one.is_new]
    closed = [row["group_id"] for row in opened_before]
    come = _load_come(connection, closed)
    groups_ = [one.build(come.get(one.row["group_id"], ())) for one in closing]
    flags = ("late",)
    for one in late:
        groups_.append(parse_group(one.row).build_group(one.group_id, one.members, flags, from_micros(now)))
    items = [GroupToStore(group) for group in groups_]
    stored = add_groups(connection, database, items, None, EncodedTexts.encode(items))
    if opened_before:
        rows = [{f"new_{name}": row[name] for name in ("group_id", *_CLOSING)} for row in opened_before]
        connection.execute(_CLOSE_PART, rows)
        _FORGET_COMPLETIONS.run(connection, closed=closed)
    if late:
        due = now + round(CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
        connection.execute(_POSTPONE_PART, [{"of": one.row["group_id"], "new_due": due} for one in late])
    return stored


def _load_come(connection: Connection, group_ids: Collection[str]) -> dict[str, list[Member]]:
    """The members of each group, but for late ones."""
    come: dict[str, list[Member]] = {group_id: [] for group_id in group_ids}
    for row in load_members(connection, group_ids) if group_ids else ():
        completion = decode(Completion, row["completion"])
        come[row["group_id"]].append(Member(place=row["place"], completion=completion))
    return come


def load_open_groups(connection: Connection, group_ids: Collection[str]) -> dict[str, Group]:
    """Open groups with the completions so far."""
    statement = select(parts).where(parts.c.group_id.in_(group_ids), parts.c.state == "open")
    rows = {row["group_id"]: row for row in connection.execute(statement).mappings()}
    come = _load_come(connection, rows)
    return {group_id: _build_group(row, come[group_id]) for group_id, row in rows.items()}


def restore_group(connection: Connection, pending: PendingGroup, group_id: str, now: int) -> PartRow | None:
    """Restores a deleted entry from the stored group; None if there is no such group."""
    (group, *_) = load_groups(connection, groups.c.group_id == group_id) or (None,)
    if group is None:
        return None
    row = open_group(connection, pending, group_id, 0, now, 0.0)
    members = [
        Member(
            place=rollout.place,
            completion=rollout.completion,
            fingerprint="" if rollout.reduced is None else rollout.reduced.identity,
        )
        for rollout in group.rollouts
    ]
    insert_members(connection, row, members, now)
    closed = {"state": "closed", "missing": pending.size - len(members), "closed_at": now, "due": None}
    connection.execute(update(parts).where(parts.c.group_id == group_id).values(closed))
    connection.execute(update(part_members).where(part_members.c.group_id == group_id).values(completion=None))
    return load_group_row(connection, group_id)


def _build_group(row: PartRow, come: Sequence[Member]) -> Group:
    flags = ("partial_group",) if row["missing"] else ()
    members = tuple(sorted(come, key=lambda member: member.place))
    return parse_group(row).build_group(row["group_id"], members, flags, from_micros(row["created_at"]))


def load_known_members(connection: Connection, group_id: str, places: Collection[int]) -> dict[int, RowMapping]:
    statement = select(part_members).where(part_members.c.group_id == group_id, part_members.c.place.in_(places))
    return {row["place"]: row for row in connection.execute(statement).mappings()}


def count_members(connection: Connection, group_id: str) -> int:
    """Without late ones."""
    mine = part_members.c.group_id == group_id, part_members.c.own_group.is_(None)
    return connection.execute(select(func.count()).select_from(part_members).where(*mine)).scalar_one()


# Slots for samples that come one at a time: each joins the newest group of its scope, or begins the next one.

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


# The store of pending groups, which collect completions until they are full or their deadline passes.

CLEAR_BATCH_SIZE: Final = 32
"""Maximum number of entries deleted at once."""


_RELEASE: Final = (
    update(part_members)
    .where(
        part_members.c.group_id == bindparam("pending"),
        part_members.c.place == bindparam("at"),
        part_members.c.holder == bindparam("by"),
    )
    .values(state=bindparam("new_state"), held_until=bindparam("until"))
)


class SqlPendingGroupStore(PendingGroupStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_members(
        self, pending: PendingGroup, group_id: str, members: Sequence[Member], seconds: float
    ) -> GroupSlot | Mismatch:
        return await self._database.write(
            lambda connection: _add_members(connection, self._database, pending, group_id, members, seconds),
            _build_order_key(pending),
        )

    async def assign_slot(
        self,
        pending: PendingGroup,
        completion: Completion,
        seconds: float,
        windows: RetryWindows,
        name: SampleName = UNNAMED,
        scored: Group | None = None,
    ) -> GroupSlot:
        arrival = SampleArrival(pending, completion, seconds, windows, name, scored)
        operation = "SqlPendingGroupStore.assign_slot"
        return await self._database.write_shared(operation, self._assign_slots, arrival, "parts")

    async def release_slot(self, held: GroupSlot, *, answered: bool) -> None:
        operation = "SqlPendingGroupStore.release_slot"
        await self._database.write_shared(operation, self._release_slots, (held, answered), "parts")

    def _assign_slots(self, connection: Connection, arrivals: Sequence[SampleArrival]) -> list[GroupSlot]:
        return assign_slots(connection, self._database, arrivals)

    def _release_slots(self, connection: Connection, held: Sequence[tuple[GroupSlot, bool]]) -> list[None]:
        _release_slots(connection, self._database, held)
        return [None] * len(held)

    async def renew_holds(self, held: Collection[GroupSlot], scoring: Collection[str]) -> None:
        await self._database.write(lambda connection: _renew_holds(connection, self._database, held, scoring), "parts")

    async def forget_holders(self) -> None:
        if not self._database.postgres:
            await self._database.write(lambda connection: _release_all_holders(connection, self._database), "parts")

    async def load_open_groups(self, group_ids: Collection[str]) -> dict[str, Group]:
        wanted = filter_storable(group_ids)
        return await self._database.read(lambda connection: load_open_groups(connection, wanted)) if wanted else {}

    async def get_status(self, group_ids: Collection[str]) -> PendingGroupStatus:
        return await self._database.read(lambda connection: _load_status(connection, self._database, group_ids))

    async def claim_due(self, limit: int) -> list[Group]:
        return await self._database.write(lambda connection: _claim_due(connection, self._database, limit), "parts")

    async def hand_over(self, group_ids: Collection[str]) -> None:
        if group_ids and self._database.postgres:
            await self._database.write(lambda connection: _hand_over(connection, self._database, group_ids), "parts")

    async def delete_old(self, seconds: float) -> int:
        return await self._database.write(lambda connection: _delete_old(connection, self._database, seconds), "parts")


def _build_order_key(pending: PendingGroup) -> str:
    return f"parts {pending.scope}"


def _add_members(
    connection: Connection,
    database: Database,
    pending: PendingGroup,
    group_id: str,
    members: Sequence[Member],
    seconds: float,
) -> GroupSlot | Mismatch:
    lock_scope(connection, database, pending.scope)
    now = database.read_lease_clock(connection)
    row = _find_or_open(connection, pending, group_id, now, seconds)
    places = tuple(member.place for member in members)
    known = load_known_members(connection, group_id, places)
    mismatch = _find_mismatch(row, pending, members, known)
    if mismatch is not None:
        return mismatch
    fresh = [member for member in members if member.place not in known]
    begun = [] if row["state"] == "closed" or row["deadline"] > now else [close_group(connection, database, row, now)]
    if row["state"] == "closed" or begun:
        return _add_to_closed_group(connection, database, row, places, known, fresh, begun, now)
    if fresh:
        insert_members(connection, row, fresh, now)
        if count_members(connection, group_id) == row["size"]:
            begun = [close_group(connection, database, row, now)]
    return GroupSlot(group_id, group_id, places, open=not begun, begun=tuple(begun))


def _find_or_open(connection: Connection, pending: PendingGroup, group_id: str, now: int, seconds: float) -> PartRow:
    here = select(parts).where(parts.c.group_id == group_id).with_for_update()
    row = connection.execute(here).mappings().one_or_none() or restore_group(connection, pending, group_id, now)
    return open_group(connection, pending, group_id, 0, now, seconds) if row is None else row


def _find_mismatch(
    row: PartRow, pending: PendingGroup, members: Sequence[Member], known: dict[int, RowMapping]
) -> Mismatch | None:
    """What keeps these members out of the group."""
    if row["size"] != pending.size:
        return Mismatch("part.size", f"the group under this key has {row['size']} completions")
    if any(known[one.place]["said"] != one.digest for one in members if one.place in known):
        return Mismatch("part.index", "another completion has this place in the group")
    return None


def _add_to_closed_group(
    connection: Connection,
    database: Database,
    row: PartRow,
    places: tuple[int, ...],
    known: dict[int, RowMapping],
    fresh: Sequence[Member],
    begun: list[Group],
    now: int,
) -> GroupSlot | Mismatch:
    pending_id = row["group_id"]
    homes = {member["own_group"] or pending_id for member in known.values()}
    if len(homes) + bool(fresh) > 1:
        return Mismatch("part.index", "some of these places came in another piece, and the group is closed")
    if homes:
        return GroupSlot(pending_id, homes.pop(), places, open=False, begun=tuple(begun))
    own = "group_" + digest([pending_id, "late", [[one.place, one.completion.identity] for one in fresh]])
    begun.append(add_late_group(connection, database, row, fresh, own, now))
    insert_members(connection, row, fresh, now, own_group=own)
    return GroupSlot(pending_id, own, places, open=False, begun=tuple(begun))


def _release_slots(connection: Connection, database: Database, items: Sequence[tuple[GroupSlot, bool]]) -> None:
    now = database.read_lease_clock(connection)
    places = [
        {
            "pending": held.pending_id,
            "at": held.places[0],
            "by": held.holder,
            "new_state": "answered" if answered else "left",
            "until": now,
        }
        for held, answered in sorted(items, key=lambda item: (item[0].pending_id, item[0].places))
    ]
    connection.execute(_RELEASE, places)


def _renew_holds(
    connection: Connection, database: Database, held: Collection[GroupSlot], scoring: Collection[str]
) -> None:
    now = database.read_lease_clock(connection)
    if held and database.postgres:
        _renew_members(connection, held, now + round(HOLD_SECONDS * MICROSECONDS_PER_SECOND))
    if scoring:
        claimed = parts.c.group_id == bindparam("scored"), parts.c.state == "closed"
        due = now + round(CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
        connection.execute(
            update(parts).where(*claimed).values(due=due), [{"scored": group_id} for group_id in sorted(scoring)]
        )


def _renew_members(connection: Connection, held: Collection[GroupSlot], until: int) -> None:
    places = [
        {"pending": one.pending_id, "at": one.places[0], "by": one.holder}
        for one in sorted(held, key=lambda seat: (seat.pending_id, seat.places))
    ]
    mine = (
        part_members.c.group_id == bindparam("pending"),
        part_members.c.place == bindparam("at"),
        part_members.c.holder == bindparam("by"),
        part_members.c.state == "held",
    )
    connection.execute(update(part_members).where(*mine).values(held_until=until), places)


def _release_all_holders(connection: Connection, database: Database) -> None:
    values = {"state": "left", "held_until": database.read_lease_clock(connection)}
    connection.execute(update(part_members).where(part_members.c.state == "held").values(values))


def _load_status(connection: Connection, database: Database, group_ids: Collection[str]) -> PendingGroupStatus:
    done = select(groups.c.group_id).where(groups.c.group_id.in_(group_ids), groups.c.outcome != "pending")
    ended = frozenset(connection.execute(done).scalars()) if group_ids else frozenset()
    due = select(parts.c.group_id).where(parts.c.due <= database.read_lease_clock(connection)).limit(1)
    return PendingGroupStatus(ended=ended, due=connection.execute(due).first() is not None)


def _claim_due(connection: Connection, database: Database, limit: int) -> list[Group]:
    now = database.read_lease_clock(connection)
    statement = (
        select(parts).where(parts.c.due <= now).order_by(parts.c.due).limit(limit).with_for_update(skip_locked=True)
    )
    rows = connection.execute(statement).mappings().all()
    taken = [close_group(connection, database, row, now) for row in rows if row["state"] == "open"]
    claimed = now + round(CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
    for row in rows:
        if row["state"] == "closed":
            pending = _load_pending(connection, row["group_id"])
            due = claimed if pending else None
            connection.execute(update(parts).where(parts.c.group_id == row["group_id"]).values(due=due))
            taken += pending
    return taken


def _hand_over(connection: Connection, database: Database, group_ids: Collection[str]) -> None:
    now = database.read_lease_clock(connection)
    pending = load_groups(connection, groups.c.group_id.in_(group_ids) & (groups.c.outcome == "pending"))
    names = [group.group_id for group in pending]
    known = set(connection.execute(select(parts.c.group_id).where(parts.c.group_id.in_(names))).scalars())
    homes = _find_homes(connection, [group for group in pending if group.group_id not in known])
    for group in pending:
        if group.group_id not in known and group.group_id not in homes:  # it came whole
            restore_group(connection, _describe_whole(group), group.group_id, now)
    mine = parts.c.group_id.in_([*names, *homes.values()]), parts.c.state == "closed"
    connection.execute(update(parts).where(*mine).values(due=now))


def _find_homes(connection: Connection, groups: Sequence[Group]) -> dict[str, str]:
    """Of those that came late for another group, the id of that one."""
    late = [group.group_id for group in groups if "late" in group.flags]
    here = select(part_members.c.own_group, part_members.c.group_id).where(part_members.c.own_group.in_(late))
    return {own: home for own, home in connection.execute(here)} if late else {}


def _describe_whole(group: Group) -> PendingGroup:
    return PendingGroup(
        scope=group.group_id,
        task_id=group.task_id,
        environment=group.environment,
        run=group.run,
        lease_id=group.lease_id,
        policy=group.policy,
        purpose=group.purpose,
        key="",
        size=len(group.rollouts),
        hand_out_step=group.hand_out_step,
        sender=group.sender,
    )


def _load_pending(connection: Connection, pending_id: str) -> list[Group]:
    """The pending groups among the stored group and its late ones."""
    own = select(part_members.c.own_group).where(
        part_members.c.group_id == pending_id, part_members.c.own_group.is_not(None)
    )
    here = [pending_id, *dict.fromkeys(connection.execute(own).scalars())]
    return load_groups(connection, groups.c.group_id.in_(here) & (groups.c.outcome == "pending"))


def _delete_old(connection: Connection, database: Database, seconds: float) -> int:
    before = database.read_lease_clock(connection) - round(seconds * MICROSECONDS_PER_SECOND)
    old = select(parts.c.group_id).where(parts.c.created_at < before, parts.c.due.is_(None)).limit(CLEAR_BATCH_SIZE)
    group_ids = list(connection.execute(old).scalars())
    if group_ids:
        connection.execute(delete(part_members).where(part_members.c.group_id.in_(group_ids)))
        connection.execute(delete(parts).where(parts.c.group_id.in_(group_ids)))
    return len(group_ids)
