"""Looks after the health of runs: follows their figures, reads anchors again, raises alarms, and reports.

One replica at a time looks at a run that has new groups: at the versions of its judges, the trends of its figures, its
anchors, and what a shadow judge of another model says. Readings are no scorings and enter no reward. What they cost is
bounded by a share of what the run's own groups cost, so scoring never waits for them.

An alarm holds the run where the run wants that, and is told to whoever is configured until it is taken or given up.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from app.domain.errors import GatewayError, InvalidRequest
from app.domain.groups import Group, TaskRecord
from app.domain.judging import Judgement, PanelResult
from app.domain.low_rewards import GROUPS_TOLD, explain_low_rewards, judge_beginning
from app.domain.runs import Alarm, HealthOptions, Hold, Run, ScoringOptions
from app.domain.scores import Score
from app.domain.values import digest, find_same_model
from app.features.health.model import (
    GROUPS_OF_PLAYERS,
    MOST_DISCARDED,
    AlarmSink,
    AnchorReading,
    HealthReading,
    HealthSpending,
    HealthState,
    HealthTokens,
    Leniency,
    ReadingKind,
    RunHealth,
    describe_anchors,
    follow_anchors,
)
from app.features.health.series import (
    CAN_SEE,
    CANNOT_SEE,
    Noticed,
    describe_trend_change,
    find_trend_changes,
    is_alarm,
    summarise_trend,
)
from app.features.health.store import RunHealthStore
from app.ports.environment import Clock, Observer, Programs, Workers
from app.ports.judges import Panels
from app.service.background import repeat, work_with_claim
from app.service.catalogue import EnvironmentVersions
from app.service.judging import repeat_score, score_completions, select_options
from app.service.runs import RunRegistry
from app.service.task_cache import TaskCache
from app.store.claims import Claim, ClaimStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HealthReader:
    health: RunHealthStore
    runs: RunRegistry
    panels: Panels
    environment_versions: EnvironmentVersions
    task_cache: TaskCache
    workers: Workers
    programs: Programs
    observer: Observer

    async def read_anchor(self, run: Run, group: Group, at_group: int) -> HealthReading:
        """Each judge of the run reads the group once, as it would be asked first, past its cache."""
        return await self._read(run, group, at_group, "anchor", run.options.judges)

    async def read_with_shadow(self, run: Run, group: Group, at_group: int, judge: str) -> HealthReading:
        return await self._read(run, group, at_group, "shadow", (judge,))

    async def _read(
        self, run: Run, group: Group, at_group: int, kind: ReadingKind, judges: tuple[str, ...]
    ) -> HealthReading:
        reading_id = f"health_{uuid4().hex}"
        # As plain as a reading can be, whatever the run asks for: what is compared must be read in the same way.
        changed = {"judges": judges, "readings": 1, "votes": 1, "calibration_share": 0.0, "on_truncated": "score"}
        options = run.options.model_copy(update=changed)
        record = (await self.task_cache.get([group.task_id]))[group.task_id]
        judged, names = await self._score(group, record, options, reading_id)
        values = tuple(_get_value(score) for score in judged.scores)
        reading = HealthReading(
            reading_id=reading_id,
            run=run.name,
            environment=group.environment,
            label=record.label,
            group_id=group.group_id,
            kind=kind,
            judges=names,
            at_group=at_group,
            values=values,
            distance=_compute_distance(group.scores, values) if kind == "shadow" else None,
            tokens=sum(map(_count_tokens, judged.judgements)),
            failed="" if any(value is not None for value in values) else _explain_failure(judged.scores),
        )
        self.observer.record_judgements(judged.judgements)
        return await self.health.add_reading(reading, judged.judgements, reading_id)

    async def _score(
        self, group: Group, record: TaskRecord, options: ScoringOptions, reading_id: str
    ) -> tuple[PanelResult, tuple[str, ...]]:
        hosted = await self.environment_versions.get_version(group.environment, record.key.data_digest)
        if (hosted.environment.version, hosted.data_digest) != (record.key.version, record.key.data_digest):
            gone = Score.unscored("version_changed", "the anchor's task was made by another version")
            return repeat_score(gone, len(group.rollouts)), ()
        options = select_options(hosted.environment, options)
        panel = self.panels.build_fresh_panel(group.environment, options)
        run, environment = group.run, group.environment
        budget = None if run is None else await self.runs.find_budget(run, environment, reading_id, options)
        judged = await score_completions(
            hosted.environment,
            self.task_cache.get_task(hosted, record),
            [rollout.completion for rollout in group.rollouts],
            options,
            panel,
            self.workers,
            self.programs,
            what=f"run health, {group.group_id}",
            budget=budget,
        )
        return judged, panel.judges


def _get_value(score: Score) -> float | None:
    """Gated replies tell nothing about a judge."""
    return None if score.gate == 0 else score.absolute


def _count_tokens(judgement: Judgement) -> int:
    return judgement.input_tokens + judgement.output_tokens + judgement.unanswered_tokens


def _compute_distance(own: Sequence[Score], values: Sequence[float | None]) -> float | None:
    both = [
        score.absolute - value
        for score, value in zip(own, values, strict=True)
        if value is not None and score.absolute is not None and score.gate != 0
    ]
    return math.fsum(both) / len(both) if both else None


def _explain_failure(scores: Sequence[Score]) -> str:
    return next((f"{score.reason}: {score.rationale}" for score in scores if score.reason), "no reply was read")[:500]


# What run health may spend on judges.

_ANCHOR_SHARE: Final = 0.75
"""Of the tokens that a run may spend on its health, for anchors by schedule. The rest is for anchors at a change of a
judge and after an odd reading."""
_SHADOW_ANCHOR_SHARE: Final = 0.5
"""The same beside a shadow judge."""
_SHADOW_SHARE: Final = 0.3


@dataclass(frozen=True)
class HealthBudget:
    """`share` is the run's. Everything that health has spent counts, and never exceeds it by a reading that is
    expected."""

    share: float
    tokens: HealthTokens
    has_shadow: bool

    def admits_anchor(self, *, hurried: bool) -> bool:
        """`hurried`: after an odd reading, or when a judge has changed."""
        usual = _SHADOW_ANCHOR_SHARE if self.has_shadow else _ANCHOR_SHARE
        spent = self.tokens.anchor if not hurried else self.tokens.spent
        return self._admits("anchor", spent, self.share if hurried else self.share * usual)

    def admits_shadow(self) -> bool:
        return self.has_shadow and self._admits("shadow", self.tokens.shadow, self.share * _SHADOW_SHARE)

    def _admits(self, kind: ReadingKind, spent: int, share: float) -> bool:
        expected = self.tokens.expect(kind)
        whole = self.tokens.spent + expected <= self.share * self.tokens.run
        return expected > 0 and whole and spent + expected <= share * self.tokens.run


def _describe_spending(tokens: HealthTokens, options: HealthOptions) -> HealthSpending:
    return HealthSpending(
        anchors=tokens.anchor,
        anchor_readings=tokens.anchor_readings,
        shadow=tokens.shadow,
        shadow_readings=tokens.shadow_readings,
        tokens=tokens.spent,
        run_tokens=tokens.run,
        share=tokens.spent / tokens.run if tokens.run else None,
        most_share=options.share,
    )


# The looks at runs.

ANCHORS: Final = 8
"""With 3 % of the tokens of groups that are read 2.5 times on average an anchor is read every 18 groups: after 300
groups each of eight has been read twice, and three readings can show a shift of .3 standard deviations within 50
groups. More anchors would still be read for the first time."""
POLL_SECONDS: Final = 3.0
IDLE_SECONDS: Final = 60.0
"""A run with fewer new groups than a bucket is looked at so often."""
CLAIM_SECONDS: Final = 90.0
"""After so long without a sign of life another replica takes over the run."""
_READINGS_PER_LOOK: Final = 3
"""Anchors at most that are read in one look."""
_GROUPS_AFTER_FAILURE: Final = 20
"""After an anchor that could not be read none is read for so many groups."""
_ALARMS_SHOWN: Final = 100
_NOTICES_AT_ONCE: Final = 16
_NOTICE_SECONDS: Final = 120.0
"""For so long no other replica sends the same alarm."""
RETRY_SECONDS: Final = (10.0, 60.0, 600.0, 3600.0, 6 * 3600.0)
"""Pauses before an alarm is told again to whoever did not take it. Then it is given up."""


class RunHealthService:
    def __init__(
        self,
        *,
        health: RunHealthStore,
        claims: ClaimStore,
        runs: RunRegistry,
        panels: Panels,
        reader: HealthReader,
        observer: Observer,
        clock: Clock,
        shadow_judges: Mapping[str, str] | None = None,
        sink: AlarmSink | None = None,
    ) -> None:
        """`shadow_judges` are those of environments, for runs that name none."""
        self._health = health
        self._claims = claims
        self._runs = runs
        self._panels = panels
        self._reader = reader
        self._observer = observer
        self._clock = clock
        self._shadow_judges = dict(shadow_judges or {})
        self._sink = sink

    async def run(self) -> None:
        """For as long as the service runs. Nothing here holds up scoring, and whoever is told of alarms holds up
        nothing."""
        works = self._look_after_runs, self._send_notices
        await asyncio.gather(*(repeat(work, POLL_SECONDS, "run health could not go on") for work in works))

    async def _look_after_runs(self) -> None:
        while await self.look_once():
            pass
        self._observer.record_alarms(await self._health.count_alarms())

    async def look_once(self) -> bool:
        """Looks after one run that has new groups; False when there is none. A look that fails is tried again when its
        claim is over."""
        claim = await self._health.claim(CLAIM_SECONDS, IDLE_SECONDS)
        if claim is None:
            return False
        with _report_failure(f"look after run {claim.name}"):
            await work_with_claim(self._claims, claim, CLAIM_SECONDS, lambda: self._look_after(claim))
        return True

    async def _look_after(self, claim: Claim) -> None:
        run = await self._runs.require(claim.name)
        await self._health.finish(claim, await self._follow_run(run, await self._health.advance(claim)))

    async def _follow_run(self, run: Run, state: HealthState) -> HealthState:
        """A step that fails leaves the state as it was, and the others go on."""
        follow = (self._follow_judges, self._follow_beginning, self._follow_players, self._follow_trends)
        for step in (*follow, self._follow_anchors, self._ask_shadow):
            with _report_failure(f"follow the health of run {run.name}"):
                state = await step(run, state)
        return state

    async def _follow_judges(self, run: Run, state: HealthState) -> HealthState:
        """A model or fingerprint that a judge's server names for the first time is another judge."""
        versions = len(await self._health.list_versions(self._list_judges(run)))
        # The first versions of all are no change.
        changed = 0 <= state.versions_seen < versions and state.versions_seen > 0
        return state.model_copy(update={"versions_seen": versions} | ({"hurried_readings": ANCHORS} if changed else {}))

    async def _follow_beginning(self, run: Run, state: HealthState) -> HealthState:
        """Once. Trends notice changes alone, and a run that never earned anything does not change. A run that was long
        on its way before its beginning was ever judged is left to its trends."""
        if state.is_beginning_judged or state.first_bucket > 0:
            return state
        first = await self._health.load_counts(run.name, GROUPS_TOLD)
        if first.count("groups") < GROUPS_TOLD:
            return state
        found = judge_beginning(first)
        if found is not None:
            # The same each time, so that a look that is repeated raises no second alarm.
            noticed = Noticed("beginning", 0, GROUPS_TOLD, found.share, found.share, found.limit, found.evidence)
            await self._raise(run, noticed)
        return state.model_copy(update={"is_beginning_judged": True})

    async def _follow_players(self, run: Run, state: HealthState) -> HealthState:
        if state.players_alarmed_at >= 0 and state.groups < state.players_alarmed_at + GROUPS_OF_PLAYERS:
            return state
        use = await self._health.load_player_use(run.name, GROUPS_OF_PLAYERS)
        if use is None or not use.is_alarming:
            return state
        first = max(0, state.groups - GROUPS_OF_PLAYERS)
        await self._raise(
            run, Noticed("players", first, state.groups, use.share, use.share, MOST_DISCARDED, use.sentence)
        )
        return state.model_copy(update={"players_alarmed_at": state.groups})

    async def _follow_trends(self, run: Run, state: HealthState) -> HealthState:
        cells = await self._health.load_cells(run.name, state)
        since = dict(state.since)
        for rule, change in await asyncio.to_thread(find_trend_changes, cells, since, state.judge_since):
            if change is not None and is_alarm(rule, change):
                noticed = describe_trend_change(rule, change, state.newest)
                groups = state.count_groups_before(change.bucket)
                await self._raise(run, noticed.at(groups, state.groups))
                since[rule.name] = change.bucket
        return state.model_copy(update={"since": since})

    async def _follow_anchors(self, run: Run, state: HealthState) -> HealthState:
        """A few anchors are read, those that were not for the longest first."""
        rests = state.failures > 0 and state.groups < state.failed_at + _GROUPS_AFTER_FAILURE
        judged = bool(run.health.share) and (await self._health.get_tokens(run.name)).run > 0
        anchors = await self._health.freeze_anchors(run.name, ANCHORS) if judged and not rests else ()
        for _ in range(_READINGS_PER_LOOK if anchors else 0):
            readings = await self._health.list_readings(run.name, state.anchors_after)
            tokens = await self._health.get_tokens(run.name)
            budget = HealthBudget(run.health.share, tokens, self._find_shadow(run, anchors[0].environment) is not None)
            if not budget.admits_anchor(hurried=is_hurried(_follow_readings(readings), state.hurried_readings)):
                break
            made: HealthReading | None = None
            with _report_failure(f"read an anchor of run {run.name}"):
                made = await self._reader.read_anchor(
                    run, _choose_anchor(anchors, readings, state.failures), state.groups
                )
            if made is None or made.failed:
                log.warning("an anchor of run %s was not read%s", run.name, f": {made.failed}" if made else "")
                return state.model_copy(update={"failures": state.failures + 1, "failed_at": state.groups})
            state = await self._judge_leniency(run, [*readings, made], made, state)
        return state

    async def _judge_leniency(
        self, run: Run, readings: list[HealthReading], made: HealthReading, state: HealthState
    ) -> HealthState:
        state = state.model_copy(update={"hurried_readings": max(0, state.hurried_readings - 1), "failures": 0})
        alarms = _follow_readings(readings).alarms
        if not alarms:
            return state
        await self._raise(run, alarms[-1], subject=", ".join(made.judges))
        since = max(0, state.find_bucket(alarms[-1].since_group))
        return state.model_copy(update={"anchors_after": made.sequence, "judge_since": since})

    async def _ask_shadow(self, run: Run, state: HealthState) -> HealthState:
        group = await self._health.find_shadow_group(run.name) if run.health.share else None
        judge = None if group is None else self._find_shadow(run, group.environment)
        if group is None or judge is None:
            return state
        tokens = await self._health.get_tokens(run.name)
        if HealthBudget(run.health.share, tokens, has_shadow=True).admits_shadow():
            await self._reader.read_with_shadow(run, group, state.groups, judge)
        return state

    def _find_shadow(self, run: Run, environment: str) -> str | None:
        """None also for one of a training judge's model, which `PUT /runs` cannot know of where the environment names
        the judges."""
        shadow, judges = run.health.shadow_judge or self._shadow_judges.get(environment), self._panels.judges
        if shadow is None or shadow not in judges:
            return None
        training = self._panels.resolve_options(environment, run.options).judges
        models = {name: judges[name].model for name in training if name in judges}
        return None if find_same_model(judges[shadow].model, models) else shadow

    def _list_judges(self, run: Run) -> tuple[str, ...]:
        chosen = (self._panels.resolve_options(pin.environment, run.options) for pin in run.pins)
        return tuple(dict.fromkeys(judge for options in chosen for judge in options.judges))

    async def _raise(self, run: Run, noticed: Noticed, subject: str = "") -> None:
        now = self._clock()
        alarm = Alarm(
            alarm_id="alarm_" + digest([run.name, noticed.series, subject, noticed.noticed_group])[:24],
            series=noticed.series,
            subject=subject,
            since_group=noticed.since_group,
            noticed_group=noticed.noticed_group,
            effect=noticed.effect,
            statistic=noticed.statistic,
            limit=noticed.limit,
            evidence=noticed.evidence,
            raised_at=now,
        )
        hold = Hold(alarm_id=alarm.alarm_id, reason=alarm.words, since=now) if run.health.on_alarm == "hold" else None
        if await self._health.add_alarm(run.name, alarm, hold):
            log.warning("alarm in run %s: %s", run.name, alarm.words)
            self._runs.remember(await self._runs.require(run.name))

    async def _send_notices(self) -> None:
        if self._sink is not None:
            due = await self._health.claim_notices(_NOTICES_AT_ONCE, _NOTICE_SECONDS)
            await asyncio.gather(*(self._send_notice(self._sink, *each) for each in due))

    async def _send_notice(self, sink: AlarmSink, run: str, alarm: Alarm, attempts: int) -> None:
        with _report_failure(f"send {alarm.alarm_id}"):
            taken = await sink.send(run, alarm)
            again = None if taken or attempts >= len(RETRY_SECONDS) else RETRY_SECONDS[attempts]
            if not taken and again is None:
                log.error("alarm %s could not be told to the webhook and is given up", alarm.alarm_id)
            await self._health.settle_notice(alarm.alarm_id, again)

    def check_options(self, options: HealthOptions, judges: Sequence[str]) -> None:
        """InvalidRequest for a shadow judge that is not configured, or is of a training judge's model."""
        name, configured = options.shadow_judge, self._panels.judges
        if name is None:
            return
        if name not in configured:
            raise InvalidRequest(f"there is no judge {name!r}", field="health.shadow_judge")
        other = find_same_model(
            configured[name].model, {each: configured[each].model for each in judges if each in configured}
        )
        if other is not None:
            raise InvalidRequest(
                f"judge {name!r} is of the same model as {other!r}: a shadow judge needs another one",
                field="health.shadow_judge",
            )

    async def release(self, name: str) -> Run:
        """Tasks are handed out again, and open alarms are released."""
        return self._runs.remember(await self._health.release((await self._runs.require(name)).name))

    async def list_open_alarms(self, name: str) -> tuple[Alarm, ...]:
        alarms = await self._health.list_alarms(name, _ALARMS_SHOWN)
        return tuple(alarm for alarm in alarms if alarm.released_at is None)

    async def get_health(self, name: str) -> RunHealth:
        run = await self._runs.require(name)
        state = await self._health.get_state(name)
        cells = await self._health.load_cells(name, state)
        alarms = tuple(await self._health.list_alarms(name, _ALARMS_SHOWN))
        standing = {alarm.series for alarm in alarms if alarm.released_at is None}
        readings = await self._health.list_readings(name, state.anchors_after)
        leniency = await asyncio.to_thread(_follow_readings, readings)
        tokens = await self._health.get_tokens(name)
        changes = await asyncio.to_thread(find_trend_changes, cells, state.since, state.judge_since)
        figures = [
            summarise_trend(rule, cells.get(rule.name, ()), change, rule.name in standing, state.newest)
            for rule, change in changes
        ]
        return RunHealth(
            run=name,
            groups=state.groups,
            options=run.health,
            held=run.held,
            alarms=alarms,
            findings=explain_low_rewards(await self._health.load_counts(name, GROUPS_TOLD, newest=True)),
            players=await self._health.load_player_use(name, GROUPS_OF_PLAYERS),
            figures=(describe_anchors(leniency, "leniency" in standing), *figures),
            anchors=await self._health.count_anchors(name),
            judges=tuple(await self._health.list_versions(self._list_judges(run))),
            spent=_describe_spending(tokens, run.health),
            can_see=CAN_SEE,
            cannot_see=CANNOT_SEE,
        )


def is_hurried(leniency: Leniency, hurried_readings: int) -> bool:
    return hurried_readings > 0 or leniency.is_suspicious


def _follow_readings(readings: list[HealthReading]) -> Leniency:
    return follow_anchors(AnchorReading(each.group_id, each.at_group, each.values) for each in readings)


def _choose_anchor(anchors: tuple[Group, ...], readings: list[HealthReading], failures: int) -> Group:
    """The one that was not read for the longest; after failures the next ones."""
    last = {reading.group_id: reading.sequence for reading in readings}
    ordered = sorted(anchors, key=lambda group: last.get(group.group_id, 0))
    return ordered[failures % len(ordered)]


@contextlib.contextmanager
def _report_failure(what: str) -> Iterator[None]:
    """One failure ends neither the loop nor what comes after it."""
    try:
        yield
    except GatewayError as error:
        log.warning("run health could not %s: %s", what, error.detail)
    except Exception:
        log.exception("run health could not %s", what)
