"""The series of run health, read from rollups."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Final

from sqlalchemy import Connection, Row, func, select

from app.domain.change_detection import Cell
from app.domain.health_records import HealthReading, HealthState
from app.domain.rollups import GROUPS_PER_BUCKET, Rollup, RollupKey
from app.domain.run_health import LOGARITHMIC, SeriesCells, TrendName
from app.store.health_tables import health_readings
from app.store.rollup_tables import rollups
from app.store.rows import decode, decode_json
from app.store.tables import groups, pins

BUCKETS_AT_ONCE: Final = 20_000
SHADOWS_READ: Final = 1_200
"""Newest readings of the shadow judge: a window of buckets has no more groups."""
MEASURED_BUCKETS: Final = 8_192
"""Kept parsed, since each look at a run's health needs all of its window, and few of them change."""
_MEANS: Final[dict[TrendName, str]] = {
    "length": "length",
    "absolute": "absolute",
    "escalated": "readings",
    "calibration": "calibration_gap",
}
_SHARES: Final[dict[TrendName, tuple[str, str]]] = {
    "gated": ("gated", "scored"),
    "capped": ("capped", "scored"),
    "saturated": ("saturated", "scored"),
    "duplicates": ("duplicates", "rollouts"),
    "low_signal": ("low_signal", "groups"),
}
_UNFLAGGED: Final = frozenset(("flag:low_signal", "flag:offline_judge"))
"""Flags that say something about a group or a setting, not about a reply."""


def load_bucket_totals(connection: Connection, run: str, first: int) -> list[tuple[int, int]]:
    """How many training groups of the run each of the store's buckets has, for those that will get no more groups."""
    newest = connection.execute(select(func.max(groups.c.sequence))).scalar() or 0
    last = newest // GROUPS_PER_BUCKET - 1
    totals: defaultdict[int, int] = defaultdict(int)
    for row in _load_rows(connection, run, first, last, BUCKETS_AT_ONCE):
        totals[row.bucket] += _parse_measures(row.measures).groups
    return sorted(totals.items())


def _load_rows(
    connection: Connection, run: str, first: int, last: int, limit: int | None = None
) -> Sequence[Row[str, str | None, int, str]]:
    table = rollups.c
    environments = select(pins.c.environment).where(pins.c.run == run)
    chosen = (
        select(table.environment, table.label, table.bucket, table.measures)
        .where(table.series == "bucket", table.run == run, table.environment.in_(environments))
        .where(table.bucket >= first, table.bucket <= last, table.purpose == "train")
        .order_by(table.bucket)
        .limit(limit)
    )
    return connection.execute(chosen).all()


def load_cells(connection: Connection, run: str, state: HealthState) -> SeriesCells:
    """Of the full buckets that the state still has, a stratum for each environment and label."""
    cells: defaultdict[TrendName, list[Cell]] = defaultdict(list)
    first, last = state.marks[0].first, state.marks[-1].first - 1
    for row in _load_rows(connection, run, first, last):
        measured, bucket = _parse_measures(row.measures), state.place_bucket(row.bucket)
        stratum = f"{row.environment} {row.label}"
        for name, value in measured.values:
            cells[name].append(Cell(bucket, stratum, measured.groups, measured.groups * value))
    cells["shadow_distance"] = _load_shadow_cells(connection, run, state)
    return cells


@dataclass(frozen=True)
class _MeasuredBucket:
    groups: int
    values: tuple[tuple[TrendName, float], ...]


@lru_cache(maxsize=MEASURED_BUCKETS)
def _parse_measures(text: str) -> _MeasuredBucket:
    measures = decode_json(text)
    key = RollupKey("bucket", "", None, "train", None, None, 0)
    rollup = Rollup(key, measures if isinstance(measures, dict) else {})  # type: ignore[arg-type]  # as it was written
    return _MeasuredBucket(rollup.count("groups"), tuple(_measure(rollup).items()))


def _measure(rollup: Rollup) -> dict[TrendName, float]:
    found: dict[TrendName, float | None] = {name: rollup.mean(measure) for name, measure in _MEANS.items()}
    found |= {name: rollup.share(*of) for name, of in _SHARES.items()}
    if rollouts := rollup.count("rollouts"):
        flags = [flag for flag in rollup.list_names("flag:") if flag not in _UNFLAGGED]
        found["flagged"] = sum(rollup.count(flag) for flag in flags) / rollouts
    return {
        name: math.log(max(value, 1e-9)) if name in LOGARITHMIC else value
        for name, value in found.items()
        if value is not None and (value > 0 or name not in LOGARITHMIC)
    }


@lru_cache(maxsize=8_192)
def parse_reading(body: str) -> HealthReading:
    """Kept, since readings never change and each look at a run's health needs hundreds."""
    return decode(HealthReading, body)


def _load_shadow_cells(connection: Connection, run: str, state: HealthState) -> list[Cell]:
    table = health_readings.c
    since = state.marks[0].groups
    mine = select(table.body).where(table.run == run, table.kind == "shadow")
    newest = connection.execute(mine.order_by(table.sequence.desc()).limit(SHADOWS_READ)).scalars()
    readings = [parse_reading(body) for body in newest][::-1]
    cells = (
        Cell(bucket, f"{reading.environment} {reading.label}", 1, reading.distance)
        for reading in readings
        if reading.distance is not None
        and reading.at_group >= since
        and (bucket := state.find_bucket(reading.at_group)) <= state.newest
    )
    return sorted(cells, key=attrgetter("bucket"))  # a shadow judge may answer out of turn
