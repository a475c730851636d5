"""Operations on pending groups within a transaction: open, add members, close into stored groups."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ARRAY, BigInteger, Connection, RowMapping, bindparam, cast, func, select, update
from sqlalchemy.exc import IntegrityError

from app.domain.errors import NotFound
from app.domain.groups import Group
from app.domain.parts import Member, PendingGroup
from app.domain.tasks import Completion
from app.ports.store import GroupToStore
from app.store.database import Database
from app.store.group_rows import EncodedTexts, GroupHead, load_groups
from app.store.group_writes import add_groups, require_unpruned
from app.store.inserts import insert_rows
from app.store.part_tables import part_members, parts
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.rows import decode, decode_json, encode, encode_completion, encode_json, from_micros
from app.store.tables import groups

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
