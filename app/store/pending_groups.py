"""Operations on pending groups within a transaction: open, add members, close into stored groups."""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.domain.errors import NotFound
from app.domain.groups import Group
from app.domain.parts import Member, PendingGroup
from app.domain.tasks import Completion
from app.ports.store import GroupToStore
from app.store.database import Database
from app.store.group_rows import GroupHead, load_groups
from app.store.group_store import add_groups, require_unpruned
from app.store.part_tables import part_members, parts
from app.store.rows import decode, decode_json, encode, encode_completion, encode_json, from_micros
from app.store.tables import groups

MICROSECONDS_PER_SECOND: Final = 1_000_000
CLAIM_SECONDS: Final = 60.0
"""The scorer of a closed group must renew its claim within this time; otherwise another replica takes over."""


def lock_scope(connection: Connection, database: Database, scope: str) -> None:
    """Serialises writes of one scope, also before there is a row to lock."""
    if database.postgres:
        key = hashlib.sha256(f"parts {scope}".encode()).digest()[:8]
        connection.execute(select(func.pg_advisory_xact_lock(int.from_bytes(key, "big", signed=True))))


def open_group(
    connection: Connection, cohort: PendingGroup, group_id: str, generation: int, now: int, seconds: float
) -> RowMapping:
    require_unpruned(connection, [group_id])
    deadline = now + round(seconds * MICROSECONDS_PER_SECOND)
    row = {
        "group_id": group_id,
        "scope": cohort.scope,
        "generation": generation,
        "key": encode_json(cohort.key),
        "size": cohort.size,
        "task_id": cohort.task_id,
        "environment": cohort.environment,
        "run": cohort.run,
        "head": encode(
            GroupHead(
                policy=cohort.policy,
                lease_id=cohort.lease_id,
                hand_out_step=cohort.hand_out_step,
                sender=cohort.sender,
            )
        ),
        "purpose": cohort.purpose,
        "deadline": deadline,
        "state": "open",
        "missing": 0,
        "closed_at": None,
        "due": deadline,
        "created_at": now,
    }
    try:
        connection.execute(insert(parts), row)
    except IntegrityError as error:
        raise NotFound("the group's task is not stored", field="task_id") from error
    return load_group_row(connection, group_id)


def load_group_row(connection: Connection, group_id: str) -> RowMapping:
    return connection.execute(select(parts).where(parts.c.group_id == group_id)).mappings().one()


def parse_group(row: RowMapping) -> PendingGroup:
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
    statement = (
        select(part_members)
        .where(part_members.c.group_id.in_(group_ids), part_members.c.own_group.is_(None))
        .order_by(part_members.c.group_id, part_members.c.place)
    )
    return connection.execute(statement).mappings().all()


def insert_members(
    connection: Connection,
    row: RowMapping,
    members: Sequence[Member],
    now: int,
    *,
    held_until: int | None = None,
    own_group: str | None = None,
) -> str:
    """Inserts members and returns their holder id; empty for members that name their place and are not held."""
    holder = "" if held_until is None else secrets.token_hex(8)
    rows = [
        {
            "group_id": row["group_id"],
            "place": member.place,
            "scope": row["scope"],
            "said": member.said,
            "completion": None if own_group else encode_completion(member.completion),
            "own_group": own_group,
            "state": "answered" if held_until is None else "held",
            "holder": holder,
            "held_until": now if held_until is None else held_until,
        }
        for member in members
    ]
    connection.execute(insert(part_members), rows)
    return holder


def close_group(connection: Connection, database: Database, row: RowMapping, now: int) -> Group:
    """Closes the group with the completions that have arrived and stores it as pending. The caller scores it."""
    come = load_members(connection, [row["group_id"]])
    missing = row["size"] - len(come)
    flags = ("partial_group",) if missing else ()
    group = _build_group(row, come, flags)
    (stored,) = add_groups(connection, database, [GroupToStore(group)], None)
    at = min(now, row["deadline"])
    closed = {
        "state": "closed",
        "missing": missing,
        "closed_at": at,
        "due": now + round(CLAIM_SECONDS * MICROSECONDS_PER_SECOND),
    }
    here = row["group_id"]
    connection.execute(update(parts).where(parts.c.group_id == here).values(closed))
    connection.execute(update(part_members).where(part_members.c.group_id == here).values(completion=None))
    return stored


def add_late_group(
    connection: Connection, database: Database, row: RowMapping, members: Sequence[Member], group_id: str, now: int
) -> Group:
    """Stores a separate group for members that arrived after theirs was closed."""
    flags = ("late",)
    group = parse_group(row).build_group(group_id, tuple(members), flags, from_micros(now))
    (stored,) = add_groups(connection, database, [GroupToStore(group)], None)
    due = {"due": now + round(CLAIM_SECONDS * MICROSECONDS_PER_SECOND)}
    connection.execute(update(parts).where(parts.c.group_id == row["group_id"]).values(due))
    return stored


def load_open_groups(connection: Connection, group_ids: Collection[str]) -> dict[str, Group]:
    """Open groups with the completions so far."""
    statement = select(parts).where(parts.c.group_id.in_(group_ids), parts.c.state == "open")
    rows = {row["group_id"]: row for row in connection.execute(statement).mappings()}
    come: dict[str, list[RowMapping]] = {group_id: [] for group_id in rows}
    for member in load_members(connection, rows):
        come[member["group_id"]].append(member)
    return {group_id: _build_group(row, come[group_id], ()) for group_id, row in rows.items()}


def restore_group(connection: Connection, cohort: PendingGroup, group_id: str, now: int) -> RowMapping | None:
    """Restores a deleted entry from the stored group; None if there is no such group."""
    (group, *_) = load_groups(connection, groups.c.group_id == group_id) or (None,)
    if group is None:
        return None
    row = open_group(connection, cohort, group_id, 0, now, 0.0)
    members = [
        Member(
            place=rollout.place,
            completion=rollout.completion,
            known_as="" if rollout.reduced is None else rollout.reduced.identity,
        )
        for rollout in group.rollouts
    ]
    insert_members(connection, row, members, now)
    closed = {"state": "closed", "missing": cohort.size - len(members), "closed_at": now, "due": None}
    connection.execute(update(parts).where(parts.c.group_id == group_id).values(closed))
    connection.execute(update(part_members).where(part_members.c.group_id == group_id).values(completion=None))
    return load_group_row(connection, group_id)


def _build_group(row: RowMapping, come: Sequence[RowMapping], flags: tuple[str, ...]) -> Group:
    members = tuple(
        Member(place=member["place"], completion=decode(Completion, member["completion"])) for member in come
    )
    return parse_group(row).build_group(row["group_id"], members, flags, from_micros(row["created_at"]))


def load_known_members(connection: Connection, group_id: str, places: Collection[int]) -> dict[int, RowMapping]:
    statement = select(part_members).where(part_members.c.group_id == group_id, part_members.c.place.in_(places))
    return {row["place"]: row for row in connection.execute(statement).mappings()}


def count_members(connection: Connection, group_id: str, *, late: bool = False) -> int:
    own = part_members.c.own_group.is_not(None) if late else part_members.c.own_group.is_(None)
    statement = select(func.count()).select_from(part_members).where(part_members.c.group_id == group_id, own)
    return connection.execute(statement).scalar_one()
