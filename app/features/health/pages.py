"""What run health shows on the page of a run: alarms, figures and versions of judges."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.domain.runs import Alarm, SeriesName
from app.features.health.series import SAID, format_change, format_level
from app.features.health.service import RunHealthService
from app.http.viewer.rendering import RunMark, RunSection
from app.http.viewer.sentences import tell_alarm

_CURVES: Final[Mapping[SeriesName, tuple[str, ...]]] = {
    "leniency": ("calibrated",),
    "flagged": ("reward",),
    "shadow_distance": ("reward",),
    "absolute": ("absolute",),
    "gated": ("gated",),
    "length": ("length",),
    "low_signal": ("low_signal",),
    "escalated": ("readings",),
    "capped": ("capped",),
    "saturated": ("saturated",),
    "duplicates": ("duplicates",),
    "calibration": ("gap",),
    "beginning": ("reward",),
}
"""The curves into which alarms of a series are drawn."""


async def show_health(watch: RunHealthService, run: str) -> RunSection:
    health = await watch.get_health(run)
    signs = _number_alarms(health.alarms)
    return RunSection(
        values={
            "health": health,
            "signs": signs,
            "standing": {alarm.series: alarm for alarm in reversed(health.alarms) if alarm.released_at is None},
            "measured": [each for each in health.figures if each.value is not None or each.alarmed],
            "unmeasured": [each for each in health.figures if each.value is None and not each.alarmed],
            "changes": {alarm.alarm_id: tell_alarm(alarm) for alarm in health.alarms},
            "said": SAID,
            "level": format_level,
            "change": format_change,
        },
        data={"health": health},
        top="run_alarms.html",
        below="run_figures.html",
        pins="run_judges.html",
        marks=_mark_alarms(health.alarms, signs),
    )


def _number_alarms(alarms: Sequence[Alarm]) -> dict[str, str]:
    """Oldest first, so that an alarm keeps its sign."""
    return {alarm.alarm_id: f"A{number}" for number, alarm in enumerate(reversed(alarms), 1)}


def _mark_alarms(alarms: Sequence[Alarm], signs: Mapping[str, str]) -> tuple[RunMark, ...]:
    return tuple(
        RunMark(
            sign=signs[alarm.alarm_id],
            label=f"{signs[alarm.alarm_id]}: {tell_alarm(alarm)}",
            since_group=alarm.since_group,
            noticed_group=alarm.noticed_group,
            curves=_CURVES.get(alarm.series, ()),
        )
        for alarm in alarms
    )
