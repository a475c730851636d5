"""One start of `tournament`: who takes part, what it costs, the duels, the report."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.address import describe_url
from app.cli.evaluate.files import write_document
from app.cli.gateway_client import GatewayClient
from app.cli.journal import Journal, open_journal
from app.cli.retry import Retrier
from app.cli.signals import stop_on_signals
from app.cli.tournament.contestants import find_shared_rubric, load_entrants, plan_duels
from app.cli.tournament.duel_ledger import (
    TOURNAMENT_EVENT,
    DuelsPlanned,
    PlannedDuel,
    TournamentBegan,
    TournamentEvent,
    TournamentJournalSetup,
    TournamentLedger,
)
from app.cli.tournament.duels import DuelRunner, running
from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.model_names import is_same_model
from app.domain.runs import ScoringOptions
from app.domain.suggestions import suggest
from app.evaluation.tournament import Contestant, Duel, TournamentReport, TournamentSetup
from app.evaluation.tournament_report import build_tournament_report
from app.http.api.models import JudgeInfo
from app.service.rescoring import RescoreEstimate, RescoreRequest
from app.service.run_registry import RunSettings

JOURNAL: Final = "tournament.journal"
REPORT: Final = "tournament"
ESTIMATED: Final = 12
"""Groups whose re-scoring by the judge is estimated, spread over the duels."""
ORDERS: Final = 2

GoOn = Callable[[float | None], bool]
"""Asked with the known cost."""


@dataclass(frozen=True)
class TournamentCost:
    """Of the duels without an outcome; at most, but for corrections and retries."""

    duels: int
    calls: int
    input_tokens: int | None
    usd: float | None
    """None where it is not known."""

    def describe(self) -> str:
        tokens = "" if self.input_tokens is None else f", {self.input_tokens:,} prompt tokens"
        price = "an unknown price" if self.usd is None else f"{self.usd:,.2f} US dollars"
        return f"{self.duels:,} duels, {self.calls:,} calls of the judge{tokens}, {price} at most; retries come on top"


@dataclass(frozen=True)
class TournamentOutcome:
    report: TournamentReport | None
    """None after a dry run, or where nobody went on."""
    stopped: bool = False


@dataclass(frozen=True)
class TournamentSession:
    wanted: TournamentJournalSetup
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
        judge, plan, _ = await self._prepare(gateway)
        self._say(find_notice(judge, plan.contestants, await _fetch_models(gateway)))
        self._say((await estimate_duels(gateway, plan.duels, self.wanted.judge)).describe())
        return TournamentOutcome(None)

    async def hold(self, gateway: GatewayClient) -> TournamentOutcome:
        judge, fresh, options = await self._prepare(gateway)
        await gateway.put_run(self.wanted.run, RunSettings(seed=0, options=options))
        began = TournamentBegan(setup=self.wanted, at=datetime.now(UTC))
        with open_journal(
            self.out / JOURNAL, "tournament", TOURNAMENT_EVENT, TournamentLedger, self.wanted, began
        ) as journal:
            if journal.ledger.plan is None or not journal.ledger.holds_results:
                await journal.add(fresh)
            plan = journal.ledger.plan or fresh
            notice = find_notice(judge, plan.contestants, await _fetch_models(gateway))
            setup = await self._build_setup(gateway, judge, plan, journal.ledger)
            return await self._play(gateway, journal, plan, setup, notice)

    async def _play(
        self,
        gateway: GatewayClient,
        journal: Journal[TournamentEvent, TournamentLedger],
        plan: DuelsPlanned,
        setup: TournamentSetup,
        notice: str,
    ) -> TournamentOutcome:
        finished = True
        if places := journal.ledger.list_open():
            cost = await estimate_duels(gateway, [plan.duels[place] for place in places], self.wanted.judge)
            self._say(notice)
            self._say(cost.describe())
            if not self.go_on(cost.usd):
                return TournamentOutcome(None, stopped=True)
            try:
                finished = await self._judge_duels(gateway, journal, plan)
            except GatewayError:
                self._write_report(journal.ledger, setup, notice)
                raise
        return TournamentOutcome(self._write_report(journal.ledger, setup, notice), stopped=not finished)

    async def _prepare(self, gateway: GatewayClient) -> tuple[JudgeInfo, DuelsPlanned, ScoringOptions]:
        """Checks everything before anything is spent. The options are those of the run of the pairs."""
        judge = await fetch_judge(gateway, self.wanted.judge)
        entrants = await load_entrants(gateway, self.wanted.contestants, self.wanted.environment)
        plan = plan_duels(entrants, self.wanted.tasks, self.wanted.seed)
        for name in sorted({duel.environment for duel in plan.duels}):
            if (await gateway.fetch_environment(name)).mode is None:
                raise InvalidRequest(f"{name} is scored by a verifier: use `atropos-envs compare` or `runs compare`")
        known = find_kin(judge, plan.contestants, await _fetch_models(gateway))
        if known and not self.allows_same_model:
            raise InvalidRequest(
                f"judge {judge.name} is of the model {judge.model}, {' and '.join(known)}: name another with --judge, "
                "or allow it with --same-model"
            )
        rubric = await find_shared_rubric(gateway, entrants)
        options = ScoringOptions(mode="pairwise", votes=1, judges=(judge.name,), calibration_share=0.0, rubric=rubric)
        return judge, plan, options

    async def _judge_duels(
        self, gateway: GatewayClient, journal: Journal[TournamentEvent, TournamentLedger], plan: DuelsPlanned
    ) -> bool:
        """Returns whether all were judged."""
        columns = (TextColumn("duels"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[words]}"), console=self.console) as progress:
            done = len(plan.duels) - len(journal.ledger.list_open())
            bar = progress.add_task("", total=len(plan.duels), completed=done, words="")
            runner = DuelRunner(
                gateway=gateway,
                journal=journal,
                plan=plan.duels,
                run=self.wanted.run,
                concurrency=self.concurrency,
                patience=Retrier(ends_after=self.patience_seconds),
                on_judged=lambda duel: progress.update(bar, advance=1, words=_describe_spending(journal.ledger)),
                retry_seconds=self.retry_seconds,
            )
            async with running(runner) as doing:

                def stop() -> None:
                    if runner.stopped:
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
            run=self.wanted.run,
            seed=self.wanted.seed,
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


async def fetch_judge(gateway: GatewayClient, name: str) -> JudgeInfo:
    judges = {judge.name: judge for judge in (await gateway.list_judges()).judges}
    if name not in judges:
        near = suggest(name, judges) or f"; there are: {', '.join(sorted(judges))}"
        raise NotFound(f"the gateway has no judge {name!r}{near}")
    return judges[name]


async def _fetch_models(gateway: GatewayClient) -> dict[str, str]:
    return {judge.name: judge.model for judge in (await gateway.list_judges()).judges}


def find_kin(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> list[str]:
    """In which ways the judge is no stranger to the contestants. `models` are those of judges by name."""
    found = []
    before = sorted({name for contestant in contestants for name in contestant.judges})
    same = [name for name in before if name == judge.name or is_same_model(models.get(name, name), judge.model)]
    if same:
        found.append(f"which scored these runs as {', '.join(same)}")
    played = sorted({model for contestant in contestants for model in contestant.models})
    own = [model for model in played if is_same_model(model, judge.model)]
    if own:
        found.append(f"which wrote the replies of {', '.join(own)}")
    return found


def find_notice(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> str:
    """The first line of the report."""
    told = []
    if not judge.for_training:
        told.append(f"Judge {judge.name} has no model and is only for trying the system: this says nothing of quality.")
    if known := find_kin(judge, contestants, models):
        told.append(
            f"Judge {judge.name} is of the model {judge.model}, {' and '.join(known)}: a model may only have learnt "
            "what this judge likes."
        )
    return " ".join(told)


async def estimate_duels(gateway: GatewayClient, duels: Sequence[PlannedDuel], judge: str) -> TournamentCost:
    """By what it would take this judge to read some of the stored groups in pairs."""
    count = min(len(duels), ESTIMATED)
    sampled = {duels[place * len(duels) // count].replies[0].group_id for place in range(count)}
    asked = RescoreRequest(judges=(judge,), mode="pairwise", votes=1)
    some: list[RescoreEstimate] = []
    for group_id in sorted(sampled):
        try:
            some.append(await gateway.estimate_rescore(group_id, asked))
        except (NotFound, InvalidRequest):  # it is gone, or its text is not kept: others say enough
            continue
    calls, known = sum(one.calls for one in some), ORDERS * len(duels)
    if not calls:
        return TournamentCost(len(duels), known, None, None)
    prices = [one.cost_usd for one in some]
    usd = None if None in prices else sum(price for price in prices if price is not None) / calls * known
    return TournamentCost(len(duels), known, round(sum(one.input_tokens for one in some) / calls * known), usd)


def _describe_spending(ledger: TournamentLedger) -> str:
    duels: list[Duel] = list(ledger.judged.values())
    usd = sum(duel.usd or 0.0 for duel in duels)
    return f"{sum(duel.calls for duel in duels):,} calls, ${usd:.4f}"
