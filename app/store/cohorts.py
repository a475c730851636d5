"""Cohorts in the transaction that changes them: opened, filled, closed into ordinary groups."""

import hashlib
import re
import secrets
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from app.domain.digests import digest
from app.domain.groups import Group
from app.domain.parts import Cohort, Member
from app.domain.tasks import Completion
from app.ports.store import GroupToStore
from app.store.database import Database
from app.store.group_rows import Head, load_groups
from app.store.groups import add_groups
from app.store.part_tables import part_members, parts
from app.store.rows import decode, decode_json, encode, encode_json, from_micros
from app.store.tables import groups

SECOND: Final = 1_000_000
CLAIM_SECONDS: Final = 60.0
"""Whoever scores a closed group says so again within this time; else another replica takes it up."""


def lock(connection: Connection, database: Database, scope: str) -> None:
    """Completions of one scope take their places one after the other, also where no row is there to be locked."""
    if database.postgres:
        key = hashlib.sha256(f"parts {scope}".encode()).digest()[:8]
        connection.execute(select(func.pg_advisory_xact_lock(int.from_bytes(key, "big", signed=True))))


def open_cohort(
    connection: Connection, cohort: Cohort, group_id: str, generation: int, now: int, seconds: float
) -> RowMapping:
    deadline = now + round(seconds * SECOND)
    row = {
        "group_id": group_id,
        "scope": cohort.scope,
        "generation": generation,
        "key": encode_json(cohort.key),
        "size": cohort.size,
        "task_id": cohort.task_id,
        "environment": cohort.environment,
        "run": cohort.run,
        "head": encode(Head(policy=cohort.policy, lease_id=cohort.lease_id)),
        "purpose": cohort.purpose,
        "deadline": deadline,
        "state": "open",
        "missing": 0,
        "closed_at": None,
        "due": deadline,
        "created_at": now,
    }
    connection.execute(insert(parts), row)
    return load(connection, group_id)


def load(connection: Connection, group_id: str) -> RowMapping:
    return connection.execute(select(parts).where(parts.c.group_id == group_id)).mappings().one()


def cohort_of(row: RowMapping) -> Cohort:
    head = decode(Head, row["head"])
    return Cohort(
        scope=row["scope"],
        task_id=row["task_id"],
        environment=row["environment"],
        run=row["run"],
        lease_id=head.lease_id,
        policy=head.policy,
        purpose=row["purpose"],
        key=str(decode_json(row["key"])),
        size=row["size"],
    )


def members_of(connection: Connection, group_ids: Collection[str]) -> Sequence[RowMapping]:
    """Without those that came late, in the order of their places."""
    statement = (
        select(part_members)
        .where(part_members.c.group_id.in_(group_ids), part_members.c.own_group.is_(None))
        .order_by(part_members.c.group_id, part_members.c.place)
    )
    return connection.execute(statement).mappings().all()


def seat(
    connection: Connection,
    row: RowMapping,
    members: Sequence[Member],
    now: int,
    *,
    held_until: int | None = None,
    own_group: str | None = None,
) -> str:
    """Their holder's name; none for members that nobody holds, since they say their place themselves."""
    holder = "" if held_until is None else secrets.token_hex(8)
    rows = [
        {
            "group_id": row["group_id"],
            "place": member.place,
            "scope": row["scope"],
            "said": digest(member.completion.said),
            "completion": None if own_group else encode(member.completion),
            "own_group": own_group,
            "state": "answered" if held_until is None else "held",
            "holder": holder,
            "held_until": now if held_until is None else held_until,
        }
        for member in members
    ]
    connection.execute(insert(part_members), rows)
    return holder


def close(connection: Connection, database: Database, row: RowMapping, now: int) -> Group:
    """The group of whatever has come, stored as pending. Whoever closed it scores it."""
    come = members_of(connection, [row["group_id"]])
    missing = row["size"] - len(come)
    flags = ("partial_group",) if missing else ()
    group = _group(row, come, flags)
    (stored,) = add_groups(connection, database, [GroupToStore(group)], None)
    at = min(now, row["deadline"])
    closed = {"state": "closed", "missing": missing, "closed_at": at, "due": now + round(CLAIM_SECONDS * SECOND)}
    here = row["group_id"]
    connection.execute(update(parts).where(parts.c.group_id == here).values(closed))
    connection.execute(update(part_members).where(part_members.c.group_id == here).values(completion=None))
    return stored


def apart(
    connection: Connection, database: Database, row: RowMapping, members: Sequence[Member], group_id: str, now: int
) -> Group:
    """A group for these alone, who came when theirs was closed; looked after as the cohort's own is."""
    flags = ("late",)
    group = cohort_of(row).group(group_id, tuple(members), flags, from_micros(now))
    (stored,) = add_groups(connection, database, [GroupToStore(group)], None)
    due = {"due": now + round(CLAIM_SECONDS * SECOND)}
    connection.execute(update(parts).where(parts.c.group_id == row["group_id"]).values(due))
    return stored


def opened(connection: Connection, group_ids: Collection[str]) -> dict[str, Group]:
    """Open ones as they stand."""
    statement = select(parts).where(parts.c.group_id.in_(group_ids), parts.c.state == "open")
    rows = {row["group_id"]: row for row in connection.execute(statement).mappings()}
    come: dict[str, list[RowMapping]] = {group_id: [] for group_id in rows}
    for member in members_of(connection, rows):
        come[member["group_id"]].append(member)
    return {group_id: _group(row, come[group_id], ()) for group_id, row in rows.items()}


def restored(connection: Connection, cohort: Cohort, group_id: str, now: int) -> RowMapping | None:
    """A cohort that was cleared away, from the group that it became; None where it never was."""
    (group, *_) = load_groups(connection, groups.c.group_id == group_id) or (None,)
    if group is None:
        return None
    row = open_cohort(connection, cohort, group_id, 0, now, 0.0)
    members = [Member(place=_place(rollout.rollout_id), completion=rollout.completion) for rollout in group.rollouts]
    seat(connection, row, members, now)
    closed = {"state": "closed", "missing": cohort.size - len(members), "closed_at": now, "due": None}
    connection.execute(update(parts).where(parts.c.group_id == group_id).values(closed))
    connection.execute(update(part_members).where(part_members.c.group_id == group_id).values(completion=None))
    return load(connection, group_id)


def _place(rollout_id: str) -> int:
    return int(re.split("-", rollout_id)[-1])


def _group(row: RowMapping, come: Sequence[RowMapping], flags: tuple[str, ...]) -> Group:
    members = tuple(
        Member(place=member["place"], completion=decode(Completion, member["completion"])) for member in come
    )
    return cohort_of(row).group(row["group_id"], members, flags, from_micros(row["created_at"]))
