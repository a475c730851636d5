"""One start of `tournament`: who takes part, what it costs, the duels, the report.

A duel sends two stored replies to the gateway as one group of a run that is pinned to the judge, pairwise and with one
vote, so that the judge reads the pair in both orders. A gate decides before the judge does, equal replies tie, and a
duel without an outcome says why; none is guessed. Nothing is asked of a judge before the cost was said and somebody has
gone on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.evaluate.attempts import sum_judgement_usd, write_document
from app.cli.journal import Journal, open_journal, read_ledger
from app.cli.policies import GATEWAY, gather_or_cancel
from app.cli.tournament.contestants import (
    TOURNAMENT_EVENT,
    DuelJudged,
    DuelsPlanned,
    PlannedDuel,
    StoredReply,
    TournamentBegan,
    TournamentCost,
    TournamentEvent,
    TournamentJournalSetup,
    TournamentLedger,
    describe_spending,
    estimate_duels,
    find_judge,
    find_notice,
    find_shared_rubric,
    load_entrants,
    plan_duels,
    require_judged,
    require_stranger,
)
from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused
from app.domain.groups import Group
from app.domain.judging import Judgement
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion
from app.evaluation.duels import Duel, DuelReading, Side, TournamentReport, TournamentSetup
from app.evaluation.tournament import build_tournament_report
from app.http.api.models import GroupView, JudgeInfo
from app.service.requests import GroupProblem, GroupReply
from app.service.runs import RunSettings
from app.terminal.client import AnsweredTask, GatewayClient, Retrier, describe_url, stop_on_signals
from app.terminal.consoles import GoOn

# Judging of duels.

_MOST_SENDS: Final = 3
"""Times that an unscored pair is sent."""
_MOST_IN_A_ROW: Final = 24
"""Duels without an outcome after which the tournament stops."""
_SIDES: Final[tuple[Side, Side]] = ("one", "other")


class _ReplyMissing(Exception):
    """A stored reply cannot be read any more."""


@dataclass
class _ReplyCache:
    """Reads stored groups, each once while duels of its task are judged."""

    gateway: GatewayClient
    patience: Retrier
    _asked: dict[str, "asyncio.Task[GroupView]"] = field(default_factory=dict)

    async def load(self, reply: StoredReply) -> Completion:
        """Without token ids and what the trainer attached. ReplyMissing where the text is not kept."""
        if reply.group_id not in self._asked:
            ask = self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.fetch_group(reply.group_id))
            self._asked[reply.group_id] = asyncio.ensure_future(ask)
        try:
            group = (await self._asked[reply.group_id]).group
        except RequestRefused as error:
            raise _ReplyMissing(error.detail) from error
        if reply.place >= len(group.rollouts):
            raise _ReplyMissing("the group has fewer completions than when the tournament began")
        rollout = group.rollouts[reply.place]
        if rollout.reduced is not None and rollout.reduced.text is not None:
            raise _ReplyMissing("what it said is not kept")
        return rollout.completion.model_copy(update={"token_ids": None, "logprobs": None, "extra": {}})

    def forget(self, keep: Sequence[str]) -> None:
        for group_id in self._asked.keys() - set(keep):
            if self._asked[group_id].done():
                del self._asked[group_id]


@dataclass
class _DuelRunner:
    gateway: GatewayClient
    journal: Journal[TournamentEvent, TournamentLedger]
    plan: Sequence[PlannedDuel]
    run: str
    """The run that is pinned to the judge."""
    concurrency: int
    patience: Retrier
    on_judged: Callable[[Duel], None]
    retry_seconds: float = 1.0
    stopped: bool = False
    _in_a_row: int = 0

    async def judge_all(self) -> None:
        """Returns when there is nothing left to do, or after a stop. InvalidRequest when no duel gets an outcome,
        Unavailable when the gateway stays unreachable."""
        places = iter(self.journal.ledger.list_open())
        replies = _ReplyCache(self.gateway, self.patience)

        async def work() -> None:
            for place in places:
                if self.stopped:
                    return
                duel = await self._judge(self.plan[place], replies)
                await self.journal.add(DuelJudged(place=place, duel=duel))
                self.on_judged(duel)
                self._require_outcomes(duel)
                # Replies of a task are read by all its duels, which lie side by side in the plan.
                near = self.plan[place : place + 4 * self.concurrency]
                replies.forget([reply.group_id for planned in near for reply in planned.replies])

        await gather_or_cancel([work() for _ in range(self.concurrency)])

    async def _judge(self, planned: PlannedDuel, replies: _ReplyCache) -> Duel:
        try:
            completions = [await replies.load(reply) for reply in planned.replies]
        except _ReplyMissing as missing:
            return planned.build_duel(reason=f"not kept: {missing}"[:300])
        if completions[0].identity_digest == completions[1].identity_digest:
            return planned.build_duel(decided_by="same", readings=_mirror("tie"))
        reply = await self._score(AnsweredTask(planned.task_id, None, completions))
        if isinstance(reply, GroupProblem):
            return planned.build_duel(reason=f"{reply.code}: {reply.detail}"[:300])
        view = await self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.fetch_group(reply.group_id))
        return planned.build_duel(group_id=reply.group_id, **_read_outcome(view.group, view.judgements))

    async def _score(self, sent: AnsweredTask) -> GroupReply | GroupProblem:
        """The pair is sent again while it has no score: that is safe, and asks no judge twice."""
        reply = await self._send(sent)
        for attempt in range(1, _MOST_SENDS):
            if isinstance(reply, GroupProblem) or reply.outcome == "scored":
                break
            await asyncio.sleep(self.retry_seconds * 2**attempt)
            reply = await self._send(sent)
        return reply

    async def _send(self, sent: AnsweredTask) -> GroupReply | GroupProblem:
        try:
            replies = await self.patience.retry_until_answered(
                GATEWAY, lambda: self.gateway.score([sent], self.run, None, "eval")
            )
        except NotFound as error:
            return GroupProblem(task_id=sent.task_id, code="not_found", detail=error.detail)
        return replies[0]

    def _require_outcomes(self, duel: Duel) -> None:
        self._in_a_row = 0 if duel.readings else self._in_a_row + 1
        if self._in_a_row >= _MOST_IN_A_ROW:
            raise InvalidRequest(f"{_MOST_IN_A_ROW} duels in a row got no outcome; last reason: {duel.reason}")


def _read_outcome(group: Group, judgements: Sequence[Judgement]) -> dict[str, object]:
    """Who won in which order. A gate goes before the judge, and equal replies tie."""
    spent = {
        "calls": sum(judgement.calls for judgement in judgements if not judgement.cached),
        "usd": sum_judgement_usd(judgements),
    }
    reasons = [score.reason for score in group.scores if score.reason is not None]
    if reasons:
        return {"reason": reasons[0], **spent}
    passed = [score.gate != 0 for score in group.scores]
    if not all(passed):
        better = "tie" if not any(passed) else "one" if passed[0] else "other"
        return {"decided_by": "gate", "readings": _mirror(better), **spent}
    one, other = (score.candidate for score in group.scores)
    if one == other:
        return {"decided_by": "same", "readings": _mirror("tie"), **spent}
    sides: dict[str, Side] = {one: "one", other: "other"}
    readings = {
        reading.shown_first: reading
        for judgement in judgements
        if judgement.purpose == "score" and judgement.error is None and set(judgement.order) == sides.keys()
        for reading in (_read_judgement(judgement, sides),)
    }  # where a pair was sent again, the last reading counts
    if len(readings) < len(_SIDES):
        return {"reason": "only one order was read", **spent}
    return {"decided_by": "judge", "readings": [readings[side] for side in _SIDES], **spent}


def _mirror(better: str) -> list[DuelReading]:
    return [DuelReading.model_validate({"shown_first": side, "better": better}) for side in _SIDES]


def _read_judgement(judgement: Judgement, sides: dict[str, Side]) -> DuelReading:
    best = judgement.ranking[0] if judgement.ranking else judgement.order
    return DuelReading(shown_first=sides[judgement.order[0]], better="tie" if len(best) > 1 else sides[best[0]])


@asynccontextmanager
async def _running(runner: _DuelRunner) -> AsyncIterator["asyncio.Task[None]"]:
    """The work as a task that ends with the block."""
    doing = asyncio.create_task(runner.judge_all())
    try:
        yield doing
    finally:
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)


# The session.

_JOURNAL: Final = "tournament.journal"
REPORT: Final = "tournament"


@dataclass(frozen=True)
class TournamentOutcome:
    report: TournamentReport | None
    """None after a dry run, and where nobody went on."""
    stopped: bool = False


@dataclass(frozen=True)
class _TournamentStart:
    """What was checked before anything is spent or written. `options` are those of the run of the pairs."""

    judge: JudgeInfo
    models: dict[str, str]
    """Of all judges, by name."""
    plan: DuelsPlanned
    options: ScoringOptions

    def tell_notice(self) -> str:
        return find_notice(self.judge, self.plan.contestants, self.models)


@dataclass(frozen=True)
class TournamentSession:
    setup: TournamentJournalSetup
    out: Path
    allows_same_model: bool
    concurrency: int
    patience_seconds: float
    gateway_url: str
    console: Console
    go_on: GoOn
    retry_seconds: float = 1.0

    async def dry_run(self, gateway: GatewayClient) -> TournamentOutcome:
        """Begins no run and writes nothing."""
        start = await self._prepare(gateway)
        plan, open_duels = self._find_open(start.plan)
        await self._tell_cost(gateway, replace(start, plan=plan), open_duels)
        return TournamentOutcome(None)

    async def hold(self, gateway: GatewayClient) -> TournamentOutcome:
        """Nothing is begun before somebody goes on."""
        start = await self._prepare(gateway)
        plan, open_duels = self._find_open(start.plan)
        start = replace(start, plan=plan)
        notice = start.tell_notice()
        if open_duels:
            cost = await self._tell_cost(gateway, start, open_duels)
            if not self.go_on(cost.usd):
                return TournamentOutcome(None, stopped=True)
            await gateway.put_run(self.setup.run, RunSettings(seed=0, options=start.options))
        with self._open_journal() as journal:
            if journal.ledger.plan is None or not journal.ledger.holds_results:
                await journal.add(plan)
            setup = await self._build_setup(gateway, start.judge, plan, journal.ledger)
            try:
                finished = not open_duels or await self._judge_duels(gateway, journal, plan)
            except GatewayError:  # what was judged until then has its report
                self._write_report(journal.ledger, setup, notice)
                raise
            return TournamentOutcome(self._write_report(journal.ledger, setup, notice), stopped=not finished)

    def _find_open(self, planned: DuelsPlanned) -> tuple[DuelsPlanned, list[PlannedDuel]]:
        """The plan, which is that of an earlier start where this had outcomes, and its duels without one."""
        path = self.out / _JOURNAL
        ledger = read_ledger(path, "tournament", TOURNAMENT_EVENT, TournamentLedger, self.setup)
        if ledger.plan is None or not ledger.holds_results:
            return planned, list(planned.duels)
        return ledger.plan, [ledger.plan.duels[place] for place in ledger.list_open()]

    def _open_journal(self) -> AbstractContextManager[Journal[TournamentEvent, TournamentLedger]]:
        began = TournamentBegan(setup=self.setup, at=datetime.now(UTC))
        return open_journal(self.out / _JOURNAL, "tournament", TOURNAMENT_EVENT, TournamentLedger, self.setup, began)

    async def _tell_cost(
        self, gateway: GatewayClient, start: _TournamentStart, duels: Sequence[PlannedDuel]
    ) -> TournamentCost:
        cost = await estimate_duels(gateway, duels, start.judge)
        self._say(start.tell_notice())
        self._say(cost.describe())
        return cost

    async def _prepare(self, gateway: GatewayClient) -> _TournamentStart:
        """Checks everything before anything is spent."""
        judges = {judge.name: judge for judge in (await gateway.list_judges()).judges}
        judge, models = find_judge(judges, self.setup.judge), {judge.name: judge.model for judge in judges.values()}
        entrants = await load_entrants(gateway, self.setup.contestants, self.setup.environment)
        plan = plan_duels(entrants, self.setup.tasks, self.setup.seed)
        for name in sorted({duel.environment for duel in plan.duels}):
            await require_judged(gateway, name)
        if not self.allows_same_model:
            require_stranger(judge, plan.contestants, models)
        rubric = await find_shared_rubric(gateway, entrants)
        options = ScoringOptions(mode="pairwise", votes=1, judges=(judge.name,), calibration_share=0.0, rubric=rubric)
        return _TournamentStart(judge, models, plan, options)

    async def _judge_duels(
        self, gateway: GatewayClient, journal: Journal[TournamentEvent, TournamentLedger], plan: DuelsPlanned
    ) -> bool:
        """Returns whether all were judged."""
        columns = (TextColumn("duels"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[words]}"), console=self.console) as progress:
            done = len(plan.duels) - len(journal.ledger.list_open())
            bar = progress.add_task("", total=len(plan.duels), completed=done, words="")
            runner = _DuelRunner(
                gateway=gateway,
                journal=journal,
                plan=plan.duels,
                run=self.setup.run,
                concurrency=self.concurrency,
                patience=Retrier(ends_after=self.patience_seconds),
                on_judged=lambda duel: progress.update(
                    bar, advance=1, words=describe_spending(journal.ledger.judged.values())
                ),
                retry_seconds=self.retry_seconds,
            )
            async with _running(runner) as doing:

                def stop() -> None:
                    if runner.stopped:  # the second Ctrl-C
                        doing.cancel()
                    runner.stopped = True

                with stop_on_signals(stop):
                    try:
                        await doing
                    except asyncio.CancelledError:
                        if not runner.stopped:
                            raise
        return not runner.stopped

    async def _build_setup(
        self, gateway: GatewayClient, judge: JudgeInfo, plan: DuelsPlanned, ledger: TournamentLedger
    ) -> TournamentSetup:
        return TournamentSetup(
            judge=judge.name,
            judge_model=judge.model,
            environments=tuple(sorted({duel.environment for duel in plan.duels})),
            contestants=plan.contestants,
            run=self.setup.run,
            seed=self.setup.seed,
            tasks=len({duel.task_id for duel in plan.duels}),
            gateway=await gateway.fetch_version(),
            gateway_url=describe_url(self.gateway_url),
            started_at=ledger.began_at or datetime.now(UTC),
        )

    def _write_report(self, ledger: TournamentLedger, setup: TournamentSetup, notice: str) -> TournamentReport:
        duels = ledger.list_duels()
        whole = all(duel.readings or duel.reason for duel in duels)
        report = build_tournament_report(setup, duels, notice, datetime.now(UTC) if whole else None)
        write_document(self.out / f"{REPORT}.html", self.out / f"{REPORT}.json", report)
        return report

    def _say(self, words: str) -> None:
        if words:
            self.console.print(words, highlight=False, markup=False, soft_wrap=True)
