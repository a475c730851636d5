"""Runs: what each has pinned, its limits and its activity.

A run is made by its first use, and its options never change; each environment is pinned at its first use too. Limits,
such as a budget, can be changed at any time and hold from the next write on.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel
from sqlalchemy import Connection, RowMapping, Select, func, literal_column, select, update

from app.domain.budgets import BudgetAnswer, RunLedger
from app.domain.errors import NotFound
from app.domain.groups import NO_PASS_RATES, RunActivity
from app.domain.keeping import KeepLevel, read_former_rule
from app.domain.rollups import PASS_RATE_BINS, RollupFilter
from app.domain.runs import HealthOptions, Hold, Pin, Run, RunChange, ScoringOptions
from app.domain.values import canonical_json
from app.store.budgets import load_ledger, reserve_cost, settle_hold
from app.store.database import Database, StorePart, reads, writes
from app.store.rollups import load_rollups
from app.store.statements import decode, decode_json, encode, encode_json, from_micros, is_storable, to_micros
from app.store.tables import leases, pins, runs, streams

_NO_ACTIVITY = {"handed_out": 0, "outstanding": 0, "groups": 0, "scored": 0, "unscored": 0}


class RunStore(StorePart):
    """Runs by name."""

    @reads
    def get(self, connection: Connection, name: str) -> Run | None:
        if not is_storable(name):
            return None
        return _load_runs(connection, [name]).get(name)

    @writes("runs")
    def create(self, connection: Connection, run: Run) -> Run:
        """Creates the run, or returns the existing one of this name."""
        row = {
            "name": run.name,
            "seed": run.seed,
            "strict": run.strict,
            "options": encode(run.options),
            "budget_usd": run.budget_usd,
            "max_lag": run.max_lag,
            "lag_policy": run.lag_policy,
            "health": None if run.health == HealthOptions() else encode(run.health),
            "held": None,
            "min_agreement": run.min_agreement,
            "keep": None if run.keep is None else encode_json(run.keep),
            "characters": run.characters,
            "created_at": to_micros(run.created_at),
        }
        added = connection.execute(self.database.insert_new(runs).returning(runs.c.name), row).first()
        if added is not None:
            for pin in run.pins:
                _insert_pin(connection, self.database, run.name, pin)
        return _load_runs(connection, [run.name])[run.name]

    @writes("runs")
    def pin(self, connection: Connection, name: str, pin: Pin) -> Run:
        """Adds the pin unless the run already has one for the environment."""
        if name not in _load_runs(connection, [name]):
            raise NotFound(f"there is no run {name}")
        _insert_pin(connection, self.database, name, pin)
        return _load_runs(connection, [name])[name]

    @reads
    def list(self, connection: Connection, limit: int, after: str | None) -> list[Run]:
        """Runs ordered by name, after the name `after`."""
        statement = select(runs.c.name).order_by(runs.c.name).limit(limit)
        if after is not None:
            statement = statement.where(runs.c.name > after)
        names = connection.execute(statement).scalars().all()
        by_name = _load_runs(connection, names)
        return [by_name[name] for name in names]

    @reads
    def get_activity(self, connection: Connection, name: str) -> tuple[RunActivity, ...]:
        """Activity per environment, over all purposes. `scored` and `unscored` count rollouts."""
        counts: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict(_NO_ACTIVITY))
        for statement in _build_activity_queries(name, self.database.read_lease_clock(connection)):
            for row in connection.execute(statement).mappings():
                counts[row["environment"]] |= {name: int(row[name]) for name in row if name != "environment"}
        rates: dict[str, tuple[int, ...]] = {}
        for rollup in load_rollups(connection, RollupFilter("run", run=name, purpose=None)):
            activity = counts[rollup.key.environment]
            activity |= {
                counted: activity[counted] + rollup.count(counted) for counted in ("groups", "scored", "unscored")
            }
            if rollup.key.purpose == "train":
                rates[rollup.key.environment] = tuple(
                    rollup.count(f"pass_rate:{bin_number}") for bin_number in range(PASS_RATE_BINS)
                )
        return tuple(
            RunActivity(environment=name, pass_rates=rates.get(name, NO_PASS_RATES), **counts[name])
            for name in sorted(counts)
        )

    @writes("runs")
    def change(self, connection: Connection, name: str, change: RunChange) -> Run:
        """NotFound when there is no such run, InvalidRequest for a change that does not fit what is stored by now."""
        connection.execute(select(runs.c.name).where(runs.c.name == name).with_for_update())
        if (stored := _load_runs(connection, [name]).get(name)) is not None:
            change.apply_to(stored)  # as it is now: somebody else may have changed it
        given = {field: getattr(change, field) for field in change.model_fields_set}
        values = {field: encode(one) if isinstance(one, BaseModel) else one for field, one in given.items()}
        if change.keep is not None:
            values["keep"] = encode_json(change.keep)
        return change_run(connection, name, values)

    @reads
    def get_ledger(self, connection: Connection, name: str) -> RunLedger:
        """What judging the run has cost so far, and what is reserved."""
        return load_ledger(connection, self.database, name)

    # An order for each run: those of a batch are sorted by it, so replicas lock runs in one order.
    @writes(lambda name, *_: f"runs {name}")
    def reserve_cost(
        self, connection: Connection, name: str, environment: str, group_id: str, estimate_usd: float, seconds: float
    ) -> BudgetAnswer:
        """Atomically reserves what judging this group is expected to cost, if the run's budget allows: the mean of
        the run's groups in this environment, at first the estimate. It is free again once judgements of the group are
        stored, or after `seconds`. Durable on return."""
        return reserve_cost(
            connection,
            self.database,
            run=name,
            environment=environment,
            group_id=group_id,
            estimate_usd=estimate_usd,
            seconds=seconds,
        )

    @writes("runs")
    def settle_cost(self, connection: Connection, group_id: str, usd: float) -> None:
        """What is reserved for the group is what it cost, until its judgements are stored."""
        settle_hold(connection, group_id, usd)


def change_run(connection: Connection, name: str, values: Mapping[str, str | int | float | None]) -> Run:
    """NotFound when there is no such run."""
    connection.execute(update(runs).where(runs.c.name == name).values(dict(values)))
    if (changed := _load_runs(connection, [name]).get(name)) is None:
        raise NotFound(f"there is no run {name}")
    return changed


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
            max_lag=row["max_lag"],
            lag_policy=row["lag_policy"],
            min_agreement=row["min_agreement"],
            keep=None if row["keep"] is None else decode_level(row["keep"]),
            characters=row["characters"],
            pins=tuple(pinned[row["name"]]),
            health=HealthOptions() if row["health"] is None else decode(HealthOptions, row["health"]),
            held=None if row["held"] is None else decode(Hold, row["held"]),
            created_at=from_micros(row["created_at"]),
        )
        for row in connection.execute(select(runs).where(runs.c.name.in_(names))).mappings()
    }


def _parse_pin(row: RowMapping) -> Pin:
    values = {name: row[name] for name in ("environment", "version", "scoring_digest")}
    return Pin.model_validate(values | {"parts": decode_json(row["parts"])})


def _build_activity_queries(name: str, now: int) -> tuple[Select[Any], ...]:
    """Counts by environment: of tasks handed out, and of those still held."""
    handed_out = (
        select(streams.c.environment, func.sum(streams.c.handed_out).label("handed_out"))
        .where(streams.c.run == name, streams.c.handed_out > 0)
        .group_by(streams.c.environment)
    )
    held = (
        select(leases.c.environment, func.count().label("outstanding"))
        .where(leases.c.run == name, leases.c.state == literal_column("'live'"), leases.c.expires_at > now)
        .group_by(leases.c.environment)
    )
    return handed_out, held


def decode_level(text: str) -> KeepLevel:
    """Of the column `keep`, in which runs of before have a rule by parts."""
    kept = decode_json(text)
    return read_former_rule(kept) if isinstance(kept, dict) else cast(KeepLevel, kept)
