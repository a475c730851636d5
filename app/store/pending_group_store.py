"""The store of pending groups, which collect completions until they are full or their deadline passes."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, bindparam, delete, select, update

from app.domain.digests import digest
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
from app.ports.store import PendingGroupStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.part_tables import part_members, parts
from app.store.pending_groups import (
    CLAIM_SECONDS,
    MICROSECONDS_PER_SECOND,
    PartRow,
    add_late_group,
    close_group,
    count_members,
    insert_members,
    load_known_members,
    load_open_groups,
    lock_scope,
    open_group,
    restore_group,
)
from app.store.pending_slots import HOLD_SECONDS, SampleArrival, assign_slots
from app.store.rows import filter_storable
from app.store.tables import groups

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
