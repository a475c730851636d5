"""People's labels, and the queue that asks people for them.

An item of the queue is a group. A lease says who holds it, by a claim until when, and stays as the record of how it was
drawn once it is done or skipped. One item is never held by two people at once, except by a second one who is meant to
label it too: who claims, renews or labels an item locks its group first.

A label never changes. What a labeller says later of the same group replaces it, and what was replaced or withdrawn
stays. Groups with labels, or with an item that somebody holds, are kept from pruning.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from random import SystemRandom
from typing import Any, Final, Literal, cast

from pydantic import JsonValue
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Index,
    RowMapping,
    Select,
    String,
    Subquery,
    Text,
    and_,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    text,
    union,
    update,
)
from sqlmodel import Field

from app.domain.errors import Conflict, NotFound
from app.domain.groups import Group
from app.domain.labels import (
    FORMER_ARMS,
    Arm,
    ArmCounts,
    Label,
    LabelLease,
    LabelledGroupRecord,
    Labeller,
    QueueDraw,
)
from app.domain.scores import Score
from app.domain.values import digest
from app.store.claims import Claim, release_claim, renew_claim, take_claim
from app.store.database import Database, StorePart, reads, writes
from app.store.group_rows import has_text, load_groups
from app.store.groups import load_scorings
from app.store.retention import keep_groups
from app.store.statements import decode, encode, filter_storable, from_micros, insert_rows, is_storable, to_micros
from app.store.table_records import TableRecord, build_sequence_column, get_table
from app.store.tables import claims, groups, rollouts, rollups


class LabelTable(TableRecord, table=True):
    """A label with its history: what was replaced or withdrawn stays. `source_digest` is that of an imported choice,
    or of the chat in which a live choice was made that may change. `labeller` is a key where it is `verified`, else a
    name that anybody could give."""

    __tablename__ = "labels"
    __table_args__ = (
        Index("ix_labels_group", "group_id", "labeller"),
        Index("ix_labels_kind", "kind", "environment", "sequence"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column())
    label_id: str = Field(unique=True)
    kind: str
    state: str
    labeller: str
    group_id: str | None = None
    environment: str
    run: str | None = None
    lease_id: str | None = None
    body: str = Field(sa_type=Text)
    source_digest: str | None = Field(default=None, unique=True)
    created_at: int = Field(sa_type=BigInteger)
    on_behalf_of: str = Field(sa_column=Column(String(), nullable=False, server_default=text("''")))
    verified: bool = Field(sa_column=Column(Boolean(), nullable=False, server_default=false()))


class LabelLeaseTable(TableRecord, table=True):
    """An item of the queue that somebody holds, has labelled or has skipped. While it is `live`, its claim says until
    when. `draw` is JSON, and stays; `arm` becomes
    `uniform` where a uniform draw finds a group that was labelled as doubtful."""

    __tablename__ = "label_leases"
    __table_args__ = (
        Index("ix_label_leases_group", "group_id"),
        Index("ix_label_leases_labeller", "labeller", "state"),
        Index("ix_label_leases_stratum", "environment", "run"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column())
    lease_id: str = Field(unique=True)
    labeller: str
    group_id: str
    environment: str
    run: str | None = None
    arm: str
    second: bool
    wanted: int
    draw: str = Field(sa_type=Text)
    state: str
    created_at: int = Field(sa_type=BigInteger)
    on_behalf_of: str = Field(sa_column=Column(String(), nullable=False, server_default=text("''")))
    verified: bool = Field(sa_column=Column(Boolean(), nullable=False, server_default=false()))


labels = get_table(LabelTable)
label_leases = get_table(LabelLeaseTable)
_ORDER = "labels"
"""Writes of labels run in the order in which they came."""


_UNIFORM: Final = ("uniform", *(former for former, arm in FORMER_ARMS.items() if arm == "uniform"))
"""The arms, by their stored names, that count in figures."""


@dataclass(frozen=True)
class DrawnGroup:
    """A group that the queue may ask about."""

    sequence: int
    group_id: str
    environment: str
    run: str | None
    low_signal: int


# The queue: who is asked for which label until when.


class LabelQueue(StorePart):
    """Items that people hold, have labelled or have skipped."""

    @reads
    def count_left(
        self, connection: Connection, environments: Sequence[str], run: str | None, by: Labeller
    ) -> tuple[int, int]:
        """The scored groups of the filter, and how many of them the labeller may still get."""
        taken = _select_taken(by, self.database.read_lease_clock(connection))
        here = [taken.c.environment.in_(environments), *([] if run is None else [taken.c.run == run])]
        gone = connection.execute(select(func.count()).select_from(taken).where(*here)).scalar_one()
        count = _count_scored(connection, environments, run)
        return count, max(0, count - gone)

    @reads
    def count_drawn(self, connection: Connection, environments: Sequence[str], run: str | None) -> Counter[Arm]:
        """Labels and live leases of the filter by arm, second labels aside."""
        now = self.database.read_lease_clock(connection)
        counted = select(label_leases.c.arm, func.count()).where(
            label_leases.c.second.is_(False),
            or_(label_leases.c.state == "done", _is_live(now)),
            *_match_leases(environments, run),
        )
        drawn: Counter[Arm] = Counter()
        for arm, count in connection.execute(counted.group_by(label_leases.c.arm)):
            drawn[FORMER_ARMS.get(arm, arm)] += count
        return drawn

    async def draw_uniform(self, environments: Sequence[str], run: str | None, by: Labeller) -> DrawnGroup | None:
        """Any group of the filter that no uniform draw has found, each equally likely. One that has its label by a
        doubtful draw counts as drawn uniformly from then on, and the next is drawn: figures would miss what is doubtful
        if such groups were passed over. None where nothing is left."""
        while True:
            labelled, drawn = await self._look_for_uniform(environments, run, by)
            if labelled:
                await self._count_as_uniform(labelled)
            if drawn is not None or not labelled:
                return drawn

    @reads
    def _look_for_uniform(
        self, connection: Connection, environments: Sequence[str], run: str | None, by: Labeller
    ) -> tuple[list[str], DrawnGroup | None]:
        """The first that is left of some that are drawn, and those before it, which have labels."""
        taken = _select_taken(by, self.database.read_lease_clock(connection))
        passed = select(label_leases.c.group_id).where(
            label_leases.c.state == "done", label_leases.c.arm.not_in(_UNIFORM)
        )
        free = or_(groups.c.group_id.not_in(select(taken.c.group_id)), groups.c.group_id.in_(passed))
        pool = _draw_groups(connection, environments, run, free)
        here = label_leases.c.group_id.in_([one.group_id for one in pool])
        labelled = {*connection.execute(passed.where(here)).scalars()}
        before = [one.group_id for one in takewhile(lambda one: one.group_id in labelled, pool)]
        return before, next(iter(pool[len(before) :]), None)

    @writes(_ORDER)
    def _count_as_uniform(self, connection: Connection, group_ids: Sequence[str]) -> None:
        done = and_(label_leases.c.group_id.in_(group_ids), label_leases.c.state == "done")
        connection.execute(update(label_leases).where(done).values(arm="uniform"))

    @reads
    def draw_doubtful(
        self, connection: Connection, environments: Sequence[str], run: str | None, by: Labeller
    ) -> DrawnGroup | None:
        """Of some groups that are left, each equally likely, the one whose judges were least certain. None where
        nothing is left."""
        taken = _select_taken(by, self.database.read_lease_clock(connection))
        pool = _draw_groups(connection, environments, run, groups.c.group_id.not_in(select(taken.c.group_id)))
        doubts = _measure_doubts(connection, [one.sequence for one in pool])
        return max(pool, key=lambda one: (doubts[one.sequence], one.low_signal), default=None)

    @reads
    def find_held(
        self, connection: Connection, by: Labeller, environments: Sequence[str], run: str | None
    ) -> LabelLease | None:
        """The oldest item that the labeller holds."""
        now = self.database.read_lease_clock(connection)
        held = (_is_by(by), _is_live(now), *_match_leases(environments, run))
        return _load_lease(connection, _SELECT_LEASES.where(*held))

    @reads
    def find_awaiting_second(
        self, connection: Connection, by: Labeller, environments: Sequence[str], run: str | None
    ) -> LabelLease | None:
        """The first lease of an item that waits for the label of a second person, who may be this one."""
        now = self.database.read_lease_clock(connection)
        return _load_lease(connection, _select_awaiting(by, now, environments, run))

    @writes(_ORDER)
    def claim(self, connection: Connection, lease: LabelLease, seconds: float) -> LabelLease | None:
        """None when somebody else has taken the item."""
        _lock_group(connection, lease.group_id)
        now = self.database.read_lease_clock(connection)
        if _is_taken(connection, lease, now) or _is_reduced(connection, lease.group_id):
            return None
        if not take_claim(connection, self.database, _build_claim(lease.group_id, lease.draw), seconds):
            return None
        # A lease that ran out stays live until somebody else claims its item, so a late label still counts until then.
        stale = and_(label_leases.c.group_id == lease.group_id, label_leases.c.state == "live", ~_is_held(now))
        connection.execute(update(label_leases).where(stale).values(state="expired"))
        row = {name: getattr(lease, name) for name in _LEASE_COLUMNS}
        row |= {"arm": lease.draw.arm, "second": lease.draw.second, "draw": encode(lease.draw), "state": "live"}
        row |= {"created_at": now}
        insert_rows(connection, label_leases, [row])
        return _require_lease(connection, lease.lease_id)

    @writes(_ORDER)
    def renew(self, connection: Connection, lease: LabelLease, seconds: float) -> LabelLease | None:
        """None when its time is over: somebody else may have taken the item."""
        _lock_group(connection, lease.group_id)
        here = label_leases.c.lease_id == lease.lease_id
        live = select(label_leases.c.lease_id).where(here, _is_live(self.database.read_lease_clock(connection)))
        if connection.execute(live).first() is None:
            return None
        renew_claim(connection, self.database, _build_claim(lease.group_id, lease.draw), seconds)
        return _require_lease(connection, lease.lease_id)

    @reads
    def find_lease(self, connection: Connection, lease_id: str) -> LabelLease | None:
        return _find_lease(connection, lease_id)

    @writes(_ORDER)
    def skip(self, connection: Connection, lease_id: str, by: Labeller) -> LabelLease:
        """Conflict when somebody else holds the item or it has its label."""
        known = _find_lease(connection, lease_id)
        if known is not None:  # the group first, as whoever claims it: else two could wait for each other
            _lock_group(connection, known.group_id)
        lease = _require_lease(connection, lease_id, by)
        if lease.state not in {"live", "skipped"}:
            raise Conflict(f"the item is {lease.state} and cannot be skipped", field="lease_id")
        _end_lease(connection, self.database, lease.group_id, lease.draw, "skipped")
        return lease.model_copy(update={"state": "skipped"})

    @reads
    def count_arms(self, connection: Connection, environments: Sequence[str], run: str | None) -> dict[Arm, ArmCounts]:
        counted = (
            select(
                label_leases.c.arm,
                func.count().filter(label_leases.c.state == "done").label("labelled"),
                func.count().filter(label_leases.c.state == "skipped").label("skipped"),
            )
            .where(*_match_leases(environments, run))
            .group_by(label_leases.c.arm)
        )
        arms: dict[Arm, ArmCounts] = {}
        for stored, labelled, skipped in connection.execute(counted):
            arm: Arm = FORMER_ARMS.get(stored, stored)
            former = arms.get(arm, ArmCounts())
            arms[arm] = ArmCounts(labelled=former.labelled + labelled, skipped=former.skipped + skipped)
        return arms


_COUNTS: Final = and_(label_leases.c.state == "done", label_leases.c.arm.in_(_UNIFORM))
"""Of a lease: the labels of its group are in figures."""


_FIRST, _SECOND = "label", "second_label"
"""Kinds of claims of groups: of those whose label is the first of its group, and of those who give it a second one."""


def _build_claim(group_id: str, draw: QueueDraw) -> Claim:
    """A lease holds its group."""
    return Claim(_SECOND if draw.second else _FIRST, group_id, draw.lease_id)


def _match_claim(leases: FromClause = label_leases) -> tuple[ColumnElement[bool], ...]:
    group = (claims.c.kind.in_((_FIRST, _SECOND)), claims.c.name == leases.c.group_id)
    return *group, claims.c.holder == leases.c.lease_id


def _is_held(now: int, leases: FromClause = label_leases) -> ColumnElement[bool]:
    return exists().where(*_match_claim(leases), claims.c.until > now)


def _is_live(now: int) -> ColumnElement[bool]:
    return and_(label_leases.c.state == "live", _is_held(now))


_SELECT_LEASES: Final = select(
    *label_leases.c,
    func.coalesce(select(claims.c.until).where(*_match_claim()).scalar_subquery(), 0).label("expires_at"),
)


_LEASE_COLUMNS: Final = (
    *("lease_id", "labeller", "on_behalf_of", "verified"),
    *("group_id", "environment", "run", "wanted"),
)
"""Those that hold what a lease holds, as it is."""


def _is_by(by: Labeller, rows: FromClause = label_leases) -> ColumnElement[bool]:
    return and_(rows.c.labeller == by.name, rows.c.on_behalf_of == by.on_behalf_of, rows.c.verified.is_(by.verified))


def _may_be_by(by: Labeller, rows: FromClause = label_leases) -> ColumnElement[bool]:
    """Also what was made under a free name that the caller may have used before there were keys."""
    if not by.verified:
        return _is_by(by, rows)
    free = and_(rows.c.verified.is_(False), rows.c.labeller.in_([by.name, by.on_behalf_of]))
    return or_(_is_by(by, rows), free)


def _match_leases(environments: Sequence[str], run: str | None) -> list[ColumnElement[bool]]:
    return [
        label_leases.c.environment.in_(environments),
        *([] if run is None else [label_leases.c.run == run]),
    ]


def _select_taken(by: Labeller, now: int) -> Subquery:
    """The groups that the queue must not give to this labeller as new ones."""
    mine = and_(_is_by(by), label_leases.c.state == "skipped")
    return union(
        select(labels.c.group_id, labels.c.environment, labels.c.run).where(
            labels.c.state == "live",
            labels.c.group_id.is_not(None),
            or_(labels.c.kind == "queue", _is_by(by, labels)),
        ),
        select(label_leases.c.group_id, label_leases.c.environment, label_leases.c.run).where(or_(_is_live(now), mine)),
    ).subquery()


def _count_scored(connection: Connection, environments: Sequence[str], run: str | None) -> int:
    """Scored groups of the filter: what rollups count and what they do not count yet, without the few that are not
    scored. To count them one by one takes long in a large store."""
    of_runs, alone = (rollups.c.series == "run", and_(rollups.c.series == "step", rollups.c.run.is_(None)))
    counted = select(rollups.c.measures).where(
        rollups.c.environment.in_(environments),
        or_(of_runs, alone) if run is None else and_(of_runs, rollups.c.run == run),
    )
    total = sum(json.loads(measures).get("groups", 0) for measures in connection.execute(counted).scalars())
    # As an expression, or SQLite reads all groups by their environment instead of the index of the few.
    environment = func.coalesce(groups.c.environment, literal_column("''"))
    here = [environment.in_(environments), *([] if run is None else [groups.c.run == run])]
    for missing, sign in (
        (groups.c.counted == literal_column("0"), 1),
        (groups.c.outcome != literal_column("'scored'"), -1),
    ):
        total += sign * connection.execute(select(func.count()).where(missing, *here)).scalar_one()
    return max(0, int(total))


def _select_awaiting(by: Labeller, now: int, environments: Sequence[str], run: str | None) -> Select[Any]:
    """Leases of items with one label that wait for another person's."""
    other = label_leases.alias()
    busy = or_(
        other.c.state == "done",
        and_(other.c.state == "live", _is_held(now, other)),
        and_(other.c.state == "skipped", _is_by(by, other)),
    )
    seconds = select(other.c.group_id).where(other.c.second.is_(True), busy)
    mine = select(labels.c.group_id).where(_may_be_by(by, labels), labels.c.group_id.is_not(None))
    return _SELECT_LEASES.where(
        label_leases.c.wanted > 1,
        label_leases.c.second.is_(False),
        label_leases.c.state == "done",
        ~_may_be_by(by),
        label_leases.c.group_id.not_in(seconds),
        label_leases.c.group_id.not_in(mine),
        *_match_leases(environments, run),
    )


def _load_lease(connection: Connection, statement: Select[Any]) -> LabelLease | None:
    row = connection.execute(statement.order_by(label_leases.c.sequence).limit(1)).mappings().first()
    return None if row is None else _parse_lease(row)


def _parse_lease(row: RowMapping) -> LabelLease:
    plain = {name: row[name] for name in (*_LEASE_COLUMNS, "state")}
    moments = {"expires_at": from_micros(row["expires_at"])}
    return LabelLease.model_validate(plain | moments | {"draw": decode(QueueDraw, row["draw"])})


def _find_lease(connection: Connection, lease_id: str) -> LabelLease | None:
    if not is_storable(lease_id):
        return None
    return _load_lease(connection, _SELECT_LEASES.where(label_leases.c.lease_id == lease_id))


def _require_lease(connection: Connection, lease_id: str, by: Labeller | None = None) -> LabelLease:
    lease = None
    if filter_storable([lease_id]):
        statement = _SELECT_LEASES.where(label_leases.c.lease_id == lease_id).with_for_update()
        row = connection.execute(statement).mappings().first()
        lease = None if row is None else _parse_lease(row)
    if lease is None:
        raise NotFound(f"there is no item {lease_id!r}", field="lease_id")
    if by is not None and lease.by != by:
        raise Conflict("somebody else holds this item", field="lease_id")
    return lease


def _end_lease(
    connection: Connection, database: Database, group_id: str, draw: QueueDraw, state: Literal["done", "skipped"]
) -> None:
    here = label_leases.c.lease_id == draw.lease_id
    connection.execute(update(label_leases).where(here).values(state=state))
    release_claim(connection, database, _build_claim(group_id, draw))


def _lock_group(connection: Connection, group_id: str) -> None:
    """Replicas that want the same item take turns."""
    connection.execute(select(groups.c.sequence).where(groups.c.group_id == group_id).with_for_update()).all()


def _is_reduced(connection: Connection, group_id: str) -> bool:
    """Whether retention has taken the group's texts since it was chosen: nobody can label it then."""
    return (
        connection.execute(select(groups.c.sequence).where(groups.c.group_id == group_id, ~has_text())).first()
        is not None
    )


def _is_taken(connection: Connection, lease: LabelLease, now: int) -> bool:
    """Whether the item is held or labelled by others since it was chosen."""
    here = label_leases.c.group_id == lease.group_id
    others = [here, label_leases.c.lease_id != lease.lease_id, label_leases.c.second.is_(lease.draw.second)]
    held = select(label_leases.c.lease_id).where(*others, or_(_is_live(now), label_leases.c.state == "done"))
    mine = select(labels.c.label_id).where(
        labels.c.group_id == lease.group_id, _is_by(lease.by, labels), labels.c.state == "live"
    )
    return connection.execute(held).first() is not None or connection.execute(mine).first() is not None


# Draws of groups.

PROBES: Final = 256
"""Numbers that are drawn at once to find groups; where there are no more, all groups are sorted at random instead."""
_ROUNDS: Final = 4
"""So often numbers are drawn where none was such a group."""
_POOL: Final = 64
"""Groups that are drawn at once: enough to find doubtful ones, and few enough to read their scores."""


def _draw_groups(
    connection: Connection, environments: Sequence[str], run: str | None, free: ColumnElement[bool]
) -> list[DrawnGroup]:
    """Some of the scored groups of the filter that are free, each with the same chance, in any order. Numbers are drawn
    first: to sort all groups of a large store at random takes long. Where none of them is such a group, few are left or
    the filter is narrow, and those are sorted."""
    of_run = [] if run is None else [groups.c.run == run]
    ends = select(groups.c.sequence).where(*of_run).limit(1)
    first, last = (
        connection.execute(ends.order_by(place)).scalar() for place in (groups.c.sequence, groups.c.sequence.desc())
    )
    if first is None or last is None:
        return []
    found = select(groups.c.sequence, groups.c.group_id, groups.c.environment, groups.c.run, groups.c.low_signal).where(
        groups.c.environment.in_(environments), *of_run, groups.c.outcome == "scored", has_text(), free
    )
    numbers, rows = range(first, last + 1), list[Any]()
    for _ in range(_ROUNDS if len(numbers) > PROBES else 0):
        probes = SystemRandom().sample(numbers, PROBES)
        if rows := [*connection.execute(found.where(groups.c.sequence.in_(probes)))]:
            break
    if rows:
        rows = SystemRandom().sample(rows, min(_POOL, len(rows)))
    else:
        rows = [*connection.execute(found.order_by(func.random()).limit(_POOL))]
    return [DrawnGroup(*row) for row in rows]


_DOUBTS: Final = frozenset({"judges_disagree", "position_dominated"})
"""Flags of a score on which judges, or two orders of the replies, did not agree."""


def _measure_doubts(connection: Connection, sequences: Sequence[int]) -> dict[int, float]:
    """The share of each group's replies that have a flag of doubt."""
    flagged: defaultdict[int, list[bool]] = defaultdict(list)
    members = select(rollouts.c.group_sequence, rollouts.c.score)
    for sequence, score in connection.execute(members.where(rollouts.c.group_sequence.in_(sequences))):
        flagged[sequence].append(_is_doubtful(score))
    return {sequence: sum(flagged[sequence]) / max(1, len(flagged[sequence])) for sequence in sequences}


def _is_doubtful(text: str) -> bool:
    if '"flags"' not in text:  # most are spared the parsing
        return False
    score: Mapping[str, JsonValue] = json.loads(text)
    return not _DOUBTS.isdisjoint(cast("list[str]", score.get("flags") or []))


# Labels.

_TRIES = 3
"""Another replica may take what was given up."""
_GROUPS_AT_ONCE: Final = 500
"""Groups that are read together, with all their texts."""


class LabelStore(StorePart):
    """Labels with their history, and choices that were made elsewhere."""

    @writes(_ORDER)
    def put(
        self, connection: Connection, label: Label, lease_id: str | None, *, merge: bool, show_judge: bool
    ) -> Label:
        """Stores a label in place of the labeller's earlier one; `merge` keeps what the new one does not say. A label
        that says the same again is not stored again. Conflict when the lease is somebody else's or over, and when the
        labeller has seen the scores. `saw_judge` of the result says whether the scores may be shown: not while the item
        waits for others."""
        _lock_group(connection, label.group_id or "")
        former = _load_own(connection, label)
        draw = former.draw if former is not None else None
        if lease_id is not None:
            draw = _admit_lease(connection, label, lease_id, self.database.read_lease_clock(connection))
        made = label.model_copy(update={"draw": draw, "kind": "own_pick" if draw is None else "queue"})
        if former is not None and merge:
            made = _merge_labels(former, made)
        # Blind: nobody sees a judge's scores of an item that somebody else is still to label.
        shown = show_judge and draw is not None and not _waits_for_others(connection, self.database, label)
        if former is not None and _says_the_same(former, made, merge=merge):
            if former.saw_judge or not shown:
                return former
            made = made.model_copy(update={"seconds": former.seconds})
        elif former is not None and former.saw_judge:
            raise Conflict("you have seen the judge's scores of this item, so its label stays as it is")
        return _replace_label(connection, self.database, former, made.model_copy(update={"saw_judge": shown}))

    @writes(_ORDER)
    def withdraw(
        self, connection: Connection, label_id: str, by: Labeller, seconds: float, *, is_admin: bool = False
    ) -> Label:
        """The labeller holds the item again for so many seconds. NotFound where another key made the label, but for an
        admin: then the item goes to others, and its labeller does not get it again."""
        label = _load_live(connection, label_id)
        if label is not None and label.group_id is not None:
            _lock_group(connection, label.group_id)  # before anything else, as where a label is stored
            label = _load_live(connection, label_id)
        is_own = label is not None and by.owns(label)
        if label is None or not (is_own or is_admin):
            raise NotFound(f"{by.name} has no label {label_id!r}")
        if label.saw_judge and is_own:
            raise Conflict("you have seen the judge's scores of this item, so its label stays as it is")
        connection.execute(update(labels).where(labels.c.label_id == label_id).values(state="withdrawn"))
        if label.draw is not None and label.group_id is not None and not is_own:
            _end_lease(connection, self.database, label.group_id, label.draw, "skipped")
        elif label.draw is not None and label.group_id is not None:
            lease = label_leases.c.lease_id == label.draw.lease_id
            is_held = take_claim(connection, self.database, _build_claim(label.group_id, label.draw), seconds)
            state = "live" if is_held else "expired"
            connection.execute(update(label_leases).where(lease).values(state=state))
        return label.model_copy(update={"state": "withdrawn"})

    @reads
    def find(self, connection: Connection, label_id: str) -> Label | None:
        if not is_storable(label_id):
            return None
        body = connection.execute(select(labels.c.body).where(labels.c.label_id == label_id)).scalar()
        return None if body is None else _parse_label(body)

    @writes()
    def add_imported(self, connection: Connection, imported: Sequence[Label]) -> list[str]:
        """The ids of those that were not stored before: what says the same is stored once."""
        return [
            one.label_id
            for one in imported
            if _insert_choice(connection, self.database, one, _compute_source_digest(one))
        ]

    @writes(lambda _labeller, chat, _choice: f"{_ORDER} {chat}")
    def replace_choice(self, connection: Connection, labeller: str, chat: str, choice: Label | None) -> None:
        """Stores this choice of a pair in place of all others that the labeller made in the chat, in one step. None
        only withdraws them."""
        # All these choices have one digest, which only one label has at a time: what is withdrawn gives it up. So
        # replicas do not leave two.
        shared = digest(["chat", labeller, chat])
        here = labels.c.source_digest == shared
        former = connection.execute(select(labels.c.body).where(here, labels.c.state == "live")).scalar()
        if former is not None and choice is not None and _parse_label(former).choice == choice.choice:
            return
        for _ in range(_TRIES):
            connection.execute(update(labels).where(here).values(state="withdrawn", source_digest=None))
            if choice is None or _insert_choice(connection, self.database, choice, shared):
                return
        raise Conflict("the choice was changed elsewhere at the same moment; choose again")

    @reads
    def list_labels(
        self, connection: Connection, environment: str | None, run: str | None, after: int, limit: int
    ) -> list[tuple[int, Label]]:
        """Live labels with their sequences, in order."""
        conditions = [labels.c.state == "live", labels.c.sequence > after]
        conditions += [] if environment is None else [labels.c.environment == environment]
        conditions += [] if run is None else [labels.c.run == run]
        page = select(labels.c.sequence, labels.c.body).where(*conditions).order_by(labels.c.sequence).limit(limit)
        return [(sequence, _parse_label(body)) for sequence, body in connection.execute(page)]

    @reads
    def list_of_group(self, connection: Connection, group_id: str, limit: int) -> list[Label]:
        """Live labels, newest first."""
        if not is_storable(group_id):
            return []
        live = select(labels.c.body).where(labels.c.group_id == group_id, labels.c.state == "live")
        newest = live.order_by(labels.c.sequence.desc()).limit(limit)
        return [_parse_label(body) for body in connection.execute(newest).scalars()]

    @reads
    def count_labels(self, connection: Connection) -> dict[str, int]:
        """By kind."""
        counted = select(labels.c.kind, func.count()).where(labels.c.state == "live").group_by(labels.c.kind)
        return {kind: count for kind, count in connection.execute(counted)}

    @reads
    def find_mark(self, connection: Connection, environment: str) -> tuple[int, int, int]:
        """Changes with every label of the environment that is stored, replaced or withdrawn, or begins to count."""
        live = func.count().filter(labels.c.state == "live")
        mark = select(func.coalesce(func.max(labels.c.sequence), 0), live).where(labels.c.environment == environment)
        newest, count = connection.execute(mark).one()
        counts = select(func.count()).where(_COUNTS, label_leases.c.environment == environment)
        return newest, count, connection.execute(counts).scalar_one()

    @reads
    def list_labelled(
        self, connection: Connection, judge: str, environments: Sequence[str], run: str | None
    ) -> list[LabelledGroupRecord]:
        """Groups with labels from the queue that a uniform draw has found and this judge has scored, in the order of
        their first labels."""
        conditions = [labels.c.kind == "queue", labels.c.state == "live", labels.c.environment.in_(environments)]
        conditions += [] if run is None else [labels.c.run == run]
        conditions += [labels.c.group_id.in_(select(label_leases.c.group_id).where(_COUNTS))]
        by_group: defaultdict[str, list[Label]] = defaultdict(list)
        for body in connection.execute(select(labels.c.body).where(*conditions).order_by(labels.c.sequence)).scalars():
            label = _parse_label(body)
            by_group[label.group_id or ""].append(label)
        records: list[LabelledGroupRecord] = []
        ids = list(by_group)
        for start in range(0, len(ids), _GROUPS_AT_ONCE):
            here = groups.c.group_id.in_(ids[start : start + _GROUPS_AT_ONCE])
            alone: dict[str, Sequence[Score]] = {}
            for scoring in load_scorings(connection, here):
                if scoring.judges == (judge,):
                    alone[scoring.group_id] = scoring.scores
            for group in load_groups(connection, here):
                record = _build_record(group, by_group[group.group_id], judge, alone.get(group.group_id))
                records += [] if record is None else [record]
        positions = {group_id: position for position, group_id in enumerate(ids)}
        return sorted(records, key=lambda one: positions[one.labels[0].group_id or ""])


def _replace_label(connection: Connection, database: Database, former: Label | None, label: Label) -> Label:
    if former is not None:
        here = labels.c.label_id == former.label_id
        connection.execute(update(labels).where(here).values(state="replaced"))
    insert_rows(connection, labels, [_build_label_row(label)])
    if label.draw is not None and label.group_id is not None:
        _end_lease(connection, database, label.group_id, label.draw, "done")
    return label


def _load_own(connection: Connection, label: Label) -> Label | None:
    here = (labels.c.group_id == label.group_id, _is_by(label.by, labels), labels.c.state == "live")
    body = connection.execute(select(labels.c.body).where(*here)).scalar()
    return None if body is None else _parse_label(body)


def _build_label_row(label: Label) -> dict[str, str | int | float | bytes | None]:
    return {
        "label_id": label.label_id,
        "kind": label.kind,
        "state": label.state,
        "labeller": label.labeller,
        "on_behalf_of": label.on_behalf_of,
        "verified": label.verified,
        "group_id": label.group_id,
        "environment": label.environment,
        "run": label.run,
        "lease_id": None if label.draw is None else label.draw.lease_id,
        "body": encode(label),
        "source_digest": None,
        "created_at": to_micros(label.created_at),
    }


def _parse_label(body: str) -> Label:
    return decode(Label, body)


def _says_the_same(former: Label, label: Label, *, merge: bool) -> bool:
    """Whether the label is the former one again, as where its reply was lost. Where it adds to the former one, its
    seconds are added already."""
    aside = {"label_id", "created_at", "saw_judge"} | ({"seconds"} if merge else set())
    return former.model_dump(exclude=aside) == label.model_dump(exclude=aside)


def _admit_lease(connection: Connection, label: Label, lease_id: str, now: int) -> QueueDraw:
    """A lease that has run out still counts if nobody else has taken the item since."""
    lease = _require_lease(connection, lease_id, label.by)
    if lease.group_id != label.group_id:
        raise Conflict("this item is another group", field="lease_id")
    late = to_micros(lease.expires_at) <= now
    if lease.state in {"skipped", "expired"} or (lease.state == "live" and late and _is_taken(connection, lease, now)):
        raise Conflict(
            "the time for this item is over and it went to somebody else; ask for the next one", field="lease_id"
        )
    return lease.draw


def _merge_labels(former: Label, label: Label) -> Label:
    """The former label with what is new of single replies."""
    replies = dict(former.replies)
    for rollout_id, new in label.replies.items():
        old = replies.get(rollout_id)
        if old is not None:
            levels = {**old.levels, **new.levels}
            new = new.model_copy(update={"levels": levels, "defect": old.defect if new.defect is None else new.defect})
        replies[rollout_id] = new
    seconds = None if label.seconds is None and former.seconds is None else (former.seconds or 0) + (label.seconds or 0)
    words = {"order": label.order or former.order, "comment": label.comment or former.comment}
    return label.model_copy(update={"replies": replies, "seconds": seconds, **words})


def _waits_for_others(connection: Connection, database: Database, label: Label) -> bool:
    """Whether somebody else holds the item or is still to label it."""
    now = database.read_lease_clock(connection)
    here = _SELECT_LEASES.where(label_leases.c.group_id == label.group_id)
    leases = [_parse_lease(row) for row in connection.execute(here).mappings()]
    held = any(one.by != label.by and one.state == "live" and to_micros(one.expires_at) > now for one in leases)
    others = [one for one in leases if one.by != label.by]
    labellers = max((one.wanted for one in leases), default=1)
    return held or sum(one.state == "done" for one in others) + 1 < labellers


def _load_live(connection: Connection, label_id: str) -> Label | None:
    here = (labels.c.label_id == label_id, labels.c.state == "live")
    body = connection.execute(select(labels.c.body).where(*here)).scalar() if is_storable(label_id) else None
    return None if body is None else _parse_label(body)


def _insert_choice(connection: Connection, database: Database, label: Label, source_digest: str) -> bool:
    """Whether no label has the digest yet."""
    row = _build_label_row(label) | {"source_digest": source_digest}
    return connection.execute(database.insert_new(labels).returning(labels.c.label_id), row).first() is not None


def _compute_source_digest(label: Label) -> str:
    """Of what was chosen in which conversation, wherever the file lies. A turn of a chat is the same one where more
    replies were offered later, as in a branch."""
    choice = label.choice
    assert choice is not None  # noqa: S101
    prompt = [[one.role, one.content] for one in choice.prompt]
    calls = [[call.function.name, call.function.arguments] for call in choice.chosen_calls]
    rejected = sorted(choice.rejected) if label.kind == "pair" else []
    return digest([label.kind, prompt, choice.chosen, rejected, *([calls] if calls else [])])


# Labels beside the scores of a judge.


def _build_record(
    group: Group, made: Sequence[Label], judge: str, alone: Sequence[Score] | None
) -> LabelledGroupRecord | None:
    """The judge's own scores where there are any, else those of the panel that it was in."""
    panels = {score.judges for score in group.scores if score.judges}
    own = panels == {(judge,)}
    if not own and alone is None and not any(judge in names for names in panels):
        return None
    scores = group.scores if own or alone is None else alone
    ids = [rollout.rollout_id for rollout in group.rollouts]
    scored = [(rollout_id, score) for rollout_id, score in zip(ids, scores, strict=True) if score.reward is not None]
    return LabelledGroupRecord(
        task_id=group.task_id,
        labels=tuple(made),
        rewards={rollout_id: score.reward for rollout_id, score in scored if score.reward is not None},
        absolutes={rollout_id: score.absolute for rollout_id, score in scored if score.absolute is not None},
        levels={
            rollout_id: {one.name: one.value for one in score.criteria if one.value is not None}
            for rollout_id, score in scored
        },
        gated=tuple(rollout_id for rollout_id, score in scored if score.gate == 0),
        capped=tuple(rollout_id for rollout_id, score in scored if score.cap is not None),
        with_others=not own and alone is None,
    )


_IS_LABELLED: Final = or_(
    exists().where(labels.c.group_id == groups.c.group_id),
    exists().where(label_leases.c.group_id == groups.c.group_id, label_leases.c.state == "live"),
)
"""Of a group, which so is not pruned: somebody said something of it, or is about to."""
keep_groups("labelled", _IS_LABELLED)
