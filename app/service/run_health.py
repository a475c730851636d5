"""Looks after the health of runs: follows their figures, reads anchors again, raises alarms, and reports."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from app.domain.anchors import describe_anchors
from app.domain.digests import digest
from app.domain.errors import GatewayError
from app.domain.health_records import (
    HealthReading,
    HealthState,
    JudgeVersion,
    RunHealth,
)
from app.domain.model_names import find_same_model
from app.domain.run_health import (
    CAN_SEE,
    CANNOT_SEE,
    Alarm,
    Hold,
    Noticed,
    describe_trend_change,
    find_trend_changes,
    is_alarm,
    summarise_trend,
)
from app.domain.runs import Run
from app.ports.health import AlarmSink, HealthClaim, RunHealthStore
from app.ports.judges import Panels
from app.ports.runtime import Clock, Observer
from app.service.health_readings import HealthReader
from app.service.health_schedule import (
    ANCHORS,
    HealthBudget,
    choose_anchor,
    describe_spending,
    follow_readings,
    is_hurried,
)
from app.service.run_registry import RunRegistry

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 3.0
IDLE_SECONDS: Final = 60.0
"""A run with fewer new groups than a bucket is looked at so often."""
CLAIM_SECONDS: Final = 90.0
RENEW_SECONDS: Final = 30.0
READINGS_PER_LOOK: Final = 3
"""Anchors at most that are read in one look."""
GROUPS_AFTER_FAILURE: Final = 20
"""After an anchor that could not be read none is read for so many groups."""
ALARMS_SHOWN: Final = 100
NOTICES_AT_ONCE: Final = 16
NOTICE_SECONDS: Final = 120.0
RETRY_SECONDS: Final = (10.0, 60.0, 600.0, 3600.0, 6 * 3600.0)
"""Pauses before an alarm is told again to whoever did not take it. Then it is given up."""


class RunHealthService:
    def __init__(
        self,
        *,
        health: RunHealthStore,
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
        await asyncio.gather(_repeat(self._look_after_runs), _repeat(self._send_notices))

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
        with _report_failure(f"look after run {claim.run}"):
            run = await self._runs.require(claim.run)
            async with self._keep(claim):
                await self._health.finish(claim, await self._follow_run(run, await self._health.advance(claim)))
        return True

    async def _follow_run(self, run: Run, state: HealthState) -> HealthState:
        """A step that fails leaves the state as it was, and the others go on."""
        for step in (self._follow_judges, self._follow_trends, self._follow_anchors, self._ask_shadow):
            with _report_failure(f"follow the health of run {run.name}"):
                state = await step(run, state)
        return state

    @contextlib.asynccontextmanager
    async def _keep(self, claim: HealthClaim) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                with contextlib.suppress(GatewayError):
                    await self._health.renew(claim, CLAIM_SECONDS)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _follow_judges(self, run: Run, state: HealthState) -> HealthState:
        """A model or fingerprint that a judge's server names for the first time is another judge."""
        known = len(await self._health.list_versions(self._list_judges(run)))
        changed = 0 <= state.versions_seen < known and state.versions_seen > 0
        return state.model_copy(update={"versions_seen": known} | ({"rush": ANCHORS} if changed else {}))

    async def _follow_trends(self, run: Run, state: HealthState) -> HealthState:
        cells = await self._health.load_cells(run.name, state)
        since = dict(state.since)
        for rule, change in await asyncio.to_thread(find_trend_changes, cells, since, state.judge_since):
            if change is not None and is_alarm(rule, change):
                noticed = describe_trend_change(rule, change, state.newest)
                groups = state.count_groups_before(change.bucket)
                await self._raise(run, noticed.at(groups, state.groups))
                since[rule.name] = change.followed_from
        return state.model_copy(update={"since": since})

    async def _follow_anchors(self, run: Run, state: HealthState) -> HealthState:
        """A few anchors are read, those that were not for the longest first."""
        rests = state.failures > 0 and state.groups < state.failed_at + GROUPS_AFTER_FAILURE
        judged = bool(run.health.share) and (await self._health.get_tokens(run.name)).run > 0
        anchors = await self._health.freeze_anchors(run.name, ANCHORS) if judged and not rests else ()
        for _ in range(READINGS_PER_LOOK if anchors else 0):
            readings = await self._health.list_readings(run.name, state.anchors_after)
            tokens = await self._health.get_tokens(run.name)
            budget = HealthBudget(run.health.share, tokens, self._find_shadow(run, anchors[0].environment) is not None)
            if not budget.admits_anchor(hurried=is_hurried(follow_readings(readings), state.rush)):
                break
            made: HealthReading | None = None
            with _report_failure(f"read an anchor of run {run.name}"):
                made = await self._reader.read_anchor(
                    run, choose_anchor(anchors, readings, state.failures), state.groups
                )
            if made is None or made.failed:
                log.warning("an anchor of run %s was not read%s", run.name, f": {made.failed}" if made else "")
                return state.model_copy(update={"failures": state.failures + 1, "failed_at": state.groups})
            state = await self._judge_leniency(run, [*readings, made], made, state)
        return state

    async def _judge_leniency(
        self, run: Run, readings: list[HealthReading], made: HealthReading, state: HealthState
    ) -> HealthState:
        state = state.model_copy(update={"rush": max(0, state.rush - 1), "failures": 0})
        alarms = follow_readings(readings).alarms
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
        reason = f"{noticed.series} since about group {noticed.since_group}: {noticed.evidence}"
        hold = Hold(alarm_id=alarm.alarm_id, reason=reason, since=now) if run.health.on_alarm == "hold" else None
        if await self._health.add_alarm(run.name, alarm, hold):
            log.warning("alarm in run %s: %s", run.name, reason)
            self._runs.remember(await self._runs.require(run.name))

    async def _send_notices(self) -> None:
        if self._sink is not None:
            due = await self._health.claim_notices(NOTICES_AT_ONCE, NOTICE_SECONDS)
            await asyncio.gather(*(self._send_notice(self._sink, *each) for each in due))

    async def _send_notice(self, sink: AlarmSink, run: str, alarm: Alarm, attempts: int) -> None:
        with _report_failure(f"send {alarm.alarm_id}"):
            taken = await sink.send(run, alarm)
            again = None if taken or attempts >= len(RETRY_SECONDS) else RETRY_SECONDS[attempts]
            if not taken and again is None:
                log.error("alarm %s could not be told to the webhook and is given up", alarm.alarm_id)
            await self._health.settle_notice(alarm.alarm_id, again)

    async def list_versions(self, judges: Sequence[str]) -> list[JudgeVersion]:
        return await self._health.list_versions(judges)

    async def release(self, name: str) -> Run:
        """Tasks are handed out again, and open alarms are released."""
        return self._runs.remember(await self._health.release((await self._runs.require(name)).name))

    async def list_open_alarms(self, name: str) -> tuple[Alarm, ...]:
        alarms = await self._health.list_alarms(name, ALARMS_SHOWN)
        return tuple(alarm for alarm in alarms if alarm.released_at is None)

    async def get_health(self, name: str) -> RunHealth:
        run = await self._runs.require(name)
        state = await self._health.get_state(name)
        cells = await self._health.load_cells(name, state)
        alarms = tuple(await self._health.list_alarms(name, ALARMS_SHOWN))
        standing = {alarm.series for alarm in alarms if alarm.released_at is None}
        readings = await self._health.list_readings(name, state.anchors_after)
        leniency = await asyncio.to_thread(follow_readings, readings)
        tokens = await self._health.get_tokens(name)
        found = await asyncio.to_thread(find_trend_changes, cells, state.since, state.judge_since)
        figures = [
            summarise_trend(rule, cells.get(rule.name, ()), change, rule.name in standing, state.newest)
            for rule, change in found
        ]
        return RunHealth(
            run=name,
            groups=state.groups,
            options=run.health,
            held=run.held,
            alarms=alarms,
            figures=(describe_anchors(leniency, "leniency" in standing), *figures),
            anchors=await self._health.count_anchors(name),
            judges=tuple(await self._health.list_versions(self._list_judges(run))),
            spent=describe_spending(tokens, run.health),
            can_see=CAN_SEE,
            cannot_see=CANNOT_SEE,
        )


@contextlib.contextmanager
def _report_failure(what: str) -> Iterator[None]:
    """One failure ends neither the loop nor what comes after it."""
    try:
        yield
    except GatewayError as error:
        log.warning("run health could not %s: %s", what, error.detail)
    except Exception:
        log.exception("run health could not %s", what)


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        with _report_failure("go on"):
            await work()
        await asyncio.sleep(POLL_SECONDS)
