"""What is drawn into the curves of a run: alarms of its health, and where its scoring changed."""

from collections.abc import Iterator, Mapping, Sequence

from app.domain.rollups import Rollup
from app.domain.run_health import Alarm
from app.http.viewer.run_curves import CurveRule
from app.toolkit.charts import ChartMark


def count_up_groups(rollups: Sequence[Rollup]) -> list[tuple[int, int]]:
    """Each step with how many groups the run had after it, as if steps followed each other."""
    counts: dict[int, int] = {}
    for rollup in rollups:
        if rollup.key.step is not None:
            counts[rollup.key.step] = counts.get(rollup.key.step, 0) + rollup.count("groups")
    total, found = 0, list[tuple[int, int]]()
    for step in sorted(counts):
        total += counts[step]
        found.append((step, total))
    return found


def _find_step(steps: Sequence[tuple[int, int]], group: int) -> int | None:
    """The step in which the run had so many groups."""
    return next((step for step, total in steps if total >= group), steps[-1][0] if steps else None)


def number_alarms(alarms: Sequence[Alarm]) -> dict[str, str]:
    """Oldest first, so that an alarm keeps its sign."""
    return {alarm.alarm_id: f"A{number}" for number, alarm in enumerate(reversed(alarms), 1)}


def place_alarms(
    rules: Sequence[CurveRule], alarms: Sequence[Alarm], steps: Sequence[tuple[int, int]]
) -> Mapping[str, Sequence[ChartMark]]:
    """By the name of a curve. What none of them is about stands in the first one."""
    placed: dict[str, list[ChartMark]] = {}
    signs = number_alarms(alarms)
    for alarm in alarms:
        begin, end = _find_step(steps, alarm.since_group), _find_step(steps, alarm.noticed_group)
        names = [rule.name for rule in rules if alarm.series in rule.alarms] or [rule.name for rule in rules[:1]]
        if begin is None or end is None or not names:
            continue
        label = f"{signs[alarm.alarm_id]}: {alarm.evidence}"
        placed.setdefault(names[0], []).append(ChartMark(begin, label, signs[alarm.alarm_id], "alarm", end))
    return placed


def list_changes(rollups: Sequence[Rollup]) -> Iterator[ChartMark]:
    """Where groups begin, and end, to be scored by another rule than the one that the run pinned."""
    flagged: dict[int, bool] = {}
    for rollup in rollups:
        if rollup.key.step is not None:
            changed = rollup.count("group_flag:scoring_changed") > 0
            flagged[rollup.key.step] = flagged.get(rollup.key.step, False) or changed
    before = False
    for step in sorted(flagged):
        if flagged[step] != before:
            what = "scored by another rule than the pinned one" if flagged[step] else "scored by the pinned rule again"
            yield ChartMark(step, f"From step {step}: {what}", "≠" if flagged[step] else "=")
        before = flagged[step]
