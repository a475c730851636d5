"""The store of runs, their pins and their activity."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, case, func, literal_column, select, update

from app.domain.digests import canonical_json
from app.domain.errors import NotFound
from app.domain.groups import NO_PASS_RATES, RunActivity
from app.domain.run_costs import BudgetAnswer, RunLedger
from app.domain.runs import Pin, Run, ScoringOptions
from app.ports.store import RunStore
from app.store.database import Database
from app.store.rows import decode, decode_json, encode, filter_storable, from_micros, to_micros
from app.store.run_costs import load_ledger, reserve_cost, settle_hold
from app.store.tables import groups, leases, pins, runs, streams

_NO_ACTIVITY = {"handed_out": 0, "outstanding": 0, "groups": 0, "scored": 0, "unscored": 0}


class SqlRunStore(RunStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, name: str) -> Run | None:
        if not filter_storable([name]):
            return None
        return await self._database.read(lambda connection: _load_runs(connection, [name]).get(name))

    async def create(self, run: Run) -> Run:
        return await self._database.write(
            lambda connection: _get_or_create_run(connection, self._database, run), "runs"
        )

    async def pin(self, name: str, pin: Pin) -> Run:
        """NotFound when there is no such run."""
        return await self._database.write(lambda connection: _pin_run(connection, self._database, name, pin), "runs")

    async def list(self, limit: int, after: str | None) -> list[Run]:
        """Runs ordered by name, after the name `after`."""
        return await self._database.read(lambda connection: _list_runs(connection, limit, after))

    async def get_activity(self, name: str) -> tuple[RunActivity, ...]:
        """Activity per environment, over all purposes. `scored` and `unscored` count rollouts."""
        return await self._database.read(lambda connection: _load_activity(connection, self._database, name))

    async def set_budget(self, name: str, budget_usd: float | None) -> Run:
        return await self._database.write(lambda connection: _set(connection, name, budget_usd=budget_usd), "runs")

    async def set_min_agreement(self, name: str, min_agreement: float | None) -> Run:
        return await self._database.write(
            lambda connection: _set(connection, name, min_agreement=min_agreement), "runs"
        )

    async def get_ledger(self, name: str) -> RunLedger:
        return await self._database.read(lambda connection: load_ledger(connection, self._database, name))

    async def reserve_cost(
        self, name: str, environment: str, group_id: str, estimate_usd: float, seconds: float
    ) -> BudgetAnswer:
        return await self._database.write(
            lambda connection: reserve_cost(
                connection,
                self._database,
                run=name,
                environment=environment,
                group_id=group_id,
                estimate_usd=estimate_usd,
                seconds=seconds,
            ),
            "runs",
        )

    async def settle_cost(self, group_id: str, usd: float) -> None:
        await self._database.write(lambda connection: settle_hold(connection, group_id, usd), "runs")


def _set(connection: Connection, name: str, **values: float | None) -> Run:
    connection.execute(update(runs).where(runs.c.name == name).values(values))
    if (found := _load_runs(connection, [name]).get(name)) is None:
        raise NotFound(f"there is no run {name}")
    return found


def _get_or_create_run(connection: Connection, database: Database, run: Run) -> Run:
    row = {
        "name": run.name,
        "seed": run.seed,
        "strict": run.strict,
        "options": encode(run.options),
        "budget_usd": run.budget_usd,
        "min_agreement": run.min_agreement,
        "created_at": to_micros(run.created_at),
    }
    added = connection.execute(database.insert_new(runs).returning(runs.c.name), row).first()
    if added is not None:
        for pin in run.pins:
            _insert_pin(connection, database, run.name, pin)
    return _load_runs(connection, [run.name])[run.name]


def _pin_run(connection: Connection, database: Database, name: str, pin: Pin) -> Run:
    if name not in _load_runs(connection, [name]):
        raise NotFound(f"there is no run {name}")
    _insert_pin(connection, database, name, pin)
    return _load_runs(connection, [name])[name]


def _insert_pin(connection: Connection, database: Database, name: str, pin: Pin) -> None:
    row = {
        "run": name,
        "environment": pin.environment,
        "version": pin.version,
        "scoring_digest": pin.scoring_digest,
        "parts": canonical_json(dict(pin.parts)),
        "created_at": database.read_clock(),
    }
    connection.execute(database.insert_new(pins), row)


def _list_runs(connection: Connection, limit: int, after: str | None) -> list[Run]:
    statement = select(runs.c.name).order_by(runs.c.name).limit(limit)
    if after is not None:
        statement = statement.where(runs.c.name > after)
    names = connection.execute(statement).scalars().all()
    found = _load_runs(connection, names)
    return [found[name] for name in names]


def _load_runs(connection: Connection, names: Sequence[str]) -> dict[str, Run]:
    pinned: defaultdict[str, list[Pin]] = defaultdict(list)
    ordered = select(pins).where(pins.c.run.in_(names)).order_by(pins.c.created_at, pins.c.environment)
    for row in connection.execute(ordered).mappings():
        pinned[row["run"]].append(_parse_pin(row))
    return {
        row["name"]: Run(
            name=row["name"],
            seed=row["seed"],
            strict=row["strict"],
            options=decode(ScoringOptions, row["options"]),
            budget_usd=row["budget_usd"],
            min_agreement=row["min_agreement"],
            pins=tuple(pinned[row["name"]]),
            created_at=from_micros(row["created_at"]),
        )
        for row in connection.execute(select(runs).where(runs.c.name.in_(names))).mappings()
    }


def _parse_pin(row: RowMapping) -> Pin:
    values = {name: row[name] for name in ("environment", "version", "scoring_digest")}
    return Pin.model_validate(values | {"parts": decode_json(row["parts"])})


def _load_activity(connection: Connection, database: Database, name: str) -> tuple[RunActivity, ...]:
    rates = _load_pass_rates(connection, name)
    counts: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict(_NO_ACTIVITY))
    for statement in _build_activity_queries(name, database.read_lease_clock(connection)):
        for row in connection.execute(statement).mappings():
            counts[row["environment"]] |= {name: int(row[name]) for name in row if name != "environment"}
    return tuple(
        RunActivity(environment=name, pass_rates=rates.get(name, NO_PASS_RATES), **counts[name])
        for name in sorted(counts)
    )


def _build_activity_queries(name: str, now: int) -> tuple[Select[Any], ...]:
    """Counts by environment: of tasks handed out, of those still held, of groups."""
    given = (
        select(streams.c.environment, func.sum(streams.c.handed_out).label("handed_out"))
        .where(streams.c.run == name, streams.c.handed_out > 0)
        .group_by(streams.c.environment)
    )
    held = (
        select(leases.c.environment, func.count().label("outstanding"))
        .where(leases.c.run == name, leases.c.state == literal_column("'live'"), leases.c.expires_at > now)
        .group_by(leases.c.environment)
    )
    done = (
        select(
            groups.c.environment,
            func.count().label("groups"),
            func.sum(groups.c.scored).label("scored"),
            func.sum(groups.c.unscored).label("unscored"),
        )
        .where(groups.c.run == name)
        .group_by(groups.c.environment)
    )
    return given, held, done


def _load_pass_rates(connection: Connection, name: str) -> dict[str, tuple[int, ...]]:
    """Histograms of task pass rates in ten bins, by environment."""
    rate = func.sum(groups.c.absolute_sum) / func.sum(groups.c.absolute_count)
    tried = (
        select(groups.c.environment, groups.c.task_id, rate.label("rate"))
        .where(groups.c.run == name, groups.c.purpose == "train", groups.c.absolute_count > 0)
        .group_by(groups.c.environment, groups.c.task_id)
        .subquery()
    )
    tenths = [tried.c.rate >= place / 10 for place in range(10)]
    at_least = [func.sum(case((reached, 1), else_=0)) for reached in tenths]
    statement = select(tried.c.environment, *at_least).group_by(tried.c.environment)
    return {
        environment: tuple(this - above for this, above in pairwise([*counts, 0]))
        for environment, *counts in connection.execute(statement)
    }
