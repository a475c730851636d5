"""`atropos-envs runs log`: a run's curves in W&B, TensorBoard, or whatever a class of one's own writes to.

The figures are those of `GET /stats`, and the truth about what a logger has is what it holds: it is read first, and
compared with the gateway's figures each time. So nothing is kept beside it, a killed command starts again where the
logger's own files end, and doing it twice does nothing.
"""

import asyncio
import math
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from app.cli.curve_logs import CurveLog, WandbChoice, open_log
from app.cli.runs import ShownRun
from app.domain.groups import FlagCount, StatisticsRow
from app.domain.runs import Alarm
from app.domain.values import Frozen, digest
from app.http.viewer.sentences import tell_alarm
from app.terminal import ADVANCED
from app.terminal.client import (
    ApiKey,
    GatewayClient,
    Retrier,
    Url,
    open_gateway,
    stop_on_signals,
)
from app.terminal.completion import RunArgument
from app.terminal.consoles import (
    RESUME,
    AsJson,
    Standing,
    errors,
    print_json,
    show_progress,
    stop_on_errors,
    stop_to_resume,
)
from app.terminal.files import hold_file
from app.toolkit.texts import escape_invisible

ResultT = TypeVar("ResultT")

# Figures of a step, by the names that loggers take.

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_]")
_LONGEST_PART: Final = 64


def clean_part(text: str) -> str:
    """One part of a metric's name. A text that loses more than hyphens gets a digest, so that two stay two."""
    plain = text.replace("-", "_")
    safe = _ILLEGAL.sub("_", plain)
    if safe == plain and 0 < len(safe) <= _LONGEST_PART:
        return safe
    return f"{safe[: _LONGEST_PART - 9]}_{digest([text])[:8]}"


def list_figures(row: StatisticsRow) -> Iterator[tuple[str, float | None]]:
    """Means and shares of what always has a name."""
    rollouts = row.scored + row.unscored
    yield "groups", row.groups
    yield "reward", row.mean_reward
    yield "reward_std", row.mean_std
    yield "absolute", row.mean_absolute
    yield "calibrated", row.mean_calibrated
    yield "length", row.mean_length
    yield "lag", row.mean_lag
    yield "judge_calls", row.mean_judge_calls
    yield "judge_usd", row.mean_judge_usd
    yield "low_signal", _share(row.low_signal, row.groups)
    yield "stale", _share(row.stale, row.groups)
    yield "unscored", _share(row.unscored, rollouts)
    yield "gated", _share(row.gated, row.scored)


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


@dataclass(frozen=True)
class CurvePoint:
    step: int
    values: Mapping[str, float]


@dataclass
class PointBuilder:
    """Names that were met so far. Steps are built in order: a flag has a 0 at each step after the first that has it."""

    _flags: defaultdict[tuple[str, str], dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """By place and prefix."""
    _owners: dict[str, str] = field(default_factory=dict)
    """By clean name the text that it stands for."""

    def build(self, rows: Iterable[StatisticsRow]) -> list[CurvePoint]:
        values: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for row in sorted((row for row in rows if row.step is not None), key=lambda row: row.step or 0):
            values[row.step or 0].update(self._list_values(row))
        return [CurvePoint(step, values[step]) for step in sorted(values)]

    def _list_values(self, row: StatisticsRow) -> Iterator[tuple[str, float]]:
        place = self._name("env", row.environment)
        if row.dataset is not None:
            place = self._name(f"{place}/dataset", row.dataset)
        elif row.label is not None:
            place = self._name(place, row.label)
        for name, value in list_figures(row):
            if value is not None:
                yield f"{place}/{name}", value
        for criterion in row.criteria:
            yield self._name(place, criterion.name, "criterion_"), criterion.mean
        yield from self._list_flags(place, "flag_", row.flags, row.scored + row.unscored + row.pending)
        yield from self._list_flags(place, "group_flag_", row.group_flags, row.groups)

    def _list_flags(
        self, place: str, prefix: str, counts: Sequence[FlagCount], total: int
    ) -> Iterator[tuple[str, float]]:
        found = {flag.name: flag.count for flag in counts}
        met = self._flags[place, prefix]
        met.update(dict.fromkeys(found))
        for name in met:
            yield self._name(place, name, prefix), (_share(found.get(name, 0), total) or 0.0)

    def _name(self, place: str, text: str, prefix: str = "") -> str:
        """Of two texts that come to the same, the later one gets a digest."""
        clean = f"{place}/{prefix}{clean_part(text)}"
        if self._owners.setdefault(clean, text) == text:
            return clean
        return f"{clean}_{digest([text])[:8]}"


# Which steps are finished.


@dataclass
class StepWatch:
    """A step is finished once a later one has groups, nothing of it is pending, and it did not change for a while. Of a
    run that is not training all are."""

    settle_seconds: float
    _rows: dict[int, tuple[StatisticsRow, ...]] = field(default_factory=dict)
    _changed_at: dict[int, float] = field(default_factory=dict)
    """Of the steps that were not taken since."""

    def look(self, rows: Iterable[StatisticsRow], now: float) -> None:
        """All rows of the run by step, as they are now."""
        of_step: defaultdict[int, list[StatisticsRow]] = defaultdict(list)
        for row in rows:
            if row.step is not None:
                of_step[row.step].append(row)
        is_first = not self._rows
        # What came before the last two was over long before this began.
        old = sorted(of_step)[:-2] if is_first else []
        for step, found in of_step.items():
            if self._rows.get(step) != tuple(found):
                self._rows[step] = tuple(found)
                self._changed_at[step] = now
        self._changed_at.update(dict.fromkeys(old, -math.inf))

    def take_finished(self, now: float, *, is_training: bool) -> list[int]:
        """In order; each once, until it changes."""
        newest = max(self._rows, default=0)
        finished = [
            step
            for step, changed_at in sorted(self._changed_at.items())
            if now - changed_at >= self.settle_seconds and not (is_training and self._is_growing(step, newest))
        ]
        for step in finished:
            del self._changed_at[step]
        return finished

    def _is_growing(self, step: int, newest: int) -> bool:
        return step == newest or any(row.pending for row in self._rows[step])

    @property
    def unfinished(self) -> list[int]:
        return sorted(self._changed_at)


# What a logger lacks.

_FLOAT32: Final = 1e-6
"""TensorBoard keeps single precision, whose own error is a tenth of this."""


@dataclass
class CurveWriter:
    """Writes what the logger lacks: read anew at each start, so that nothing is written twice."""

    log: CurveLog
    held: dict[int, dict[str, float]]
    notes: set[str]
    written: int = 0
    """Steps."""
    late: set[int] = field(default_factory=set)
    """Steps that changed after a logger had them that keeps what it has."""

    @classmethod
    def begin(cls, log: CurveLog) -> "CurveWriter":
        held, notes = log.read()
        return cls(log, {step: dict(values) for step, values in held.items()}, set(notes))

    def write(self, points: Sequence[CurvePoint]) -> None:
        """In order of steps."""
        lacking = [lack for point in points if (lack := self._find_lack(point)).values]
        if not lacking:
            return
        for point in lacking:
            self.held.setdefault(point.step, {}).update(point.values)
        due = lacking
        if self.log.rewrites:
            due = [CurvePoint(step, self.held[step]) for step in sorted(self.held) if step >= lacking[0].step]
        for point in due:
            self.log.write(point.step, point.values)
        self.written += len(lacking)

    def _find_lack(self, point: CurvePoint) -> CurvePoint:
        held = self.held.get(point.step, {})
        lacking = {name: value for name, value in point.values.items() if name not in held}
        changed = {
            name: value
            for name, value in point.values.items()
            if name in held and not math.isclose(value, held[name], rel_tol=_FLOAT32, abs_tol=1e-12)
        }
        if changed and not self.log.rewrites:
            self.late.add(point.step)
        return CurvePoint(point.step, {**lacking, **changed} if self.log.rewrites else lacking)

    def note(self, alarm: Alarm, step: int) -> None:
        """Once each."""
        if alarm.alarm_id in self.notes:
            return
        self.notes.add(alarm.alarm_id)
        title = f"run health: {alarm.series}, group {alarm.noticed_group}"
        self.log.note(alarm.alarm_id, title, escape_invisible(tell_alarm(alarm)), step)


def find_step(rows: Iterable[StatisticsRow], group: int) -> int:
    """The step in which the run had so many groups; 0 without steps."""
    groups: defaultdict[int, int] = defaultdict(int)
    for row in rows:
        if row.step is not None:
            groups[row.step] += row.groups
    counted = 0
    for step, count in sorted(groups.items()):
        counted += count
        if counted >= group:
            return step
    return max(groups, default=0)


# From the gateway into the logger.

_LOOK_SECONDS: Final = 5.0
_STEPS_AT_ONCE: Final = 200
"""Whose labels and data sets are asked for at once."""
_GATEWAY: Final = "the gateway"


class LoggedRun(Frozen):
    """What `runs log --json` prints."""

    run: str
    place: str
    steps: int
    """Which the logger has now."""
    written: int
    """Of these, by this command."""
    unfinished: tuple[int, ...]
    """Steps that still grow. They are written when they are finished."""
    late: tuple[int, ...]
    """Steps that changed after they were written, in a logger that keeps what it has."""
    without_step: int
    """Groups without a policy step, which are in no curve."""
    uncounted: int
    """Groups that statistics do not have yet."""
    alarms: int


@dataclass
class CurveFollower:
    gateway: GatewayClient
    run: str
    writer: CurveWriter
    watch: StepWatch
    retrier: Retrier
    clock: Callable[[], float] = time.monotonic
    builder: PointBuilder = field(default_factory=PointBuilder)
    _groups: int = 0
    _without_step: int = 0
    _uncounted: int = 0

    async def follow(self) -> None:
        """Until the run is finished."""
        is_over = await self.look()
        while not is_over:
            await asyncio.sleep(max(0.1, min(_LOOK_SECONDS, self.watch.settle_seconds / 3)))
            is_over = await self.look()

    async def look(self) -> bool:
        """Writes what is finished. Returns whether the run is over and all of it is written."""
        # The state comes first: whatever was stored before a run was finished is in the statistics that come then.
        page = await self._ask(lambda: self.gateway.fetch_page(f"/view/runs/{self.run}", ShownRun))
        shown = await self._ask(lambda: self.gateway.fetch_statistics({"run": self.run}))
        self._uncounted = shown.uncounted
        self._groups = sum(row.groups for row in shown.rows)
        self._without_step = sum(row.groups for row in shown.rows if row.step is None)
        if not shown.uncounted:
            now, state = self.clock(), page.progress.state
            self.watch.look(shown.rows, now)
            finished = self.watch.take_finished(now, is_training=state == "training")
            for first in range(0, len(finished), _STEPS_AT_ONCE):
                await self._write_steps(finished[first : first + _STEPS_AT_ONCE])
        for alarm in reversed(page.health.alarms if page.health is not None else ()):
            self.writer.note(alarm, find_step(shown.rows, alarm.noticed_group))
        return page.progress.state == "finished" and not self.watch.unfinished and not shown.uncounted

    async def _write_steps(self, steps: Sequence[int]) -> None:
        asked = {"run": self.run, "min_step": str(steps[0]), "max_step": str(steps[-1])}
        rows: list[StatisticsRow] = []
        for by in ({}, {"by": "label"}, {"by": "dataset"}):
            rows += (await self._ask(lambda by=by: self.gateway.fetch_statistics(asked | by))).rows  # type: ignore[misc]
        wanted = set(steps)
        self.writer.write(self.builder.build(row for row in rows if row.step in wanted))

    async def _ask(self, question: Callable[[], Awaitable[ResultT]]) -> ResultT:
        return await self.retrier.retry_until_answered(_GATEWAY, question)

    def tell(self) -> Standing:
        steps = self.writer.held
        words = [f"step {max(steps)}"] if steps else []
        words.append(f"{self._groups:,} groups in the run")
        if self._uncounted:
            words.append(f"waiting for the gateway to count {self._uncounted:,} groups")
        return Standing(len(steps), words + self.retrier.list_waits())

    def report(self) -> LoggedRun:
        return LoggedRun(
            run=self.run,
            place=self.writer.log.place,
            steps=len(self.writer.held),
            written=self.writer.written,
            unfinished=tuple(self.watch.unfinished),
            late=tuple(sorted(self.writer.late)),
            without_step=self._without_step,
            uncounted=self._uncounted,
            alarms=len(self.writer.notes),
        )


# The command.


def log(
    run: RunArgument,
    to: Annotated[
        str, typer.Option(help="`tensorboard`, `wandb`, or a class of yours as `MODULE:CLASS`.", show_default=False)
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run is finished, or Ctrl-C.")] = False,
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder of the files: TensorBoard's in one for each run, W&B's in `wandb`.")
    ] = Path("curves"),
    wandb_project: Annotated[str, typer.Option(help="Project in W&B.", show_default="from WANDB_PROJECT")] = "",
    wandb_run: Annotated[
        str, typer.Option(help="Id of the run in W&B, such as your trainer's.", show_default="one named as the run")
    ] = "",
    settle: Annotated[
        float,
        typer.Option(
            min=0,
            help="With --follow: seconds without a change before a step is written.",
            rich_help_panel=ADVANCED,
        ),
    ] = 30.0,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Write a run's curves into TensorBoard, W&B or a logger of yours.

    Writes what the logger lacks, so it may be repeated, also after a crash. Steps that still grow are left out."""
    asked = _Asked(run, to, follow, folder, WandbChoice(wandb_project, wandb_run), settle)
    with stop_on_errors():
        report, stopped = asyncio.run(_log_run(asked, url, api_key))
    if as_json:
        print_json(report)
    else:
        for line in tell_report(report, to):
            typer.echo(line)
    if stopped:
        stop_to_resume()


@dataclass(frozen=True)
class _Asked:
    run: str
    to: str
    follow: bool
    folder: Path
    wandb: WandbChoice
    settle_seconds: float


async def _log_run(asked: _Asked, url: str, api_key: str) -> tuple[LoggedRun, bool]:
    """Whether it was stopped, too."""
    async with open_gateway(url, api_key) as gateway:
        await gateway.require_run(asked.run)
        log = open_log(asked.to, asked.run, asked.folder, asked.wandb)
        # Two at once would both write what neither has.
        with hold_file(asked.folder / f"{asked.run}.{clean_part(asked.to)}"):
            try:
                follower = CurveFollower(
                    gateway,
                    asked.run,
                    CurveWriter.begin(log),
                    StepWatch(asked.settle_seconds if asked.follow else 0.0),
                    Retrier(ends_after=None if asked.follow else 0.0),
                )
                async with show_progress(errors, asked.run, "steps", None, follower.tell):
                    is_stopped = await _stop_with_signals(follower.follow() if asked.follow else follower.look())
            finally:
                log.close()
        return follower.report(), is_stopped


async def _stop_with_signals(work: Coroutine[Any, Any, object]) -> bool:
    """Whether it was stopped. It may be at any time: what is not written yet is so by the next start."""
    doing = asyncio.create_task(work)

    def stop() -> None:
        doing.cancel()

    try:
        with stop_on_signals(stop):
            await doing
    except asyncio.CancelledError:
        return True
    return False


def tell_report(report: LoggedRun, to: str) -> Iterator[str]:
    """What was written, and what is in no curve."""
    yield f"{report.place}: {report.steps:,} steps of {report.run}, {report.written:,} written now"
    if report.unfinished:
        yield f"not finished, so not written: step {_list_steps(report.unfinished)}"
    if report.late:
        yield (
            f"changed after they were written, and {to} keeps what it has: step {_list_steps(report.late)}. "
            "GET /stats has the newest figures."
        )
    if report.without_step:
        yield (
            f"{report.without_step:,} groups have no policy step and are in no curve: send "
            '`"policy": {"model": …, "step": …}` with `score`'
        )
    if report.uncounted:
        yield f"the gateway has yet to count {report.uncounted:,} stored groups, so steps are not written; {RESUME}"


_MOST_LISTED: Final = 10


def _list_steps(steps: Sequence[int]) -> str:
    more = f" and {len(steps) - _MOST_LISTED:,} more" if len(steps) > _MOST_LISTED else ""
    return ", ".join(map(str, steps[:_MOST_LISTED])) + more
