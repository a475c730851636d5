"""Pending groups: they collect completions that arrive in pieces, until they are full or their deadline passes.

A row of `parts` is a pending group, a row of `part_members` is a completion in its place. There are two ways in. A
piece names its group and its places, so a repeat is recognised by them (`add_members`). A sample that comes alone may
name neither: it joins the newest group of its scope, or begins the next one, and is held while its sender waits; a
sample that says the same as one whose sender has left is that one, sent again (`assign_slot`).

A group is closed in the transaction that brings its last member or finds its deadline over. That transaction also
stores it as an ordinary group, pending or with its score, so that a crash between the two cannot lose or double it. A
group that is closed with members missing is flagged `partial_group`; members that come later get a group of their own,
flagged `late`. Whoever closed a group scores it and renews a claim on it; when the claim runs out, another replica
takes the group over. The entry here stays for a while, so that repeats still find their group.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    bindparam,
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
from app.store.database import Database, StorePart, reads, writes
from app.store.group_rows import (
    EncodedTexts,
    GroupToStore,
    build_origin_columns,
    decode_name,
    load_groups,
    parse_policy,
)
from app.store.groups import add_groups, require_unpruned
from app.store.statements import (
    MICROSECONDS_PER_SECOND,
    PreparedStatement,
    decode,
    decode_json,
    encode_completion,
    encode_json,
    filter_storable,
    from_micros,
    insert_rows,
    is_among,
    lock_names,
)
from app.store.tables import groups, part_members, parts

_PartRow = RowMapping | Mapping[str, Any]
"""A row of `parts`, also one that is not written yet."""

_CLAIM_SECONDS: Final = 60.0
"""The scorer of a closed group must renew its claim within this time; otherwise another replica takes over."""
_HOLD_SECONDS: Final = 15.0
"""A holder without a heartbeat for this long counts as disconnected. Only on PostgreSQL; on SQLite holders count as
disconnected when the service starts."""
CLEAR_BATCH_SIZE: Final = 32
"""Maximum number of entries deleted at once."""


class PendingGroupStore(StorePart):
    """Groups that are still collecting completions. Closing one stores it as pending in the same transaction, unless it
    comes with its score; whoever closed it scores it. Writes are durable on return."""

    @writes(lambda pending, *_, **__: _build_order_key(pending))
    def add_members(
        self,
        connection: Connection,
        pending: PendingGroup,
        group_id: str,
        members: Sequence[Member],
        seconds: float,
        *,
        closes: bool = False,
    ) -> GroupSlot | Mismatch:
        """Adds completions that name their places. The first ones open the group for `seconds`, and with `closes` these
        are its last. New ones that arrive after it was closed get a group of their own, flagged `late`."""
        _lock_scopes(connection, [pending.scope])
        now = self.database.read_lease_clock(connection)
        row = _find_or_open(connection, pending, group_id, now, seconds)
        places = tuple(member.place for member in members)
        stored = _load_members_at(connection, group_id, places)
        mismatch = _find_mismatch(row, pending, members, stored)
        if mismatch is not None:
            return mismatch
        fresh = [member for member in members if member.place not in stored]
        begun = (
            []
            if row["state"] == "closed" or row["deadline"] > now
            else [_close_group(connection, self.database, row, now)]
        )
        if row["state"] == "closed" or begun:
            return _add_to_closed_group(connection, self.database, row, places, stored, fresh, begun, now)
        if fresh:
            _insert_members(connection, row, fresh, now)
        if closes or (fresh and _count_members(connection, group_id) == row["size"]):
            begun = [_close_group(connection, self.database, row, now)]
        return GroupSlot(group_id, group_id, places, open=not begun, begun=tuple(begun))

    async def assign_slot(
        self,
        pending: PendingGroup,
        completion: Completion,
        seconds: float,
        windows: RetryWindows,
        name: SampleName = UNNAMED,
        scored: Group | None = None,
    ) -> GroupSlot:
        """Assigns a place to a completion, by the first rule that applies:

        1. with a fingerprint, the place of the completion that came under it before; without one, that of an equal
           completion whose sender disconnected (a retry);
        2. the place that it names, or the next one, of the newest group of this scope, if that is open;
        3. a missing place of the newest group, if it was closed incomplete not long ago; flagged `late`;
        4. a place of a new group.

        The place is held until it is settled, or until its heartbeat stops. `scored` is the whole group of a completion
        that is judged alone, with its score: it is stored so where the completion is a new one."""
        arrival = _SampleArrival(pending, completion, seconds, windows, name, scored)
        operation = "PendingGroupStore.assign_slot"
        return await self.database.write_shared(operation, self._assign_slots, arrival, "parts")

    async def release_slot(self, held: GroupSlot, *, answered: bool) -> None:
        """Ends the hold: the sender got its answer, or disconnected and may retry."""
        operation = "PendingGroupStore.release_slot"
        await self.database.write_shared(operation, self._release_slots, (held, answered), "parts")

    def _assign_slots(self, connection: Connection, arrivals: Sequence["_SampleArrival"]) -> list[GroupSlot]:
        return _assign_slots(connection, self.database, arrivals)

    def _release_slots(self, connection: Connection, held: Sequence[tuple[GroupSlot, bool]]) -> list[None]:
        _release_slots(connection, self.database, held)
        return [None] * len(held)

    @writes("parts")
    def renew_holds(self, connection: Connection, held: Collection[GroupSlot], scoring: Collection[str]) -> None:
        """Heartbeat: this process still holds these places and is scoring these groups."""
        now = self.database.read_lease_clock(connection)
        if held and self.database.postgres:
            _renew_members(connection, held, now + round(_HOLD_SECONDS * MICROSECONDS_PER_SECOND))
        if scoring:
            claimed = parts.c.group_id == bindparam("scored"), parts.c.state == "closed"
            due = now + round(_CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
            connection.execute(
                update(parts).where(*claimed).values(due=due), [{"scored": group_id} for group_id in sorted(scoring)]
            )

    async def forget_holders(self) -> None:
        """For a single-replica service at start: all earlier holders count as disconnected."""
        if not self.database.postgres:
            await self.database.write(lambda connection: _release_all_holders(connection, self.database), "parts")

    @reads
    def load_open_groups(self, connection: Connection, group_ids: Collection[str]) -> dict[str, Group]:
        """The open ones of these groups with the completions so far, as pending groups."""
        storable = filter_storable(group_ids)
        return _load_open_groups(connection, storable) if storable else {}

    @reads
    def get_status(self, connection: Connection, group_ids: Collection[str]) -> PendingGroupStatus:
        done = select(groups.c.group_id).where(groups.c.group_id.in_(group_ids), groups.c.outcome != "pending")
        ended = frozenset(connection.execute(done).scalars()) if group_ids else frozenset()
        due = select(parts.c.group_id).where(parts.c.due <= self.database.read_lease_clock(connection)).limit(1)
        return PendingGroupStatus(ended=ended, due=connection.execute(due).first() is not None)

    @writes("parts")
    def claim_due(self, connection: Connection, limit: int) -> list[Group]:
        """Closes groups past their deadline and claims closed groups without a live scorer. The caller scores them."""
        now = self.database.read_lease_clock(connection)
        statement = (
            select(parts).where(parts.c.due <= now).order_by(parts.c.due).limit(limit).with_for_update(skip_locked=True)
        )
        # A row that is locked is being closed or claimed by another replica.
        rows = connection.execute(statement).mappings().all()
        to_score = [_close_group(connection, self.database, row, now) for row in rows if row["state"] == "open"]
        claimed_until = now + round(_CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
        for row in rows:
            if row["state"] == "closed":
                pending = _load_pending(connection, row["group_id"])
                due = claimed_until if pending else None
                connection.execute(update(parts).where(parts.c.group_id == row["group_id"]).values(due=due))
                to_score += pending
        return to_score

    async def hand_over(self, group_ids: Collection[str]) -> None:
        """Lets other replicas take up at once those of these groups that are pending. A single one does so at its
        start."""
        if group_ids and self.database.postgres:
            await self.database.write(lambda connection: _hand_over(connection, self.database, group_ids), "parts")

    @writes("parts")
    def delete_old(self, connection: Connection, seconds: float) -> int:
        """Deletes some finished entries older than `seconds` and returns how many. The stored groups stay."""
        before = self.database.read_lease_clock(connection) - round(seconds * MICROSECONDS_PER_SECOND)
        old = select(parts.c.group_id).where(parts.c.created_at < before, parts.c.due.is_(None)).limit(CLEAR_BATCH_SIZE)
        group_ids = list(connection.execute(old).scalars())
        if group_ids:
            connection.execute(delete(part_members).where(part_members.c.group_id.in_(group_ids)))
            connection.execute(delete(parts).where(parts.c.group_id.in_(group_ids)))
        return len(group_ids)


# Pieces: completions that name their places in a group that their sender names.


def _build_order_key(pending: PendingGroup) -> str:
    return f"parts {pending.scope}"


def _lock_scopes(connection: Connection, scopes: Iterable[str]) -> None:
    """Serialises writes of each scope, also before there is a row to lock."""
    lock_names(connection, (f"parts {scope}" for scope in scopes))


def _find_or_open(connection: Connection, pending: PendingGroup, group_id: str, now: int, seconds: float) -> _PartRow:
    here = select(parts).where(parts.c.group_id == group_id).with_for_update()
    row = connection.execute(here).mappings().one_or_none() or _restore_group(connection, pending, group_id, now)
    return _open_group(connection, pending, group_id, 0, now, seconds) if row is None else row


def _find_mismatch(
    row: _PartRow, pending: PendingGroup, members: Sequence[Member], stored: dict[int, RowMapping]
) -> Mismatch | None:
    """What keeps these members out of the group."""
    if row["size"] != pending.size:
        return Mismatch("part.size", f"the group under this key has {row['size']} completions")
    if any(stored[one.place]["digest"] != one.digest for one in members if one.place in stored):
        return Mismatch("part.index", "another completion has this place in the group")
    return None


def _add_to_closed_group(
    connection: Connection,
    database: Database,
    row: _PartRow,
    places: tuple[int, ...],
    stored: dict[int, RowMapping],
    fresh: Sequence[Member],
    begun: list[Group],
    now: int,
) -> GroupSlot | Mismatch:
    pending_id = row["group_id"]
    scored_in = {member["own_group"] or pending_id for member in stored.values()}
    if len(scored_in) + bool(fresh) > 1:
        return Mismatch("part.index", "some of these places came in another piece, and the group is closed")
    if scored_in:
        return GroupSlot(pending_id, scored_in.pop(), places, open=False, begun=tuple(begun))
    # By its content: a repeat that comes when this entry was deleted and restored gets the same stored group.
    own = "group_" + digest([pending_id, "late", [[one.place, one.completion.identity] for one in fresh]])
    begun += _close_groups(connection, database, [], [_LateGroup(row, tuple(fresh), own)], now)
    _insert_members(connection, row, fresh, now, own_group=own)
    return GroupSlot(pending_id, own, places, open=False, begun=tuple(begun))


def _load_members_at(connection: Connection, group_id: str, places: Collection[int]) -> dict[int, RowMapping]:
    statement = select(part_members).where(part_members.c.group_id == group_id, part_members.c.place.in_(places))
    return {row["place"]: row for row in connection.execute(statement).mappings()}


def _count_members(connection: Connection, group_id: str) -> int:
    """Without late ones."""
    mine = part_members.c.group_id == group_id, part_members.c.own_group.is_(None)
    return connection.execute(select(func.count()).select_from(part_members).where(*mine)).scalar_one()


# Samples that come one at a time: each joins the newest group of its scope, or begins the next one.


@dataclass(frozen=True)
class _SampleArrival:
    """A sample that is to be given a place."""

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
    earlier: dict[tuple[str, str], list[dict[str, Any]]]
    """Members that a sample may take over, by its retry key; the next one to be taken comes last."""
    states: dict[str, str]
    """Of groups that are not as `earlier` has them."""
    opened: list[_NewestGroup] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    reassigned: list[dict[str, Any]] = field(default_factory=list)
    closing: list[tuple[int, _NewestGroup]] = field(default_factory=list)
    """With the number of the arrival that closed it."""
    late: "list[tuple[int, _LateGroup]]" = field(default_factory=list)

    @property
    def held_until(self) -> int:
        return self.now + round(_HOLD_SECONDS * MICROSECONDS_PER_SECOND)

    def assign(self, number: int, arrival: _SampleArrival) -> GroupSlot:
        newest = self.newest.get(arrival.pending.scope)
        if newest is not None and newest.is_open and newest.row["deadline"] <= self.now:
            self._close(number, newest)
        if (member := self._find_earlier(arrival)) is not None:
            return self._reassign(member)
        place = None if newest is None else newest.find_free_place(arrival.name)
        if newest is None or place is None or not newest.awaits_completions(self.now, arrival.windows):
            newest, place = self._open(arrival, newest), arrival.name.place or 0
        return self._take_place(number, arrival, newest, place)

    def _find_earlier(self, arrival: _SampleArrival) -> dict[str, Any] | None:
        members = self.earlier.get(arrival.retry_key, [])
        if arrival.name.fingerprint:
            return members[-1] if members else None
        retried_after = self.now - round(arrival.windows.retry * MICROSECONDS_PER_SECOND)
        return members.pop() if members and members[-1]["held_until"] > retried_after else None

    def _reassign(self, member: dict[str, Any]) -> GroupSlot:
        holder, pending_id, own = secrets.token_hex(8), member["group_id"], member["own_group"]
        if "group_state" in member:
            place = {"of": pending_id, "at": member["place"], "by": holder, "until": self.held_until}
            self.reassigned.append(place)
        else:  # it came in this transaction
            member["holder"] = holder
        is_open = own is None and self.states.get(pending_id, member.get("group_state")) == "open"
        return GroupSlot(pending_id, own or pending_id, (member["place"],), open=is_open, holder=holder)

    def _open(self, arrival: _SampleArrival, before: _NewestGroup | None) -> _NewestGroup:
        generation = 0 if before is None else before.row["generation"] + 1
        group_id = _create_group_id() if arrival.scored is None else arrival.scored.group_id
        row = _build_part_row(arrival.pending, group_id, generation, self.now, arrival.seconds)
        opened = _NewestGroup(row, is_new=True)
        self.newest[arrival.pending.scope] = opened
        self.opened.append(opened)
        self.states[row["group_id"]] = "open"
        return opened

    def _take_place(self, number: int, arrival: _SampleArrival, group: _NewestGroup, place: int) -> GroupSlot:
        member = Member(place=place, completion=arrival.completion, fingerprint=arrival.name.fingerprint)
        own = None if group.is_open else _create_group_id()
        holder = secrets.token_hex(8)
        row = _build_member_row(group.row, member, "held", holder, self.held_until, own)
        self.members.append(row)
        if arrival.name.fingerprint:
            self.earlier.setdefault(arrival.retry_key, []).append(row)
        group.places.add(place)
        self.states[group.row["group_id"]] = group.row["state"]
        if own is not None:
            group.late += 1
            self.late.append((number, _LateGroup(group.row, (member,), own)))
        else:
            group.fresh.append(member)
            if group.arrived == group.row["size"]:
                group.scored = arrival.scored
                self._close(number, group)
        pending_id = group.row["group_id"]
        return GroupSlot(pending_id, own or pending_id, (place,), open=group.is_open, holder=holder)

    def _close(self, number: int, group: _NewestGroup) -> None:
        closing = _describe_closing(group.row, group.arrived, self.now)
        if group.scored is not None:
            closing["due"] = None  # nobody has to score it
        group.row = {**group.row, **closing}
        self.states[group.row["group_id"]] = "closed"
        self.closing.append((number, group))

    def write(self, connection: Connection, database: Database) -> dict[int, list[Group]]:
        """What there is to score, by the number of the arrival that closed it."""
        if self.opened:
            _insert_parts(connection, [one.row for one in self.opened])
        closing = [_ClosingGroup(one.row, one.fresh, one.is_new, one.scored) for _, one in self.closing]
        stored = _close_groups(connection, database, closing, [late for _, late in self.late], self.now)
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


_REASSIGNMENT: Final = (
    update(part_members)
    .where(part_members.c.group_id == bindparam("of"), part_members.c.place == bindparam("at"))
    .values(state="held", holder=bindparam("by"), held_until=bindparam("until"))
)


def _assign_slots(connection: Connection, database: Database, items: Sequence[_SampleArrival]) -> list[GroupSlot]:
    """A slot for each, as if they had come one after the other. What they concern is read once, followed in memory, and
    written at the end."""
    scopes = sorted({one.pending.scope for one in items})
    _lock_scopes(connection, scopes)
    now = database.read_lease_clock(connection)
    newest = _load_newest_groups(connection, scopes)
    assignments = _Assignments(now, newest, _load_earlier_members(connection, database, items, now), {})
    slots = [assignments.assign(number, one) for number, one in enumerate(items)]
    begun = assignments.write(connection, database)
    return [_add_begun(slot, begun.get(number, ())) for number, slot in enumerate(slots)]


def _add_begun(slot: GroupSlot, begun: Iterable[Group]) -> GroupSlot:
    return GroupSlot(slot.pending_id, slot.group_id, slot.places, slot.open, slot.holder, tuple(begun))


def _create_group_id() -> str:
    return f"group_{secrets.token_hex(16)}"


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


def _load_newest_groups(connection: Connection, scopes: Sequence[str]) -> dict[str, _NewestGroup]:
    newest = {}
    for scope in scopes:
        row = _NEWEST_GROUP.run(connection, of=scope).mappings().one_or_none()
        if row is not None:
            newest[row["group_id"]] = _NewestGroup(dict(row))
    places: Sequence[Any] = _PLACES.run(connection, newest=list(newest)).all() if newest else ()
    for group_id, place, own_group in places:
        newest[group_id].places.add(place)
        newest[group_id].late += own_group is not None
    return {one.row["scope"]: one for one in newest.values()}


_NAMED_MEMBER: Final = (
    select(part_members, parts.c.state.label("group_state"))
    .join(parts, parts.c.group_id == part_members.c.group_id)
    .where(parts.c.scope == bindparam("of"), part_members.c.digest == bindparam("fingerprint"))
    .order_by(parts.c.generation.desc())
    .limit(1)
)


def _load_earlier_members(
    connection: Connection, database: Database, items: Sequence[_SampleArrival], now: int
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Stored members that a sample may repeat, by its retry key. Under a fingerprint also one that was answered: the
    answer may have been lost. Without one those whose sender disconnected; who left last comes last."""
    earlier: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for scope, fingerprint in {one.retry_key for one in items if one.name.fingerprint}:
        row = connection.execute(_NAMED_MEMBER, {"of": scope, "fingerprint": fingerprint}).mappings().one_or_none()
        if row is not None:
            earlier[scope, fingerprint] = [dict(row)]
    unnamed = {one.retry_key for one in items if not one.name.fingerprint}
    if unnamed:
        values = {
            "of": sorted({scope for scope, _ in unnamed}),
            "digests": sorted({digest for _, digest in unnamed}),
            "now": now,
        }
        for row in connection.execute(_select_abandoned(database.postgres), values).mappings():
            earlier.setdefault((row["scope"], row["digest"]), []).append(dict(row))
    return earlier


@cache
def _select_abandoned(postgres: bool) -> Executable:
    has_left: ColumnElement[bool] = part_members.c.state == "left"
    if postgres:
        has_left = or_(has_left, and_(part_members.c.state == "held", part_members.c.held_until <= bindparam("now")))
    return (
        select(part_members, parts.c.state.label("group_state"))
        .join(parts, parts.c.group_id == part_members.c.group_id)
        .where(
            part_members.c.scope.in_(bindparam("of", expanding=True)),
            part_members.c.digest.in_(bindparam("digests", expanding=True)),
            part_members.c.state != literal_column("'answered'"),  # names the partial index
            has_left,
        )
        .order_by(part_members.c.held_until)
    )


# Holds: who still waits for an answer.

# A repeat may have taken the place over since: only the present holder ends its hold.
_RELEASE: Final = (
    update(part_members)
    .where(
        part_members.c.group_id == bindparam("pending"),
        part_members.c.place == bindparam("at"),
        part_members.c.holder == bindparam("by"),
    )
    .values(state=bindparam("new_state"), held_until=bindparam("until"))
)


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


def _renew_members(connection: Connection, held: Collection[GroupSlot], until: int) -> None:
    places = [
        {"pending": one.pending_id, "at": one.places[0], "by": one.holder}
        for one in sorted(held, key=lambda slot: (slot.pending_id, slot.places))  # so that replicas lock in one order
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


# Groups that need a scorer, or none any more.


def _load_pending(connection: Connection, pending_id: str) -> list[Group]:
    """The pending groups among the stored group and its late ones."""
    own = select(part_members.c.own_group).where(
        part_members.c.group_id == pending_id, part_members.c.own_group.is_not(None)
    )
    here = [pending_id, *dict.fromkeys(connection.execute(own).scalars())]
    return load_groups(connection, groups.c.group_id.in_(here) & (groups.c.outcome == "pending"))


def _hand_over(connection: Connection, database: Database, group_ids: Collection[str]) -> None:
    now = database.read_lease_clock(connection)
    pending = load_groups(connection, groups.c.group_id.in_(group_ids) & (groups.c.outcome == "pending"))
    names = [group.group_id for group in pending]
    with_entry = set(connection.execute(select(parts.c.group_id).where(parts.c.group_id.in_(names))).scalars())
    collecting = _find_collecting_groups(connection, [group for group in pending if group.group_id not in with_entry])
    for group in pending:
        # It came whole, so there is no entry yet by which another replica could claim it.
        if group.group_id not in with_entry and group.group_id not in collecting:
            _restore_group(connection, _describe_whole(group), group.group_id, now)
    mine = parts.c.group_id.in_([*names, *collecting.values()]), parts.c.state == "closed"
    connection.execute(update(parts).where(*mine).values(due=now))


def _find_collecting_groups(connection: Connection, groups: Sequence[Group]) -> dict[str, str]:
    """The group that each late one came too late for, by the late one's id."""
    late = [group.group_id for group in groups if "late" in group.flags]
    here = select(part_members.c.own_group, part_members.c.group_id).where(part_members.c.own_group.in_(late))
    return {own: group_id for own, group_id in connection.execute(here)} if late else {}


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


# Closing: a pending group becomes a stored one.


@dataclass(frozen=True)
class _ClosingGroup:
    """A group with its row as it is then, and members that are not stored before."""

    row: _PartRow
    fresh: Sequence[Member] = ()
    is_new: bool = False
    """Whether its row is written as it is closed, and all its members with it."""
    scored: Group | None = None
    """The group, if it has its scores already."""

    def build(self, stored: Sequence[Member]) -> Group:
        if self.scored is not None:
            return self.scored.model_copy(update={"created_at": from_micros(self.row["created_at"])})
        return _build_group(self.row, (*stored, *self.fresh))


@dataclass(frozen=True)
class _LateGroup:
    """Members that arrived after their group was closed, with the id of the group that scores them."""

    row: _PartRow
    members: tuple[Member, ...]
    group_id: str


def _close_group(connection: Connection, database: Database, row: _PartRow, now: int) -> Group:
    """Closes the group with the completions that have arrived and stores it as pending. The caller scores it."""
    closed = {**row, **_describe_closing(row, _count_members(connection, row["group_id"]), now)}
    (stored,) = _close_groups(connection, database, [_ClosingGroup(closed)], [], now)
    return stored


_CLOSING: Final = ("state", "missing", "closed_at", "due")
_CLOSE_PART: Final = (
    update(parts)
    .where(parts.c.group_id == bindparam("new_group_id"))
    .values({name: bindparam(f"new_{name}") for name in _CLOSING})
)
_POSTPONE_PART: Final = update(parts).where(parts.c.group_id == bindparam("of")).values(due=bindparam("new_due"))
"""A late group has no row of its own, so the claim on its scoring is kept in the row of the group it was late for."""
_FORGET_COMPLETIONS: Final = PreparedStatement(
    lambda postgres: (
        update(part_members).where(is_among(part_members.c.group_id, "closed", postgres)).values(completion=None)
    )
)
"""The stored group has them from then on."""


def _close_groups(
    connection: Connection,
    database: Database,
    closing: Sequence[_ClosingGroup],
    late: Sequence[_LateGroup],
    now: int,
) -> list[Group]:
    """Stores groups, those that are closed first: as pending, but for those with scores."""
    opened_before = [one.row for one in closing if not one.is_new]
    closed = [row["group_id"] for row in opened_before]
    members = _load_members(connection, closed)
    groups_ = [one.build(members.get(one.row["group_id"], ())) for one in closing]
    flags = ("late",)
    for one in late:
        groups_.append(_parse_group(one.row).build_group(one.group_id, one.members, flags, from_micros(now)))
    items = [GroupToStore(group) for group in groups_]
    stored = add_groups(connection, database, items, None, EncodedTexts.encode(items))
    if opened_before:
        rows = [{f"new_{name}": row[name] for name in ("group_id", *_CLOSING)} for row in opened_before]
        connection.execute(_CLOSE_PART, rows)
        _FORGET_COMPLETIONS.run(connection, closed=closed)
    if late:
        due = now + round(_CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
        connection.execute(_POSTPONE_PART, [{"of": one.row["group_id"], "new_due": due} for one in late])
    return stored


def _describe_closing(row: _PartRow, arrived: int, now: int) -> dict[str, Any]:
    """The columns of a group that is closed now."""
    due = now + round(_CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
    return {"state": "closed", "missing": row["size"] - arrived, "closed_at": min(now, row["deadline"]), "due": due}


def _build_group(row: _PartRow, arrived: Sequence[Member]) -> Group:
    flags = ("partial_group",) if row["missing"] else ()
    members = tuple(sorted(arrived, key=lambda member: member.place))
    return _parse_group(row).build_group(row["group_id"], members, flags, from_micros(row["created_at"]))


def _load_members(connection: Connection, group_ids: Collection[str]) -> dict[str, list[Member]]:
    """The members of each group, but for late ones."""
    members: dict[str, list[Member]] = {group_id: [] for group_id in group_ids}
    rows = _SELECT_MEMBERS.run(connection, group_ids=list(group_ids)).mappings() if group_ids else ()
    for row in rows:
        completion = decode(Completion, row["completion"])
        members[row["group_id"]].append(Member(place=row["place"], completion=completion))
    return members


_SELECT_MEMBERS: Final = PreparedStatement(
    lambda postgres: (
        select(part_members)
        .where(is_among(part_members.c.group_id, "group_ids", postgres), part_members.c.own_group.is_(None))
        .order_by(part_members.c.group_id, part_members.c.place)
    )
)


def _load_open_groups(connection: Connection, group_ids: Collection[str]) -> dict[str, Group]:
    """Open groups with the completions so far."""
    statement = select(parts).where(parts.c.group_id.in_(group_ids), parts.c.state == "open")
    rows = {row["group_id"]: row for row in connection.execute(statement).mappings()}
    members = _load_members(connection, rows)
    return {group_id: _build_group(row, members[group_id]) for group_id, row in rows.items()}


# Rows of pending groups and of their members.


def _open_group(
    connection: Connection, pending: PendingGroup, group_id: str, generation: int, now: int, seconds: float
) -> _PartRow:
    require_unpruned(connection, [group_id])
    row = _build_part_row(pending, group_id, generation, now, seconds)
    _insert_parts(connection, [row])
    return row


def _build_part_row(pending: PendingGroup, group_id: str, generation: int, now: int, seconds: float) -> dict[str, Any]:
    """The row of a group that is open."""
    deadline = now + round(seconds * MICROSECONDS_PER_SECOND)
    return {
        "group_id": group_id,
        "scope": pending.scope,
        "generation": generation,
        "key": encode_json(pending.key),
        "size": pending.size,
        "task_id": pending.task_id,
        "environment": pending.environment,
        "run": pending.run,
        **build_origin_columns(pending),
        "purpose": pending.purpose,
        "deadline": deadline,
        "state": "open",
        "missing": 0,
        "closed_at": None,
        "due": deadline,
        "created_at": now,
    }


def _insert_parts(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        insert_rows(connection, parts, rows)
    except IntegrityError as error:
        raise NotFound("the group's task is not stored", field="task_id") from error


def _parse_group(row: _PartRow) -> PendingGroup:
    return PendingGroup(
        scope=row["scope"],
        task_id=row["task_id"],
        environment=row["environment"],
        run=row["run"],
        lease_id=decode_name(row["lease_id"]),
        policy=parse_policy(row),
        purpose=row["purpose"],
        key=str(decode_json(row["key"])),
        size=row["size"],
        hand_out_step=row["hand_out_step"],
        sender=decode_name(row["sender"]),
    )


def _insert_members(
    connection: Connection, row: _PartRow, members: Sequence[Member], now: int, *, own_group: str | None = None
) -> None:
    """Inserts members that name their place and are not held."""
    rows = [_build_member_row(row, member, "answered", "", now, own_group) for member in members]
    insert_rows(connection, part_members, rows)


def _build_member_row(
    row: _PartRow, member: Member, state: str, holder: str, held_until: int, own_group: str | None
) -> dict[str, Any]:
    return {
        "group_id": row["group_id"],
        "place": member.place,
        "scope": row["scope"],
        "digest": member.digest,
        "completion": None if own_group else encode_completion(member.completion),
        "own_group": own_group,
        "state": state,
        "holder": holder,
        "held_until": held_until,
    }


def _restore_group(connection: Connection, pending: PendingGroup, group_id: str, now: int) -> _PartRow | None:
    """Restores the entry that `delete_old` deleted from the stored group, for a repeat that comes after it; None if
    there is no such group."""
    (group, *_) = load_groups(connection, groups.c.group_id == group_id) or (None,)
    if group is None:
        return None
    row = _open_group(connection, pending, group_id, 0, now, 0.0)
    members = [
        Member(
            place=rollout.place,
            completion=rollout.completion,
            fingerprint="" if rollout.reduced is None else rollout.reduced.identity,
        )
        for rollout in group.rollouts
    ]
    _insert_members(connection, row, members, now)
    closed = {"state": "closed", "missing": pending.size - len(members), "closed_at": now, "due": None}
    connection.execute(update(parts).where(parts.c.group_id == group_id).values(closed))
    connection.execute(update(part_members).where(part_members.c.group_id == group_id).values(completion=None))
    return connection.execute(select(parts).where(parts.c.group_id == group_id)).mappings().one()
