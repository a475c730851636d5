"""What a run's curves are broken down by: which series are read for it, and the groups behind each curve.

Statistics have a series for each breakdown but scenes, of which there are too many: their groups are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from app.domain.access import KeyBounds
from app.domain.groups import GroupFilter
from app.domain.rollups import Rollup, RollupFilter, RollupKey, Series
from app.http.viewer.group_filters import clean_word
from app.http.viewer.run_curves import SeriesSource
from app.ports.views import GroupViews

Breakdown = Literal["environment", "label", "scene", "dataset", "judge"]
_SERIES: Final[Mapping[Breakdown | None, Series]] = {
    None: "step",
    "environment": "step",
    "label": "label",
    "dataset": "dataset",
    "judge": "judge",
}
"""Scenes have none: they are too many."""
BREAKDOWNS: Final[tuple[Breakdown, ...]] = get_args(Breakdown)
MOST_SCENES: Final = 50
"""That are offered to choose from."""
GROUPS_READ: Final = 400
"""For all curves by scene together."""
_FILTERED: Final = frozenset(("environment", "label", "scene", "judge"))
"""By what lists of groups are filtered too."""


@dataclass(frozen=True)
class LegendEntry:
    """`words` filter the list of its groups. `groups` were read for the curve: of a scene that is `sampled` there are
    more. Steps are null where none of the groups has one."""

    name: str
    words: Mapping[str, str]
    groups: int
    sampled: bool
    first_step: int | None
    last_step: int | None


@dataclass(frozen=True)
class CurveChoice:
    """What somebody asks to see. `by` is None for one curve. `label` and `scenes` are of curves by scene alone."""

    others: tuple[str, ...]
    environment: str | None
    by: Breakdown | None
    chart: str
    label: str | None = None
    scenes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedSeries:
    """Rollups of a run by what it is broken down by. Of the scenes that are `sampled` not all groups were read."""

    run: str
    rollups: Sequence[Rollup]
    sampled: tuple[str, ...] = ()


def _parse_breakdown(text: str) -> Breakdown | None:
    return next((known for known in BREAKDOWNS if known == text), None)


def read_choice(
    others: tuple[str, ...],
    environment: str,
    by: str,
    chart: str,
    label: str,
    scenes: Sequence[str],
) -> CurveChoice:
    known, narrowed = _parse_breakdown(by), clean_word(environment)
    if known != "scene":
        return CurveChoice(others, narrowed, known, chart)
    named = dict.fromkeys(word for each in scenes if (word := clean_word(each)) is not None)
    return CurveChoice(others, narrowed, known, chart, clean_word(label), tuple(named))


async def load_rollups(views: GroupViews, where: RollupFilter, bounds: KeyBounds) -> list[Rollup]:
    found = await views.list_rollups(where)
    return [rollup for rollup in found if bounds.allows_group(rollup.key.run, rollup.key.environment)]


async def find_scenes(views: GroupViews, run: str, choice: CurveChoice, bounds: KeyBounds) -> tuple[str, ...]:
    """Those of its newest groups, where somebody asks by scene."""
    if choice.by != "scene" or not bounds.allows_run(run):
        return ()
    where = GroupFilter(run=run, environment=choice.environment, environments=bounds.environments, label=choice.label)
    return tuple(await views.find_scenes(where, MOST_SCENES))


async def load_series(
    views: GroupViews, run: str, choice: CurveChoice, scenes: Sequence[str], bounds: KeyBounds
) -> LoadedSeries:
    if choice.by != "scene":
        kept = RollupFilter(_SERIES[choice.by], choice.environment, run)
        return LoadedSeries(run, await load_rollups(views, kept, bounds))
    most = GROUPS_READ // (1 + len(choice.others))
    where = GroupFilter(run=run, environment=choice.environment, label=choice.label, limit=most)
    sums = await views.sum_scenes(where, scenes)
    allowed = [one for one in sums.rollups if bounds.allows_group(one.key.run, one.key.environment)]
    return LoadedSeries(run, allowed, sums.sampled)


def split_series(loaded: LoadedSeries, choice: CurveChoice) -> list[SeriesSource]:
    run = loaded.run
    if choice.by is None:
        return [SeriesSource(run, loaded.rollups)]
    split: dict[str, list[Rollup]] = {}
    for rollup in loaded.rollups:
        name = rollup.key.environment if choice.by == "environment" else rollup.key.label or ""
        split.setdefault(name, []).append(rollup)
    return [SeriesSource(f"{run}: {name}" if choice.others else name, some) for name, some in sorted(split.items())]


def list_entries(
    sources: Sequence[SeriesSource],
    by: Breakdown | None,
    narrowed: Mapping[str, str | None],
    sampled: Sequence[tuple[str | None, str]] = (),
) -> Iterator[LegendEntry]:
    """In the order of the curves. `narrowed` is by what all of them are, `sampled` are runs and scenes."""
    for source in sources:
        key = source.rollups[0].key if source.rollups else RollupKey("step", "", None, "train")
        steps = [rollup.key.step for rollup in source.rollups if rollup.key.step is not None]
        yield LegendEntry(
            name=source.name,
            words=_write_filter(key, by, narrowed),
            groups=sum(rollup.count("groups") for rollup in source.rollups),
            sampled=by == "scene" and (key.run, key.label) in sampled,
            first_step=min(steps, default=None),
            last_step=max(steps, default=None),
        )


def _write_filter(key: RollupKey, by: Breakdown | None, narrowed: Mapping[str, str | None]) -> dict[str, str]:
    """Nothing for what no list is filtered by."""
    named = key.environment if by == "environment" else key.label
    if by is not None and (by not in _FILTERED or not named):
        return {}
    told = {**narrowed, "run": key.run, "purpose": key.purpose, by or "": named}
    return {name: value for name, value in told.items() if name and value}
