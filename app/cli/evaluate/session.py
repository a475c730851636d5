"""One start of `evaluate`: inspects the gateway, prints the estimate, runs the loop and writes the report."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rich.console import Console

from app.cli.asking import AskedGateway
from app.cli.ends import Ends
from app.cli.evaluate.attempts import attempts_of
from app.cli.evaluate.estimate import Estimate, about, estimated, judged_by, words
from app.cli.evaluate.files import JOURNAL, first_whole, write_evaluation
from app.cli.evaluate.ledger import HAPPENED, Began, Dealt, Ledger, Setup, judging_usd
from app.cli.evaluate.progress import Tally, followed, shown
from app.cli.evaluate.runner import Evaluating, Journal, Work, seed_of
from app.cli.evaluate.wanted import Wanted, begun, require_same_tasks, taken
from app.cli.journal import journaled
from app.cli.patience import Patience
from app.cli.playing import require_model
from app.cli.prices import Prices
from app.cli.stopping import told_to_stop
from app.domain.errors import GatewayError, InvalidRequest
from app.domain.runs import Run
from app.domain.tasks import Message
from app.evaluation.attempts import Evaluation, EvaluationSetup
from app.evaluation.attempts import Sampling as AskedSampling
from app.evaluation.measuring import report_of
from app.evaluation.report import Report
from app.http.api.models import EnvironmentInfo, JudgeInfo
from app.inference.server import InferenceServer
from app.inference.tokenizer import LocalTokenizer
from app.service.requests import HandedOut

GoOn = Callable[[Estimate], bool]


@dataclass(frozen=True)
class Found:
    """The gateway's environment, judges and tasks for this evaluation."""

    environment: EnvironmentInfo
    judges: tuple[JudgeInfo, ...]
    version: str
    tasks: tuple[HandedOut, ...]
    since: datetime | None
    """When the run started, which fixes retrieved contexts and characters; None for a dry run."""


@dataclass(frozen=True)
class Outcome:
    report: Report | None
    """None after a dry run."""
    stopped: bool = False


@dataclass(frozen=True)
class Session:
    wanted: Wanted
    ends: Ends
    concurrency: int
    patience_seconds: float
    prices: Prices
    threshold: float
    tokenizer: LocalTokenizer | None
    console: Console
    go_on: GoOn

    async def run(self) -> Outcome:
        async with self.ends.clients(self.concurrency) as (gateway, policy):
            server = InferenceServer(policy, self.ends.policy, self.wanted.model, self.wanted.sampling)
            found = await self._found(gateway, server, await begun(gateway, self.wanted))
            setup = self.wanted.setup(found.environment, len(found.tasks))
            began = Began(setup=setup, at=datetime.now(UTC))
            with journaled(self.ends.out / JOURNAL, "evaluate", HAPPENED, Ledger(), setup, began) as journal:
                return await self._evaluated(setup, journal, found, gateway, server)

    async def dry_run(self) -> Outcome:
        """Starts no run and writes nothing."""
        async with self.ends.clients(self.concurrency) as (gateway, policy):
            server = InferenceServer(policy, self.ends.policy, self.wanted.model, self.wanted.sampling)
            found = await self._found(gateway, server, await gateway.run(self.wanted.run))
            owed = [self.wanted.samples] * len(found.tasks)
            self._say(found, self._estimate(found, list(zip(found.tasks, owed, strict=True)), owed))
        return Outcome(None)

    async def _evaluated(
        self, setup: Setup, journal: Journal, found: Found, gateway: AskedGateway, server: InferenceServer
    ) -> Outcome:
        ledger = journal.ledger
        if ledger.task_ids:
            require_same_tasks(ledger.task_ids, found.tasks, str(self.ends.out))
        else:
            await journal.add(Dealt(task_ids=tuple(task.task_id for task in found.tasks)))
        finished = True
        if ledger.open():
            estimate = self._owed(ledger, found)
            self._say(found, estimate)
            if not self.go_on(estimate):
                return Outcome(None, stopped=True)
            work = Work(
                setup=setup,
                tasks=found.tasks,
                concurrency=self.concurrency,
                seeded=await self._takes_seeds(server),
                judges_cost=bool(estimate.judging),
            )
            try:
                finished = await self._followed(work, journal, gateway, server)
            except GatewayError:
                self._reported(ledger, found)
                raise
        return Outcome(self._reported(ledger, found), stopped=not finished)

    async def _found(self, gateway: AskedGateway, server: InferenceServer, run: Run | None) -> Found:
        """Validates everything before anything is spent."""
        environment = await gateway.environment(self.wanted.environment)
        await require_model(server)
        tasks = await taken(gateway, environment, self.wanted, None if run is None else run.name)
        if self.wanted.tasks is not None and len(tasks) < self.wanted.tasks:
            told = f"{environment.name} has {len(tasks):,} tasks in its {self.wanted.split} split: using all of them"
            self.console.print(told, highlight=False, markup=False)
        judges, version = await gateway.judges(), await gateway.version()
        return Found(environment, judges.judges, version, tasks, None if run is None else run.created_at)

    def _owed(self, ledger: Ledger, found: Found) -> Estimate:
        """Answered attempts only need scoring; judges always read the whole group."""
        samples = self.wanted.samples
        items = [ledger.item(place) for place in ledger.open()]
        missing = [len([one for one in item.owed(samples) if one not in item.answered]) for item in items]
        owed = [(found.tasks[item.place], count) for item, count in zip(items, missing, strict=True) if count]
        return self._estimate(found, owed, [len(item.owed(samples)) for item in items])

    def _estimate(self, found: Found, owed: Sequence[tuple[HandedOut, int]], groups: Sequence[int]) -> Estimate:
        tokenizer, limit = self.tokenizer, self.wanted.sampling.limit
        judging = judged_by(found.environment, found.judges, groups)
        if tokenizer is None:
            return estimated(owed, limit, self.concurrency, self.prices, judging)
        counted = "by the tokenizer"
        return estimated(owed, limit, self.concurrency, self.prices, judging, _counter(tokenizer), counted)

    def _say(self, found: Found, estimate: Estimate) -> None:
        wanted = self.wanted
        since = "" if found.since is None else f", started {found.since:%Y-%m-%d %H:%M}"
        title = f"{wanted.model} on {wanted.environment}, {wanted.split} split, as run {wanted.run}{since}:"
        own = [
            judge.name for judge in found.judges if judge.name in found.environment.judges and not judge.for_training
        ]
        tried = [f"judge {name}: no model, no cost; for trying out only, not for training" for name in own]
        for line in (title, *(f"  {line}" for line in (*words(estimate), *tried))):
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    async def _takes_seeds(self, server: InferenceServer) -> bool:
        """Requests one token with a seed. RequestRefused when the server refuses it without a seed too."""
        asked, hello = (
            replace(server, sampling=self.wanted.sampling.shortest),
            (Message(role="user", content="Hello."),),
        )
        try:
            await asked.ask(hello, seed=seed_of(self.wanted.seed, 0, 0, 0))
        except InvalidRequest:
            await asked.ask(hello)
            self.console.print("the policy server does not accept seeds: answers are not reproducible", highlight=False)
            return False
        return True

    async def _followed(self, work: Work, journal: Journal, gateway: AskedGateway, server: InferenceServer) -> bool:
        """Returns whether the evaluation was completed."""
        ledger, wanted, patience = journal.ledger, self.wanted, Patience(ends_after=self.patience_seconds)
        tally = Tally(len(work.tasks), wanted.samples, self.threshold, self.prices, ledger.usage)
        owed = set(ledger.open())
        for place in range(len(work.tasks)):
            if place not in owed:
                tally.settled(ledger.item(place))
        evaluating = Evaluating(work, gateway, server, journal, patience, tally)
        with shown(self.console, wanted.environment, tally) as bar:
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

            follow = asyncio.create_task(followed(bar, tally, patience))
            try:
                with told_to_stop(stop):
                    await doing
            except asyncio.CancelledError:
                if not stopped:
                    raise
            finally:
                follow.cancel()
                await follow
                bar.show(tally, patience)
        return not stopped

    def _reported(self, ledger: Ledger, found: Found) -> Report:
        attempts = attempts_of(ledger, found.tasks, found.environment.label)
        whole = len(attempts) == len(found.tasks) * self.wanted.samples
        evaluation = Evaluation(
            setup=self._setup(ledger, found),
            attempts=attempts,
            judging_usd=judging_usd(list(ledger.items.values())),
            finished_at=first_whole(self.ends.out) if whole else None,
        )
        report = report_of(evaluation)
        write_evaluation(self.ends.out, evaluation, report)
        return report

    def _setup(self, ledger: Ledger, found: Found) -> EvaluationSetup:
        wanted, environment, sampling = self.wanted, found.environment, self.wanted.sampling
        named = {"temperature", "top_p", "max_tokens"}
        sent = sampling.parameters
        return EvaluationSetup.model_validate(
            {
                "environment": environment.name,
                "version": environment.version,
                "split": wanted.split,
                "params": wanted.params,
                "tasks": len(found.tasks),
                "samples": wanted.samples,
                "threshold": self.threshold,
                "seed": wanted.seed,
                "model": wanted.model,
                "step": wanted.step,
                "sampling": AskedSampling.model_validate(
                    {name: value for name, value in sent.items() if name in named}
                    | {"extra": {name: value for name, value in sent.items() if name not in named}}
                ),
                "run": wanted.run,
                "label": environment.label,
                "criteria": tuple(criterion.name for criterion in environment.criteria),
                "offline_judges": tuple(judge.name for judge in found.judges if not judge.for_training),
                "gateway": found.version,
                "input_price": self.prices.input,
                "output_price": self.prices.output,
                "started_at": ledger.began_at,
            }
        )


def _counter(tokenizer: LocalTokenizer) -> Callable[[HandedOut], int]:
    def count(task: HandedOut) -> int:
        try:
            return len(tokenizer.prompt(task.messages, task.tools))
        except ValueError:  # templates that refuse what a system message or tools are
            return about(task)

    return count
