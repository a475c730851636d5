"""One start of `tournament`: who takes part, what it costs, the duels, the report."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
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
"""Asked with the cost, which is None where it is not known."""


@dataclass(frozen=True)
class TournamentCost:
    """Of the duels without an outcome, by some of them. Corrections and retries come on top."""

    duels: int
    calls: int
    input_tokens: int | None
    usd: float | None
    """None where it is not known."""

    def describe(self) -> str:
        tokens = "" if self.input_tokens is None else f", about {self.input_tokens:,} prompt tokens"
        price = "an unknown price" if self.usd is None else f"about {self.usd:,.2f} US dollars"
        return f"{self.duels:,} duels, {self.calls:,} calls of the judge{tokens}, {price}; retries come on top"


@dataclass(frozen=True)
class TournamentOutcome:
    report: TournamentReport | None
    """None after a dry run, or where nobody went on."""
    stopped: bool = False


@dataclass(frozen=True)
class TournamentStart:
    """What was checked before anything is spent or written. `options` are those of the run of the pairs."""

    judge: JudgeInfo
    models: dict[str, str]
    """Of all judges, by name."""
    plan: DuelsPlanned
    options: ScoringOptions

    def tell_notice(self, contestants: Sequence[Contestant]) -> str:
        return find_notice(self.judge, contestants, self.models)


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
        start = await self._prepare(gateway)
        await self._tell_cost(gateway, start.tell_notice(start.plan.contestants), start.plan.duels)
        return TournamentOutcome(None)

    async def hold(self, gateway: GatewayClient) -> TournamentOutcome:
        """Nothing is begun before somebody goes on."""
        start = await self._prepare(gateway)
        plan, open_duels = self._find_open(start.plan)
        notice = start.tell_notice(plan.contestants)
        if open_duels:
            if not self.go_on((await self._tell_cost(gateway, notice, open_duels)).usd):
                return TournamentOutcome(None, stopped=True)
            await gateway.put_run(self.wanted.run, RunSettings(seed=0, options=start.options))
        with self._open_journal() as journal:
            if journal.ledger.plan is None or not journal.ledger.holds_results:
                await journal.add(plan)
            setup = await self._build_setup(gateway, start.judge, plan, journal.ledger)
            try:
                finished = not open_duels or await self._judge_duels(gateway, journal, plan)
            except GatewayError:
                self._write_report(journal.ledger, setup, notice)
                raise
            return TournamentOutcome(self._write_report(journal.ledger, setup, notice), stopped=not finished)

    def _find_open(self, fresh: DuelsPlanned) -> tuple[DuelsPlanned, list[PlannedDuel]]:
        """The plan, which is that of an earlier start where this had outcomes, and its duels without one."""
        if (self.out / JOURNAL).exists():
            with self._open_journal() as journal:
                ledger = journal.ledger
                if ledger.plan is not None and ledger.holds_results:
                    return ledger.plan, [ledger.plan.duels[place] for place in ledger.list_open()]
        return fresh, list(fresh.duels)

    def _open_journal(self) -> AbstractContextManager[Journal[TournamentEvent, TournamentLedger]]:
        began = TournamentBegan(setup=self.wanted, at=datetime.now(UTC))
        return open_journal(self.out / JOURNAL, "tournament", TOURNAMENT_EVENT, TournamentLedger, self.wanted, began)

    async def _tell_cost(self, gateway: GatewayClient, notice: str, duels: Sequence[PlannedDuel]) -> TournamentCost:
        cost = await estimate_duels(gateway, duels, self.wanted.judge)
        self._say(notice)
        self._say(cost.describe())
        return cost

    async def _prepare(self, gateway: GatewayClient) -> TournamentStart:
        """Checks everything before anything is spent."""
        judges = {judge.name: judge for judge in (await gateway.list_judges()).judges}
        models = {judge.name: judge.model for judge in judges.values()}
        judge = find_judge(judges, self.wanted.judge)
        entrants = await load_entrants(gateway, self.wanted.contestants, self.wanted.environment)
        plan = plan_duels(entrants, self.wanted.tasks, self.wanted.seed)
        for name in sorted({duel.environment for duel in plan.duels}):
            if (await gateway.fetch_environment(name)).mode is None:
                raise InvalidRequest(f"{name} is scored by a verifier: use `atropos-envs compare` or `runs compare`")
        known = find_kin(judge, plan.contestants, models)
        if known and not self.allows_same_model:
            raise InvalidRequest(
                f"judge {judge.name} is of the model {judge.model}, {' and '.join(known)}: name another with --judge, "
                "or allow it with --same-model"
            )
        rubric = await find_shared_rubric(gateway, entrants)
        options = ScoringOptions(mode="pairwise", votes=1, judges=(judge.name,), calibration_share=0.0, rubric=rubric)
        return TournamentStart(judge, models, plan, options)

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
                on_judged=lambda duel: progress.update(
                    bar, advance=1, words=describe_spending(journal.ledger.judged.values())
                ),
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


def find_judge(judges: Mapping[str, JudgeInfo], name: str) -> JudgeInfo:
    if name not in judges:
        near = suggest(name, judges) or f"; there are: {', '.join(sorted(judges))}"
        raise NotFound(f"the gateway has no judge {name!r}{near}")
    return judges[name]


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
    if unknown := [contestant.name for contestant in contestants if not contestant.judges]:
        told.append(
            f"Who scored {', '.join(unknown)} is not known, as no reply that was read names a judge: "
            f"{judge.name} may be no stranger."
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


def describe_spending(duels: Collection[Duel]) -> str:
    prices = [duel.usd for duel in duels if duel.calls]
    price = "price unknown" if None in prices else f"${sum(price for price in prices if price is not None):.4f}"
    return f"{sum(duel.calls for duel in duels):,} calls, {price}"
