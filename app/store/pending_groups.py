"""Pending groups: they collect completions that arrive in pieces, until they are full or their deadline passes.

A row of `parts` is a pending group, a row of `part_members` is a completion in its place. All completions come in one
way (`assign_slot`). A piece names its group and its places, so a repeat is recognised by them. A sample that comes
alone may name neither: it joins the newest group of its scope, or begins the next one, and is held while its sender
waits; a sample that says the same as one whose sender has left is that one, sent again.

A group is closed in the transaction that brings its last member or finds its deadline over. That transaction also
stores it as an ordinary group, pending or with its score, so that a crash between the two cannot lose or double it. A
group that is closed with members missing is flagged `partial_group`; members that come later get a group of their own,
flagged `late`. Whoever closed a group scores it and renews a claim on it; when the claim runs out, another replica
takes the group over. The entry here stays for a while, so that repeats still find their group.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    and_,
    bindparam,
    delete,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.expression import Executable

from app.domain.budgets import QuotaUse
from app.domain.errors import InvalidRequest, NotFound
from app.domain.groups import Group, Rollout
from app.domain.parts import Arrival, GroupSlot, PendingGroupStatus, RetryWindows, name_late_group
from app.domain.tasks import Completion
from app.store.budgets import JudgingRequest, NoRoom, admit_judging, name_key
from app.store.database import Database, StorePart, reads, writes
from app.store.group_rows import (
    GroupToStore,
    build_origin_columns,
    load_groups,
    parse_group,
)
from app.store.groups import add_groups, require_unpruned
from app.store.statements import (
    MICROSECONDS_PER_SECOND,
    PreparedStatement,
    decode,
    encode_completion,
    encode_json,
    filter_storable,
    from_micros,
    insert_rows,
    is_among,
)
from app.store.tables import groups, part_members, parts

_PartRow = RowMapping | Mapping[str, Any]
"""A row of `parts`, also one that is not written yet."""

_Asking = tuple[Arrival, RetryWindows, JudgingRequest | None]
"""An arrival, and what a sample demands of the quotas of its key."""

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

    async def assign_slot(
        self, arrival: Arrival, windows: RetryWindows, asked: JudgingRequest | None = None
    ) -> GroupSlot:
        """Assigns places to completions. A piece gets those that it names; new ones that arrive after its group was
        closed get a group of their own, flagged `late`. InvalidRequest where another size or another completion came
        before. A sample gets a place by the first rule that applies:

        1. with a fingerprint, the place of the completion that came under it before; without one, that of an equal
           completion whose sender disconnected (a retry);
        2. the place that it names, or the next one, of the newest group of this scope, if that is open;
        3. a missing place of the newest group, if it was closed incomplete not long ago; flagged `late`;
        4. a place of a new group.

        The place of a sample is held until it is settled, or until its heartbeat stops. With `asked`, the demand of a
        sample whose key has quotas, it is reserved for its group in the same transaction: NoRoom where a quota does not
        allow a new place, or that the judges of an unscored group are asked again."""
        operation = "PendingGroupStore.assign_slot"
        # The scope also before there is a row to lock.
        locks = [f"parts {arrival.scope}", *([name_key(asked.key)] if asked is not None else [])]
        item = arrival, windows, asked
        slot = await self.database.write_shared(operation, self._assign_slots, item, "parts", locks)
        if isinstance(slot, Exception):
            raise slot
        return slot

    async def release_slot(self, held: GroupSlot, *, answered: bool) -> None:
        """Ends the hold: the sender got its answer, or disconnected and may retry."""
        operation = "PendingGroupStore.release_slot"
        await self.database.write_shared(operation, self._release_slots, (held, answered), "parts")

    def _assign_slots(
        self, connection: Connection, arrivals: Sequence[_Asking]
    ) -> list[GroupSlot | InvalidRequest | NoRoom]:
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
        closing = _Assignments(now)
        for group in _load_places(connection, [row for row in rows if row["state"] == "open"]).values():
            closing.close(0, group)
        to_score = closing.write(connection, self.database).get(0, [])
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


# Arrival: completions get their places, as if they had come one after the other.


class _Place(NamedTuple):
    digest: str
    own_group: str | None
    """The group that scores its completion, if that came late."""


@dataclass
class _GatheredGroup:
    """A group as it becomes while a transaction assigns places in it."""

    row: dict[str, Any]
    places: dict[int, _Place] = field(default_factory=dict)
    """Those that are taken."""
    late: int = 0
    """How many of these came after it was closed."""
    fresh: list[Rollout] = field(default_factory=list)
    """Completions that came now, in time."""
    is_new: bool = False
    """Whether its row is written as it is now, and all its members with it."""
    scored: Group | None = None
    """As it is stored when it is closed, if it has its scores."""

    @property
    def group_id(self) -> str:
        return str(self.row["group_id"])

    @property
    def is_open(self) -> bool:
        return bool(self.row["state"] == "open")

    @property
    def arrived(self) -> int:
        return len(self.places) - self.late

    def is_over(self, now: int) -> bool:
        """Whether it is to be closed with what has come."""
        return self.is_open and bool(self.row["deadline"] <= now)

    def awaits_completions(self, now: int, windows: RetryWindows) -> bool:
        """Whether the group is open, or closed and still waits for missing completions."""
        if self.is_open:
            return True
        over = self.row["closed_at"] <= now - round(windows.late * MICROSECONDS_PER_SECOND)
        return not over and self.late < self.row["missing"]

    def find_free_place(self, arrival: Arrival) -> int | None:
        """The place that a sample names, or the next one; None if another has it."""
        if arrival.place is None:
            return max(self.places, default=-1) + 1
        return None if arrival.place in self.places else arrival.place

    def find_refusal(self, piece: Arrival, now: int) -> InvalidRequest | None:
        """Why a piece does not fit this group, which it names."""
        if self.row["size"] != piece.size:
            return InvalidRequest(f"the group under this key has {self.row['size']} completions", field="part.size")
        scored_in: set[str | None] = set()
        for place, completion in zip(piece.places, piece.completions, strict=True):
            if place not in self.places:
                scored_in.add("")  # a group of its own, if it is late
                continue
            if self.places[place].digest != completion.identity_digest:
                return InvalidRequest("another completion has this place in the group", field="part.index")
            scored_in.add(self.places[place].own_group)
        if len(scored_in) > 1 and (not self.is_open or self.is_over(now)):
            detail = "some of these places came in another piece, and the group is closed"
            return InvalidRequest(detail, field="part.index")
        return None

    def build(self, stored: Sequence[Rollout]) -> Group:
        """As it is stored when it is closed, with what it has stored before."""
        if self.scored is not None:
            return self.scored.model_copy(update={"created_at": from_micros(self.row["created_at"])})
        return _build_group(self.row, (*stored, *self.fresh))


@dataclass(frozen=True)
class _LateGroup:
    """Completions that arrived after their group was closed: a group of their own."""

    row: _PartRow
    """Of the group that they were late for."""
    group: Group


@dataclass
class _Assignments:
    """The groups and members that a transaction is about, as they become while it assigns slots."""

    now: int
    newest: dict[str, _GatheredGroup] = field(default_factory=dict)
    """By scope."""
    earlier: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    """Members that a sample may take over, by its retry key; the next one to be taken comes last."""
    states: dict[str, str] = field(default_factory=dict)
    """Of groups that are not as `earlier` has them."""
    opened: list[_GatheredGroup] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    reassigned: list[dict[str, Any]] = field(default_factory=list)
    closing: list[tuple[int, _GatheredGroup]] = field(default_factory=list)
    """With the number of the arrival that closed it."""
    late: list[tuple[int, _LateGroup]] = field(default_factory=list)
    admit: Callable[[JudgingRequest], QuotaUse | None] = lambda _: None
    """The quota that has no room."""

    @property
    def held_until(self) -> int:
        return self.now + round(_HOLD_SECONDS * MICROSECONDS_PER_SECOND)

    def assign(
        self, number: int, arrival: Arrival, windows: RetryWindows, asked: JudgingRequest | None
    ) -> GroupSlot | InvalidRequest | NoRoom:
        newest = self.newest.get(arrival.scope)
        if newest is not None:
            # Before it closes anything: who is refused scores nothing.
            if arrival.names_group and (refusal := newest.find_refusal(arrival, self.now)) is not None:
                return refusal
            if newest.is_over(self.now):
                self.close(number, newest)
        if arrival.names_group:
            return self._assign_named(number, arrival, newest or self._open(arrival, None, arrival.group.group_id))
        if (member := self._find_earlier(arrival, windows)) is not None:
            if (
                refused := self._find_exceeded(asked, member["own_group"] or member["group_id"], again=True)
            ) is not None:
                self.earlier[arrival.retry_key].append(member)
                return refused
            return self._reassign(member)
        return self._assign_new(number, arrival, newest, windows, asked)

    def _assign_new(
        self,
        number: int,
        sample: Arrival,
        newest: _GatheredGroup | None,
        windows: RetryWindows,
        asked: JudgingRequest | None,
    ) -> GroupSlot | NoRoom:
        place = None if newest is None else newest.find_free_place(sample)
        joins = newest is not None and place is not None and newest.awaits_completions(self.now, windows)
        if newest is not None and joins and newest.is_open:
            scored_by = newest.group_id
        else:
            scored_by = _create_group_id() if joins or sample.scored is None else sample.scored.group_id
        if (refused := self._find_exceeded(asked, scored_by)) is not None:
            return refused
        if newest is None or place is None or not joins:
            newest, place = self._open(sample, newest, scored_by), sample.place or 0
        holder = secrets.token_hex(8)
        own = None if newest.is_open else scored_by
        self._take_places(number, sample, newest, {place: sample.completions[0]}, own, holder)
        return GroupSlot(newest.group_id, scored_by, (place,), open=newest.is_open, holder=holder)

    def _find_exceeded(self, asked: JudgingRequest | None, group_id: str, *, again: bool = False) -> NoRoom | None:
        if asked is None:
            return None
        demands = tuple(replace(one, name=group_id, comes_again=again) for one in asked.demands)
        use = self.admit(replace(asked, demands=demands))
        return None if use is None else NoRoom(use)

    def _assign_named(self, number: int, piece: Arrival, group: _GatheredGroup) -> GroupSlot:
        said = dict(zip(piece.places, piece.completions, strict=True))
        fresh = {place: completion for place, completion in said.items() if place not in group.places}
        if fresh:
            own = None if group.is_open else name_late_group(group.group_id, fresh)
            self._take_places(number, piece, group, fresh, own)
        else:
            own = group.places[piece.places[0]].own_group
        if piece.closes and group.is_open:
            self.close(number, group)
        return GroupSlot(group.group_id, own or group.group_id, tuple(said), open=group.is_open)

    def _find_earlier(self, arrival: Arrival, windows: RetryWindows) -> dict[str, Any] | None:
        members = self.earlier.get(arrival.retry_key, [])
        if arrival.fingerprint:
            return members[-1] if members else None
        retried_after = self.now - round(windows.retry * MICROSECONDS_PER_SECOND)
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

    def _open(self, arrival: Arrival, before: _GatheredGroup | None, group_id: str) -> _GatheredGroup:
        generation = 0 if before is None else before.row["generation"] + 1
        deadline = self.now + round(arrival.seconds * MICROSECONDS_PER_SECOND)
        row = _build_part_row(arrival, group_id, generation, self.now, deadline)
        opened = _GatheredGroup(row, is_new=True)
        self.newest[arrival.scope] = opened
        self.opened.append(opened)
        self.states[group_id] = "open"
        return opened

    def _take_places(
        self,
        number: int,
        arrival: Arrival,
        group: _GatheredGroup,
        said: Mapping[int, Completion],
        own: str | None,
        holder: str = "",
    ) -> None:
        """Puts completions into places that nobody has, and closes a group that is full by them. `own` is the group of
        their own if they are late."""
        members = [Rollout.begin(own or group.group_id, place, completion) for place, completion in said.items()]
        until = self.held_until if holder else self.now
        rows = [_build_member_row(group.row, one, arrival.fingerprint, holder, until, own) for one in members]
        self.members += rows
        if arrival.fingerprint:
            self.earlier.setdefault(arrival.retry_key, []).extend(rows)
        group.places |= {place: _Place(row["digest"], own) for place, row in zip(said, rows, strict=True)}
        self.states[group.group_id] = group.row["state"]
        if own is not None:
            group.late += len(members)
            alone = _build_group({**group.row, "group_id": own, "created_at": self.now}, members, ("late",))
            self.late.append((number, _LateGroup(group.row, alone)))
        else:
            group.fresh += members
            if group.arrived == group.row["size"]:
                group.scored = arrival.scored
                self.close(number, group)

    def close(self, number: int, group: _GatheredGroup) -> None:
        """Closes the group with the completions that have arrived."""
        due = self.now + round(_CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
        group.row = {
            **group.row,
            "state": "closed",
            "missing": group.row["size"] - group.arrived,
            "closed_at": min(self.now, group.row["deadline"]),
            "due": due if group.scored is None else None,  # nobody has to score it
        }
        self.states[group.group_id] = "closed"
        self.closing.append((number, group))

    def write(self, connection: Connection, database: Database) -> dict[int, list[Group]]:
        """What there is to score, by the number of the arrival that closed it."""
        if self.opened:
            _insert_parts(connection, [one.row for one in self.opened])
        closing, late = [one for _, one in self.closing], [one for _, one in self.late]
        stored = _close_groups(connection, database, closing, late, self.now)
        closed = {one.group_id for one in closing}
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


def _assign_slots(
    connection: Connection, database: Database, items: Sequence[_Asking]
) -> list[GroupSlot | InvalidRequest | NoRoom]:
    """A slot for each. What they concern is read once, followed in memory, and written at the end, but for what samples
    reserve."""
    arrivals = [arrival for arrival, _, _ in items]
    scopes = sorted({one.scope for one in arrivals})
    now = database.read_lease_clock(connection)
    newest = _load_newest_groups(connection, scopes)
    if unknown := {one.scope: one for one in arrivals if one.names_group and one.scope not in newest}:
        newest |= _restore_groups(connection, unknown, now)
    samples = [one for one in arrivals if not one.names_group]
    assignments = _Assignments(
        now,
        newest,
        _load_earlier_members(connection, database, samples, now),
        admit=lambda asked: admit_judging(connection, database, asked).exceeded,
    )
    slots = [assignments.assign(number, *item) for number, item in enumerate(items)]
    begun = assignments.write(connection, database)
    return [_add_begun(slot, tuple(begun.get(number, ()))) for number, slot in enumerate(slots)]


def _add_begun(
    slot: GroupSlot | InvalidRequest | NoRoom, begun: tuple[Group, ...]
) -> GroupSlot | InvalidRequest | NoRoom:
    if isinstance(slot, GroupSlot):
        return replace(slot, begun=begun)
    return NoRoom(slot.use, begun) if isinstance(slot, NoRoom) else slot


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
    lambda postgres: select(
        part_members.c.group_id, part_members.c.place, part_members.c.digest, part_members.c.own_group
    ).where(is_among(part_members.c.group_id, "newest", postgres))
)


def _load_newest_groups(connection: Connection, scopes: Sequence[str]) -> dict[str, _GatheredGroup]:
    """By scope."""
    found = (_NEWEST_GROUP.run(connection, of=scope).mappings().one_or_none() for scope in scopes)
    return _load_places(connection, [row for row in found if row is not None])


def _load_places(connection: Connection, rows: Sequence[RowMapping]) -> dict[str, _GatheredGroup]:
    """By scope the groups of these rows."""
    gathered = {row["group_id"]: _GatheredGroup(dict(row)) for row in rows}
    places: Sequence[Any] = _PLACES.run(connection, newest=list(gathered)).all() if gathered else ()
    for group_id, place, digest_, own_group in places:
        gathered[group_id].places[place] = _Place(digest_, own_group)
        gathered[group_id].late += own_group is not None
    return {one.row["scope"]: one for one in gathered.values()}


_NAMED_MEMBER: Final = (
    select(part_members, parts.c.state.label("group_state"))
    .join(parts, parts.c.group_id == part_members.c.group_id)
    .where(parts.c.scope == bindparam("of"), part_members.c.digest == bindparam("fingerprint"))
    .order_by(parts.c.generation.desc())
    .limit(1)
)


def _load_earlier_members(
    connection: Connection, database: Database, items: Sequence[Arrival], now: int
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Stored members that a sample may repeat, by its retry key. Under a fingerprint also one that was answered: the
    answer may have been lost. Without one those whose sender disconnected; who left last comes last."""
    earlier: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for scope, fingerprint in {one.retry_key for one in items if one.fingerprint}:
        row = connection.execute(_NAMED_MEMBER, {"of": scope, "fingerprint": fingerprint}).mappings().one_or_none()
        if row is not None:
            earlier[scope, fingerprint] = [dict(row)]
    unnamed = {one.retry_key for one in items if not one.fingerprint}
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
    # They came whole, so there is no entry yet by which another replica could claim them.
    whole = [group for group in pending if group.group_id not in with_entry and group.group_id not in collecting]
    _insert_closed(connection, [(group, _describe_whole(group)) for group in whole], now)
    mine = parts.c.group_id.in_([*names, *collecting.values()]), parts.c.state == "closed"
    connection.execute(update(parts).where(*mine).values(due=now))


def _find_collecting_groups(connection: Connection, groups: Sequence[Group]) -> dict[str, str]:
    """The group that each late one came too late for, by the late one's id."""
    late = [group.group_id for group in groups if "late" in group.flags]
    here = select(part_members.c.own_group, part_members.c.group_id).where(part_members.c.own_group.in_(late))
    return {own: group_id for own, group_id in connection.execute(here)} if late else {}


def _describe_whole(group: Group) -> Arrival:
    return Arrival(group, (), scope=group.group_id, key="", size=len(group.rollouts), seconds=0.0)


# Closing: a pending group becomes a stored one.


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
    closing: Sequence[_GatheredGroup],
    late: Sequence[_LateGroup],
    now: int,
) -> list[Group]:
    """Stores groups, those that are closed first: as pending, but for those with scores."""
    opened_before = [one.row for one in closing if not one.is_new]
    closed = [row["group_id"] for row in opened_before]
    members = _load_members(connection, closed)
    built = [*(one.build(members.get(one.group_id, ())) for one in closing), *(one.group for one in late)]
    stored = add_groups(connection, database, [GroupToStore(group).pack() for group in built])
    if opened_before:
        rows = [{f"new_{name}": row[name] for name in ("group_id", *_CLOSING)} for row in opened_before]
        connection.execute(_CLOSE_PART, rows)
        _FORGET_COMPLETIONS.run(connection, closed=closed)
    if late:
        due = now + round(_CLAIM_SECONDS * MICROSECONDS_PER_SECOND)
        connection.execute(_POSTPONE_PART, [{"of": one.row["group_id"], "new_due": due} for one in late])
    return stored


def _build_group(row: _PartRow, arrived: Sequence[Rollout], flags: tuple[str, ...] = ()) -> Group:
    """The group of a row with these members, before scoring."""
    if not flags and row["missing"]:
        flags = ("partial_group",)
    return parse_group(row, sorted(arrived, key=lambda member: member.place), "pending", flags)


def _load_members(connection: Connection, group_ids: Collection[str]) -> dict[str, list[Rollout]]:
    """The members of each group, but for late ones."""
    members: dict[str, list[Rollout]] = {group_id: [] for group_id in group_ids}
    rows = _SELECT_MEMBERS.run(connection, group_ids=list(group_ids)).mappings() if group_ids else ()
    for row in rows:
        group_id, completion = row["group_id"], decode(Completion, row["completion"])
        members[group_id].append(Rollout.begin(group_id, row["place"], completion))
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


def _build_part_row(arrival: Arrival, group_id: str, generation: int, now: int, deadline: int) -> dict[str, Any]:
    """The row of a group that is open."""
    group = arrival.group
    return {
        "group_id": group_id,
        "scope": arrival.scope,
        "generation": generation,
        "key": encode_json(arrival.key),
        "size": arrival.size,
        "task_id": group.task_id,
        "environment": group.environment,
        "run": group.run,
        **build_origin_columns(group),
        "purpose": group.purpose,
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


def _build_member_row(
    row: _PartRow, member: Rollout, fingerprint: str, holder: str, held_until: int, own_group: str | None
) -> dict[str, Any]:
    return {
        "group_id": row["group_id"],
        "place": member.place,
        "scope": row["scope"],
        "digest": fingerprint or member.completion.identity_digest,
        "completion": None if own_group else encode_completion(member.completion),
        "own_group": own_group,
        "state": "held" if holder else "answered",
        "holder": holder,
        "held_until": held_until,
    }


def _restore_groups(connection: Connection, pieces: Mapping[str, Arrival], now: int) -> dict[str, _GatheredGroup]:
    """The groups of these ids that are stored, for pieces that come again after `delete_old` has deleted their entries.
    Gone when one of them was pruned."""
    require_unpruned(connection, pieces.keys())
    stored = load_groups(connection, groups.c.group_id.in_(pieces))
    return _insert_closed(connection, [(group, pieces[group.group_id]) for group in stored], now)


def _insert_closed(
    connection: Connection, stored: Sequence[tuple[Group, Arrival]], now: int
) -> dict[str, _GatheredGroup]:
    """Inserts entries of stored groups, by scope. The stored group has the completions."""
    restored = {}
    rows: list[dict[str, Any]] = []
    for group, piece in stored:
        missing = piece.size - len(group.rollouts)
        row = _build_part_row(piece, group.group_id, 0, now, now)
        row |= {"state": "closed", "missing": missing, "closed_at": now, "due": None}
        restored[group.group_id] = gathered = _GatheredGroup(row)
        for one in group.rollouts:
            fingerprint = "" if one.reduced is None else one.reduced.identity
            member = _build_member_row(row, one, fingerprint, "", now, None) | {"completion": None}
            gathered.places[one.place] = _Place(member["digest"], None)
            rows.append(member)
    if restored:
        _insert_parts(connection, [one.row for one in restored.values()])
        insert_rows(connection, part_members, rows)
    return restored
