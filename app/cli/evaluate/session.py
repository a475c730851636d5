"""One start of `evaluate`: inspects the gateway, prints the estimate, runs the loop and writes the report."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rich.console import Console

from app.cli.address import describe_url
from app.cli.consoles import GoOn
from app.cli.endpoints import Endpoints
from app.cli.episode_tokens import probe_server
from app.cli.evaluate.attempt_assembly import build_attempts, build_evaluation_setup
from app.cli.evaluate.estimate import (
    CostEstimate,
    describe_estimate,
    estimate_cost,
    estimate_judging,
    estimate_prompt_tokens,
)
from app.cli.evaluate.eval_spec import EvaluationContext, EvaluationSpec, ensure_run, fetch_tasks, require_same_tasks
from app.cli.evaluate.files import JOURNAL, find_finish_time, write_evaluation
from app.cli.evaluate.ledger import (
    EVALUATION_EVENT,
    EvaluationBegan,
    EvaluationJournalSetup,
    EvaluationLedger,
    TasksDealt,
    sum_judging_usd,
)
from app.cli.evaluate.progress import EvaluationTally, follow_progress, show_progress
from app.cli.evaluate.runner import EvaluationRunner, EvaluationWork, Journal, TokenRecorder, derive_seed
from app.cli.gateway_client import GatewayClient
from app.cli.journal import open_journal, read_ledger
from app.cli.prices import PolicyPrices
from app.cli.retry import Retrier
from app.cli.rollout import require_model
from app.cli.signals import stop_on_signals
from app.domain.errors import GatewayError, InvalidRequest
from app.domain.runs import Run
from app.domain.tasks import Message
from app.evaluation.attempts import Evaluation
from app.evaluation.report import EvaluationReport
from app.evaluation.report_builder import build_report
from app.inference.server import InferenceServer
from app.inference.token_check import TokenCheckTally
from app.inference.tokenizer import LocalTokenizer
from app.service.request_models import HandedOutTask


@dataclass(frozen=True)
class EvaluationOutcome:
    report: EvaluationReport | None
    """None after a dry run."""
    stopped: bool = False


@dataclass(frozen=True)
class EvaluationSurvey:
    tasks: int
    missing: CostEstimate | None
    """None where nothing is missing."""


@dataclass(frozen=True)
class TokenOptions:
    """What is done with the token ids that the policy server tells."""

    keeps: bool = False
    stores: bool = False
    checks: bool = False

    @property
    def needed_by(self) -> list[str]:
        named = {"--keep-tokens": self.keeps, "--store-tokens": self.stores, "--check-tokens": self.checks}
        return [name for name, wanted in named.items() if wanted]


@dataclass(frozen=True)
class EvaluationSession:
    wanted: EvaluationSpec
    ends: Endpoints
    concurrency: int
    patience_seconds: float
    prices: PolicyPrices
    threshold: float
    tokenizer: LocalTokenizer | None
    console: Console
    go_on: GoOn | None
    """None where the cost was told and agreed to before."""
    tokens: TokenOptions = TokenOptions()

    async def run(self) -> EvaluationOutcome:
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            server = InferenceServer(policy, self.wanted.model, self.wanted.sampling)
            found = await self._inspect_gateway(gateway, server, await ensure_run(gateway, self.wanted))
            server = await self._request_tokens(server)
            setup = self.wanted.build_setup(found.environment, len(found.tasks))
            began = EvaluationBegan(setup=setup, at=datetime.now(UTC))
            with open_journal(
                self.ends.out / JOURNAL, "evaluate", EVALUATION_EVENT, EvaluationLedger, setup, began
            ) as journal:
                return await self._evaluate(setup, journal, found, gateway, server)

    async def dry_run(self) -> EvaluationOutcome:
        """Starts no run and writes nothing."""
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            server = InferenceServer(policy, self.wanted.model, self.wanted.sampling)
            found = await self._inspect_gateway(gateway, server, await gateway.fetch_run(self.wanted.run))
            self._print_estimate(found, self._estimate_remaining(self._new_ledger(found), found))
        return EvaluationOutcome(None)

    async def survey(self) -> EvaluationSurvey:
        """Says what is missing of it, and checks that this can be done. Starts no run and writes nothing. Where nothing
        is missing, the policy's server may be gone."""
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            found = await self._inspect_gateway(gateway, None, await gateway.fetch_run(self.wanted.run))
            setup = self.wanted.build_setup(found.environment, len(found.tasks))
            ledger = read_ledger(self.ends.out / JOURNAL, "evaluate", EVALUATION_EVENT, EvaluationLedger, setup)
            if not ledger.holds_results:
                ledger = self._new_ledger(found)
            if not ledger.list_open():
                return EvaluationSurvey(len(found.tasks), None)
            await require_model(InferenceServer(policy, self.wanted.model, self.wanted.sampling))
            estimate = self._estimate_remaining(ledger, found)
            self._print_estimate(found, estimate)
            return EvaluationSurvey(len(found.tasks), estimate)

    async def begin(self) -> tuple[HandedOutTask, ...]:
        """Starts the run. Its tasks are then those that the policy is asked."""
        async with self.ends.open_clients(self.concurrency) as (gateway, _):
            run = await ensure_run(gateway, self.wanted)
            return await fetch_tasks(
                gateway, await gateway.fetch_environment(self.wanted.environment), self.wanted, run.name
            )

    async def _evaluate(
        self,
        setup: EvaluationJournalSetup,
        journal: Journal,
        found: EvaluationContext,
        gateway: GatewayClient,
        server: InferenceServer,
    ) -> EvaluationOutcome:
        ledger = journal.ledger
        if ledger.task_ids:
            require_same_tasks(ledger.task_ids, found.tasks, str(self.ends.out))
        else:
            await journal.add(TasksDealt(task_ids=tuple(task.task_id for task in found.tasks)))
        finished = True
        if ledger.list_open():
            estimate = self._estimate_remaining(ledger, found)
            if self.go_on is not None:
                self._print_estimate(found, estimate)
                if not self.go_on(estimate.known_usd):
                    return EvaluationOutcome(None, stopped=True)
            work = EvaluationWork(
                setup=setup,
                tasks=found.tasks,
                concurrency=self.concurrency,
                seeded=await self._accepts_seeds(server),
                judges_cost=bool(estimate.judging),
                tokens=self._build_recorder(),
            )
            try:
                finished = await self._run_with_progress(work, journal, gateway, server)
                for line in [] if work.tokens.tally is None else work.tokens.tally.lines:
                    self.console.print(line, highlight=False, markup=False, soft_wrap=True)
            except GatewayError:
                self._write_report(ledger, found)
                raise
        return EvaluationOutcome(self._write_report(ledger, found), stopped=not finished)

    async def _inspect_gateway(
        self, gateway: GatewayClient, server: InferenceServer | None, run: Run | None
    ) -> EvaluationContext:
        """Validates everything before anything is spent. Without a server all but the model."""
        environment = await gateway.fetch_environment(self.wanted.environment)
        if server is not None:
            await require_model(server)
        tasks = await fetch_tasks(gateway, environment, self.wanted, None if run is None else run.name)
        if self.wanted.tasks is not None and len(tasks) < self.wanted.tasks:
            told = f"{environment.name} has {len(tasks):,} tasks in its {self.wanted.split} split: using all of them"
            self.console.print(told, highlight=False, markup=False)
        judges, version = await gateway.list_judges(), await gateway.fetch_version()
        return EvaluationContext(environment, judges.judges, version, tasks, None if run is None else run.created_at)

    def _new_ledger(self, found: EvaluationContext) -> EvaluationLedger:
        return EvaluationLedger(self.wanted.build_setup(found.environment, len(found.tasks)))

    def _estimate_remaining(self, ledger: EvaluationLedger, found: EvaluationContext) -> CostEstimate:
        """Answered attempts only need scoring; judges always read the whole group."""
        samples = self.wanted.samples
        items = [ledger.get_item(place) for place in ledger.list_open()]
        missing = [len([one for one in item.list_owed(samples) if one not in item.answered]) for item in items]
        owed = [(found.tasks[item.place], count) for item, count in zip(items, missing, strict=True) if count]
        return self._estimate(found, owed, [len(item.list_owed(samples)) for item in items])

    def _estimate(
        self, found: EvaluationContext, owed: Sequence[tuple[HandedOutTask, int]], groups: Sequence[int]
    ) -> CostEstimate:
        tokenizer, limit = self.tokenizer, self.wanted.sampling.limit
        judging = estimate_judging(found.environment, found.judges, groups)
        if tokenizer is None:
            return estimate_cost(owed, limit, self.concurrency, self.prices, judging)
        counted = "by the tokenizer"
        return estimate_cost(owed, limit, self.concurrency, self.prices, judging, _build_counter(tokenizer), counted)

    def _print_estimate(self, found: EvaluationContext, estimate: CostEstimate) -> None:
        wanted = self.wanted
        since = "" if found.since is None else f", started {found.since:%Y-%m-%d %H:%M}"
        title = f"{wanted.model} on {wanted.environment}, {wanted.split} split, as run {wanted.run}{since}:"
        own = [
            judge.name for judge in found.judges if judge.name in found.environment.judges and not judge.for_training
        ]
        tried = [f"judge {name}: no model, no cost; for trying out only, not for training" for name in own]
        for line in (title, *(f"  {line}" for line in (*describe_estimate(estimate), *tried))):
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    async def _request_tokens(self, server: InferenceServer) -> InferenceServer:
        """A server that is asked for token ids where they are needed. InvalidRequest when it returns none."""
        if not self.tokens.needed_by:
            return server
        extensions, said = await probe_server(server)
        if not said.has_tokens:
            raise InvalidRequest(f"{', '.join(self.tokens.needed_by)}: {server.base} returns no token ids")
        return replace(server, extensions=extensions)

    def _build_recorder(self) -> TokenRecorder:
        return TokenRecorder(
            out=self.ends.out if self.tokens.keeps else None,
            stores=self.tokens.stores,
            tokenizer=self.tokenizer,
            tally=TokenCheckTally() if self.tokens.checks else None,
        )

    async def _accepts_seeds(self, server: InferenceServer) -> bool:
        """Requests one token with a seed. RequestRefused when the server refuses it without a seed too."""
        asked, hello = (
            replace(server, sampling=self.wanted.sampling.shortest),
            (Message(role="user", content="Hello."),),
        )
        try:
            await asked.ask(hello, seed=derive_seed(self.wanted.seed, 0, 0, 0))
        except InvalidRequest:
            await asked.ask(hello)
            self.console.print("the policy server does not accept seeds: answers are not reproducible", highlight=False)
            return False
        return True

    async def _run_with_progress(
        self, work: EvaluationWork, journal: Journal, gateway: GatewayClient, server: InferenceServer
    ) -> bool:
        """Returns whether the evaluation was completed."""
        ledger, wanted, patience = journal.ledger, self.wanted, Retrier(ends_after=self.patience_seconds)
        tally = EvaluationTally(len(work.tasks), wanted.samples, self.threshold, self.prices, ledger.usage)
        owed = set(ledger.list_open())
        for place in range(len(work.tasks)):
            if place not in owed:
                tally.add_item(ledger.get_item(place))
        evaluating = EvaluationRunner(work, gateway, server, journal, patience, tally)
        with show_progress(self.console, wanted.environment, tally) as bar:
            doing = asyncio.create_task(evaluating.run())
            stopped = False

            def stop() -> None:
                nonlocal stopped
                if stopped:
                    doing.cancel()
                    return
                stopped = True
                evaluating.stop()
                bar.say(
                    f"finishing {evaluating.in_hand} running tasks; press Ctrl-C again to leave them for the next start"
                )

            follow = asyncio.create_task(follow_progress(bar, tally, patience))
            try:
                with stop_on_signals(stop):
                    await doing
            except asyncio.CancelledError:
                if not stopped:
                    raise
            finally:
                follow.cancel()
                await follow
                bar.show(tally, patience)
        return not stopped

    def _write_report(self, ledger: EvaluationLedger, found: EvaluationContext) -> EvaluationReport:
        attempts = build_attempts(ledger, found.tasks, found.environment.label)
        whole = len(attempts) == len(found.tasks) * self.wanted.samples
        evaluation = Evaluation(
            setup=build_evaluation_setup(
                self.wanted, found, ledger, self.threshold, self.prices, describe_url(self.ends.gateway)
            ),
            attempts=attempts,
            judging_usd=sum_judging_usd(list(ledger.items.values())),
            finished_at=find_finish_time(self.ends.out) if whole else None,
        )
        report = build_report(evaluation)
        write_evaluation(self.ends.out, evaluation, report)
        return report


def _build_counter(tokenizer: LocalTokenizer) -> Callable[[HandedOutTask], int]:
    def count(task: HandedOutTask) -> int:
        try:
            return len(tokenizer.encode_prompt(task.messages, task.tools))
        except ValueError:  # templates that refuse what a system message or tools are
            return estimate_prompt_tokens(task)

    return count
