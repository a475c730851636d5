"""The queue that asks people for labels: who holds which item until when."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    and_,
    func,
    literal_column,
    or_,
    select,
    union,
    update,
)

from app.domain.errors import Conflict, NotFound
from app.domain.labels import Arm, ArmCounts, ItemCandidate, LabelLease, QueueStratum
from app.ports.labelling import LabelQueue
from app.store.database import Database
from app.store.inserts import insert_rows
from app.store.label_rows import draw_sequences, load_candidates, parse_lease
from app.store.label_tables import label_leases, labels
from app.store.reduced_parts import has_text
from app.store.rollup_tables import rollups
from app.store.rows import encode, filter_storable, is_storable
from app.store.tables import groups

_ORDER = "labels"


class SqlLabelQueue(LabelQueue):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_strata(self, environments: Sequence[str], run: str | None, labeller: str) -> list[QueueStratum]:
        def load(connection: Connection) -> list[QueueStratum]:
            now = self._database.read_lease_clock(connection)
            return _load_strata(connection, environments, run, labeller, now)

        return await self._database.read(load)

    async def draw_candidates(self, stratum: QueueStratum, labeller: str, most: int) -> list[ItemCandidate]:
        def load(connection: Connection) -> list[ItemCandidate]:
            taken = _select_taken(labeller, self._database.read_lease_clock(connection))
            scored = and_(*_match_stratum(stratum))
            wanted = and_(scored, groups.c.group_id.not_in(select(taken.c.group_id)))
            return load_candidates(connection, draw_sequences(connection, stratum, scored, wanted, most))

        return await self._database.read(load)

    async def find_held(self, labeller: str, environments: Sequence[str], run: str | None) -> LabelLease | None:
        def load(connection: Connection) -> LabelLease | None:
            now = self._database.read_lease_clock(connection)
            held = (label_leases.c.labeller == labeller, is_live(now), *_match_leases(environments, run))
            return _load_lease(connection, select(label_leases).where(*held))

        return await self._database.read(load)

    async def find_awaiting_second(
        self, labeller: str, environments: Sequence[str], run: str | None
    ) -> LabelLease | None:
        def load(connection: Connection) -> LabelLease | None:
            now = self._database.read_lease_clock(connection)
            return _load_lease(connection, _select_awaiting(labeller, now, environments, run))

        return await self._database.read(load)

    async def claim(self, lease: LabelLease, seconds: float) -> LabelLease | None:
        return await self._database.write(
            lambda connection: _claim_item(connection, self._database, lease, seconds), _ORDER
        )

    async def renew(self, lease: LabelLease, seconds: float) -> LabelLease | None:
        def write(connection: Connection) -> LabelLease | None:
            lock_group(connection, lease.group_id)
            now = self._database.read_lease_clock(connection)
            here = label_leases.c.lease_id == lease.lease_id
            renewed = update(label_leases).where(here, is_live(now)).values(expires_at=now + round(seconds * 1e6))
            held = connection.execute(renewed).rowcount > 0
            return require_lease(connection, lease.lease_id) if held else None

        return await self._database.write(write, _ORDER)

    async def find_lease(self, lease_id: str) -> LabelLease | None:
        if not is_storable(lease_id):
            return None
        wanted = select(label_leases).where(label_leases.c.lease_id == lease_id)
        return await self._database.read(lambda connection: _load_lease(connection, wanted))

    async def skip(self, lease_id: str, labeller: str) -> LabelLease:
        def write(connection: Connection) -> LabelLease:
            lease = require_lease(connection, lease_id, labeller)
            if lease.state not in {"live", "skipped"}:
                raise Conflict(f"the item is {lease.state} and cannot be skipped", field="lease_id")
            set_lease_state(connection, lease_id, "skipped")
            return lease.model_copy(update={"state": "skipped"})

        return await self._database.write(write, _ORDER)

    async def count_arms(self, environments: Sequence[str], run: str | None) -> dict[Arm, ArmCounts]:
        counted = (
            select(
                label_leases.c.arm,
                func.count().filter(label_leases.c.state == "done").label("labelled"),
                func.count().filter(label_leases.c.state == "skipped").label("skipped"),
            )
            .where(*_match_leases(environments, run))
            .group_by(label_leases.c.arm)
        )

        def load(connection: Connection) -> dict[Arm, ArmCounts]:
            return {
                arm: ArmCounts(labelled=labelled, skipped=skipped)
                for arm, labelled, skipped in connection.execute(counted)
            }

        return await self._database.read(load)


def is_live(now: int) -> ColumnElement[bool]:
    return and_(label_leases.c.state == "live", label_leases.c.expires_at > now)


def _match_leases(environments: Sequence[str], run: str | None) -> list[ColumnElement[bool]]:
    return [
        label_leases.c.environment.in_(environments),
        *([] if run is None else [label_leases.c.run == run]),
    ]


def _match_stratum(stratum: QueueStratum) -> list[ColumnElement[bool]]:
    return [
        groups.c.environment == stratum.environment,
        groups.c.run.is_(None) if stratum.run is None else groups.c.run == stratum.run,
        groups.c.outcome == "scored",
        has_text(),
    ]


def _select_taken(labeller: str, now: int) -> Subquery:
    """The groups that the queue must not give to this labeller as new ones."""
    mine = and_(label_leases.c.labeller == labeller, label_leases.c.state == "skipped")
    return union(
        select(labels.c.group_id, labels.c.environment, labels.c.run).where(
            labels.c.state == "live",
            labels.c.group_id.is_not(None),
            or_(labels.c.kind == "queue", labels.c.labeller == labeller),
        ),
        select(label_leases.c.group_id, label_leases.c.environment, label_leases.c.run).where(or_(is_live(now), mine)),
    ).subquery()


def _load_strata(
    connection: Connection, environments: Sequence[str], run: str | None, labeller: str, now: int
) -> list[QueueStratum]:
    populations = _count_scored(connection, environments, run)
    taken = _select_taken(labeller, now)
    gone: defaultdict[tuple[str, str | None], int] = defaultdict(int)
    for environment, name, count in connection.execute(
        select(taken.c.environment, taken.c.run, func.count()).group_by(taken.c.environment, taken.c.run)
    ):
        gone[environment, name] = count
    drawn = _count_draws(connection, now)
    return [
        QueueStratum(
            environment=environment,
            run=name,
            population=count,
            left=max(0, count - gone[environment, name]),
            drawn=drawn[environment, name],
        )
        for (environment, name), count in sorted(populations.items(), key=lambda one: (one[0][0], one[0][1] or ""))
    ]


def _count_scored(
    connection: Connection, environments: Sequence[str], run: str | None
) -> Counter[tuple[str, str | None]]:
    """Scored groups by environment and run: what rollups count and what they do not count yet, without the few that
    are not scored. To count them one by one takes long in a large store."""
    found: Counter[tuple[str, str | None]] = Counter()
    of_runs, alone = (rollups.c.series == "run", and_(rollups.c.series == "step", rollups.c.run.is_(None)))
    counted = select(rollups.c.environment, rollups.c.run, rollups.c.measures).where(
        rollups.c.environment.in_(environments), or_(of_runs, alone) if run is None else of_runs
    )
    for environment, name, measures in connection.execute(
        counted if run is None else counted.where(rollups.c.run == run)
    ):
        found[environment, name] += json.loads(measures).get("groups", 0)
    # As an expression, or SQLite reads all groups by their environment instead of the index of the few.
    key = (func.coalesce(groups.c.environment, literal_column("''")), groups.c.run)
    for missing, sign in (
        (groups.c.counted == literal_column("0"), 1),
        (groups.c.outcome != literal_column("'scored'"), -1),
    ):
        for environment, name, count in connection.execute(select(*key, func.count()).where(missing).group_by(*key)):
            if environment in environments and run in (None, name):
                found[environment, name] += sign * count
    return +found


def _count_draws(connection: Connection, now: int) -> defaultdict[tuple[str, str | None], dict[Arm, int]]:
    key = (label_leases.c.environment, label_leases.c.run, label_leases.c.arm)
    counted = select(*key, func.count()).where(
        label_leases.c.second.is_(False), or_(label_leases.c.state == "done", is_live(now))
    )
    drawn: defaultdict[tuple[str, str | None], dict[Arm, int]] = defaultdict(dict)
    for environment, name, arm, count in connection.execute(counted.group_by(*key)):
        drawn[environment, name][arm] = count
    return drawn


def _select_awaiting(labeller: str, now: int, environments: Sequence[str], run: str | None) -> Select[Any]:
    """Leases of items with one label that wait for another person's."""
    other = label_leases.alias()
    busy = or_(
        other.c.state == "done",
        and_(other.c.state == "live", other.c.expires_at > now),
        and_(other.c.state == "skipped", other.c.labeller == labeller),
    )
    seconds = select(other.c.group_id).where(other.c.second.is_(True), busy)
    mine = select(labels.c.group_id).where(labels.c.labeller == labeller, labels.c.group_id.is_not(None))
    return select(label_leases).where(
        label_leases.c.wanted > 1,
        label_leases.c.second.is_(False),
        label_leases.c.state == "done",
        label_leases.c.labeller != labeller,
        label_leases.c.group_id.not_in(seconds),
        label_leases.c.group_id.not_in(mine),
        *_match_leases(environments, run),
    )


def _load_lease(connection: Connection, statement: Select[Any]) -> LabelLease | None:
    row = connection.execute(statement.order_by(label_leases.c.sequence).limit(1)).mappings().first()
    return None if row is None else parse_lease(row)


def require_lease(connection: Connection, lease_id: str, labeller: str | None = None) -> LabelLease:
    found = None
    if filter_storable([lease_id]):
        wanted = select(label_leases).where(label_leases.c.lease_id == lease_id).with_for_update()
        row = connection.execute(wanted).mappings().first()
        found = None if row is None else parse_lease(row)
    if found is None:
        raise NotFound(f"there is no item {lease_id!r}", field="lease_id")
    if labeller is not None and found.labeller != labeller:
        raise Conflict("somebody else holds this item", field="lease_id")
    return found


def set_lease_state(connection: Connection, lease_id: str, state: str) -> None:
    connection.execute(update(label_leases).where(label_leases.c.lease_id == lease_id).values(state=state))


def lock_group(connection: Connection, group_id: str) -> None:
    """Replicas that want the same item take turns."""
    connection.execute(select(groups.c.sequence).where(groups.c.group_id == group_id).with_for_update()).all()


def _is_reduced(connection: Connection, group_id: str) -> bool:
    return (
        connection.execute(select(groups.c.sequence).where(groups.c.group_id == group_id, ~has_text())).first()
        is not None
    )


def is_taken(connection: Connection, lease: LabelLease, now: int) -> bool:
    """Whether the item is held or labelled by others since it was chosen."""
    here = label_leases.c.group_id == lease.group_id
    others = [here, label_leases.c.lease_id != lease.lease_id, label_leases.c.second.is_(lease.draw.second)]
    held = select(label_leases.c.lease_id).where(*others, or_(is_live(now), label_leases.c.state == "done"))
    mine = select(labels.c.label_id).where(
        labels.c.group_id == lease.group_id, labels.c.labeller == lease.labeller, labels.c.state == "live"
    )
    return connection.execute(held).first() is not None or connection.execute(mine).first() is not None


def _claim_item(connection: Connection, database: Database, lease: LabelLease, seconds: float) -> LabelLease | None:
    lock_group(connection, lease.group_id)
    now = database.read_lease_clock(connection)
    if is_taken(connection, lease, now) or _is_reduced(connection, lease.group_id):
        return None
    stale = and_(label_leases.c.group_id == lease.group_id, label_leases.c.state == "live")
    connection.execute(update(label_leases).where(stale, label_leases.c.expires_at <= now).values(state="expired"))
    row = {name: getattr(lease, name) for name in ("lease_id", "labeller", "group_id", "environment", "run", "wanted")}
    row |= {"arm": lease.draw.arm, "second": lease.draw.second, "draw": encode(lease.draw), "state": "live"}
    row |= {"expires_at": now + round(seconds * 1e6), "created_at": now}
    insert_rows(connection, label_leases, [row])
    return require_lease(connection, lease.lease_id)
