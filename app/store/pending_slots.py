"""Slots for samples that come one at a time: each joins the newest group of its scope, or begins the next one."""

import secrets
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, and_, func, or_, select, update

from app.domain.groups import Group
from app.domain.parts import GroupSlot, Member, PendingGroup, RetryWindows, SampleName
from app.domain.tasks import Completion
from app.store.database import Database
from app.store.part_tables import part_members, parts
from app.store.pending_groups import (
    MICROSECONDS_PER_SECOND,
    add_late_group,
    close_group,
    count_members,
    insert_members,
    load_group_row,
    lock_scope,
    open_group,
)

HOLD_SECONDS: Final = 15.0
"""A holder without a heartbeat for this long counts as disconnected. Only on PostgreSQL; on SQLite holders count as
disconnected when the service starts."""


def assign_slot(
    connection: Connection,
    database: Database,
    cohort: PendingGroup,
    completion: Completion,
    seconds: float,
    windows: RetryWindows,
    name: SampleName,
) -> GroupSlot:
    lock_scope(connection, database, cohort.scope)
    now = database.read_lease_clock(connection)
    held_until = now + round(HOLD_SECONDS * MICROSECONDS_PER_SECOND)
    newest, begun = _close_overdue(connection, database, _load_newest_group(connection, cohort), now)
    if name.fingerprint:
        known = _find_named_member(connection, cohort, name.fingerprint)
    else:
        known = _find_abandoned_member(connection, database, cohort, completion, now, windows.retry)
    if known is not None:
        return _reassign_slot(connection, known, held_until, begun)
    place = None if newest is None else _find_free_place(connection, newest, name)
    if newest is None or place is None or not _awaits_completions(connection, newest, now, windows.late):
        generation = 0 if newest is None else newest["generation"] + 1
        newest = open_group(connection, cohort, _create_group_id(), generation, now, seconds)
        place = name.place or 0
    member = Member(place=place, completion=completion, known_as=name.fingerprint)
    assign = _take_place if newest["state"] == "open" else _assign_late_slot
    return assign(connection, database, newest, member, now, held_until, begun)


def _close_overdue(
    connection: Connection, database: Database, row: RowMapping | None, now: int
) -> tuple[RowMapping | None, list[Group]]:
    """The group as it is now, and what there is to score if it was closed here."""
    if row is None or row["state"] != "open" or row["deadline"] > now:
        return row, []
    begun = [close_group(connection, database, row, now)]
    return load_group_row(connection, row["group_id"]), begun


def _assign_late_slot(
    connection: Connection,
    database: Database,
    row: RowMapping,
    member: Member,
    now: int,
    held_until: int,
    begun: list[Group],
) -> GroupSlot:
    own = _create_group_id()
    begun.append(add_late_group(connection, database, row, [member], own, now))
    holder = insert_members(connection, row, [member], now, held_until=held_until, own_group=own)
    return GroupSlot(row["group_id"], own, (member.place,), open=False, holder=holder, begun=tuple(begun))


def _take_place(
    connection: Connection,
    database: Database,
    row: RowMapping,
    member: Member,
    now: int,
    held_until: int,
    begun: list[Group],
) -> GroupSlot:
    holder = insert_members(connection, row, [member], now, held_until=held_until)
    full = count_members(connection, row["group_id"]) == row["size"]
    if full:
        begun.append(close_group(connection, database, row, now))
    here = row["group_id"]
    return GroupSlot(here, here, (member.place,), open=not full, holder=holder, begun=tuple(begun))


def _create_group_id() -> str:
    return f"group_{secrets.token_hex(16)}"


def _load_newest_group(connection: Connection, cohort: PendingGroup) -> RowMapping | None:
    statement = (
        select(parts)
        .where(parts.c.scope == cohort.scope)
        .order_by(parts.c.generation.desc())
        .limit(1)
        .with_for_update()
    )
    return connection.execute(statement).mappings().one_or_none()


def _find_named_member(connection: Connection, cohort: PendingGroup, fingerprint: str) -> RowMapping | None:
    """Also one that was answered: the answer may have been lost."""
    statement = (
        select(part_members)
        .join(parts, parts.c.group_id == part_members.c.group_id)
        .where(parts.c.scope == cohort.scope, part_members.c.said == fingerprint)
        .order_by(parts.c.generation.desc())
        .limit(1)
    )
    return connection.execute(statement).mappings().one_or_none()


def _find_abandoned_member(
    connection: Connection, database: Database, cohort: PendingGroup, completion: Completion, now: int, seconds: float
) -> RowMapping | None:
    """The newest equal member whose sender disconnected: this request is its retry."""
    gone = part_members.c.state == "left"
    if database.postgres:
        gone = or_(gone, and_(part_members.c.state == "held", part_members.c.held_until <= now))
    statement = (
        select(part_members)
        .where(
            part_members.c.scope == cohort.scope,
            part_members.c.said == completion.identity_digest,
            part_members.c.state != "answered",
            gone,
            part_members.c.held_until > now - round(seconds * MICROSECONDS_PER_SECOND),
        )
        .order_by(part_members.c.held_until.desc())
        .limit(1)
    )
    return connection.execute(statement).mappings().one_or_none()


def _reassign_slot(connection: Connection, member: RowMapping, held_until: int, begun: list[Group]) -> GroupSlot:
    holder = secrets.token_hex(8)
    connection.execute(
        update(part_members).where(*_match_member(member)).values(state="held", holder=holder, held_until=held_until)
    )
    cohort_id, own = member["group_id"], member["own_group"]
    still_open = own is None and load_group_row(connection, cohort_id)["state"] == "open"
    return GroupSlot(
        cohort_id, own or cohort_id, (member["place"],), open=still_open, holder=holder, begun=tuple(begun)
    )


def _match_member(member: RowMapping) -> tuple[Any, ...]:
    return part_members.c.group_id == member["group_id"], part_members.c.place == member["place"]


def _awaits_completions(connection: Connection, row: RowMapping, now: int, seconds: float) -> bool:
    """Whether the group is open, or closed and still waits for missing completions."""
    if row["state"] == "open":
        return True
    if not row["missing"] or row["closed_at"] <= now - round(seconds * MICROSECONDS_PER_SECOND):
        return False
    missing: int = row["missing"]
    return count_members(connection, row["group_id"], late=True) < missing


def _find_free_place(connection: Connection, row: RowMapping, name: SampleName) -> int | None:
    """The place that the sample names, or the next one; None if another has it."""
    here = part_members.c.group_id == row["group_id"]
    if name.place is None:
        last = connection.execute(select(func.max(part_members.c.place)).where(here)).scalar()
        return 0 if last is None else int(last) + 1
    taken = connection.execute(select(part_members.c.place).where(here, part_members.c.place == name.place)).first()
    return name.place if taken is None else None
