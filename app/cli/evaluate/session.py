"""One start of `evaluate`: checks everything, prints the estimate, runs the loop and writes the report.

Nothing is spent before the environment, the model and the tasks are known and somebody has gone on. The loop makes the
attempts that the run lacks, and sends each as it ends, as a piece of its task's group. A group without a reward is
asked for a few times, then left for the next start: nothing is guessed for it. Many tasks in a row without a reward end
the evaluation, since something is then wrong with all of them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from app.cli.campaigns import (
    Campaign,
    CampaignOutcome,
    RewardTally,
    conclude,
    find_finish_time,
    resume,
    sum_judgement_usd,
)
from app.cli.costs import (
    CostEstimate,
    bound_prompt_tokens,
    describe_estimate,
    estimate_evaluation_judging,
    estimate_sampling,
)
from app.cli.evaluate.attempts import (
    REPORT,
    AttemptAnswered,
    AttemptFailed,
    AttemptNotes,
    AttemptTokens,
    EvaluationContext,
    EvaluationLedger,
    EvaluationPlan,
    EvaluationSpec,
    EvaluationTally,
    TaskProgress,
    append_tokens,
    build_attempts,
    build_evaluation_setup,
    fetch_tasks,
    load_ledger,
    open_plan_file,
    require_same_tasks,
    write_evaluation,
)
from app.cli.policies import (
    POLICY,
    Endpoints,
    PolicyPrices,
    RolloutPlayer,
    TaskSkipped,
    TokenCheck,
    ToolCheck,
    add_token_ids,
    build_exchanges,
    describe_missing_ids,
    gather_or_cancel,
    list_policy_waits,
    probe_server,
    require_model,
)
from app.domain.errors import InvalidRequest, UserError
from app.domain.runs import Run
from app.domain.tasks import Completion, Message
from app.evaluation.report import Evaluation, EvaluationReport, build_report
from app.inference.policies import ChatEpisode, InferenceServer, build_turns
from app.inference.tokens import LocalTokenizer
from app.inference.wire import Usage
from app.service.requests import HandedOutTask
from app.service.runs import RunSettings
from app.terminal.client import AnsweredTask, GatewayClient, Retrier, describe_url
from app.terminal.consoles import GoOn, Standing, show_progress
from app.toolkit.texts import escape_invisible

_MOST_IN_A_ROW: Final = 32
"""Consecutive tasks without a reward after which the evaluation is aborted."""

# Sampling and scoring of what the ledger lacks.


@dataclass(frozen=True)
class _TokenRecorder:
    """What is done with the ids that the policy server tells."""

    out: Path | None = None
    """The folder that keeps them."""
    stores: bool = False
    """Whether the gateway gets those of single messages."""
    check: TokenCheck | None = None

    async def record(self, task: HandedOutTask, index: int, sample: int, episode: ChatEpisode) -> Completion:
        """The completion to be scored. TaskSkipped when ids are to be kept and the server told none."""
        if self.check is not None:
            await self.check.add_episodes(task, [episode])
        if self.out is not None:
            if not all(message.has_tokens for message in episode.said):
                raise TaskSkipped("no_tokens", "the policy's server returned no token ids")
            turns = build_turns(build_exchanges(task, episode, None))
            tokens = AttemptTokens(task_id=task.task_id, place=index, sample=sample, turns=turns)
            await asyncio.to_thread(append_tokens, self.out, tokens)
        return add_token_ids(episode) if self.stores else episode.completion


@dataclass(frozen=True)
class _EvaluationWork:
    tasks: Sequence[HandedOutTask]
    """In order of their index."""
    concurrency: int
    """Concurrent attempts."""
    seeded: bool
    """Whether the policy server accepts seeds."""
    judges_cost: bool
    """Whether judging costs are fetched after scoring."""
    tokens: _TokenRecorder = _TokenRecorder()


@dataclass(frozen=True)
class _EvaluationRunner:
    work: _EvaluationWork
    campaign: Campaign
    server: InferenceServer
    ledger: EvaluationLedger
    tally: EvaluationTally
    rewards: RewardTally
    tools: ToolCheck
    line: asyncio.Semaphore
    """Of attempts."""

    async def run(self) -> None:
        """Returns when there is nothing left to do. RequestRefused when no task can be evaluated, Unavailable when the
        gateway stays unreachable."""
        # Twice as many tasks as fill the policy server: while one half is scored, the other half samples.
        hands = 2 * -(-self.work.concurrency // self._plan.options.samples)
        await self.campaign.work_through(self.ledger.list_open(), self._evaluate_task, hands)

    @property
    def _plan(self) -> EvaluationPlan:
        return self.ledger.plan

    async def _evaluate_task(self, index: int) -> None:
        item, task = self.ledger.items[index], self.work.tasks[index]
        missing = [sample for sample in range(self._plan.options.samples) if sample not in item.answered]
        await gather_or_cancel([self._make_attempt(task, item, sample) for sample in missing])
        for generation, sample in item.list_unscored().items():
            await self._score(task, item, generation, sample)
        self.tally.add_item(item)
        self.rewards.add_scores([scored.score for scored in item.scored.values()])
        rewarded = any(item.find_reward(sample) is not None for sample in range(self._plan.options.samples))
        self.campaign.note_result(None if rewarded else _explain_missing_reward(item))

    async def _make_attempt(self, task: HandedOutTask, item: TaskProgress, sample: int) -> None:
        usage, took, counted = Usage(), 0.0, True

        def note(more: Usage, seconds: float) -> None:
            nonlocal usage, took, counted
            usage, took, counted = usage + more, took + seconds, counted and more.prompt_tokens > 0
            self.tally.add_usage(more)

        def choose_seed(turn: int) -> int | None:
            return derive_seed(self._plan.options.seed, item.index, sample, turn) if self.work.seeded else None

        player = RolloutPlayer(self.server, self.campaign.gateway, self.campaign.patience, note, self.tools)
        try:
            # Sent before another begins: a kill loses no more attempts than are asked for at once.
            async with self.line:
                episode = await player.play_episode(task, choose_seed)
                completion = await self.work.tokens.record(task, item.index, sample, episode)
                notes = AttemptNotes(
                    turns=len(episode.said),
                    input_tokens=usage.prompt_tokens if counted else None,
                    output_tokens=usage.completion_tokens if counted else None,
                    seconds=took,
                )
                item.answered[sample] = AttemptAnswered.begin(completion, notes)
                await self._send(task, item, sample)
        except TaskSkipped as left_out:
            item.failed[sample] = _explain_failure(left_out)

    async def _send(self, task: HandedOutTask, item: TaskProgress, sample: int) -> None:
        """The run holds the attempt when this returns."""
        generation = item.generation
        reply = await self.campaign.send(self._name(task, item, sample, generation), wait_seconds=0.0)
        item.generations[sample] = generation
        if reply.group_id != self._plan.compute_group_id(task.task_id, generation):  # it came after a day
            await self._take_group(item, reply.group_id, generation)

    async def _score(self, task: HandedOutTask, item: TaskProgress, generation: int, sample: int) -> None:
        """Has the group of this attempt scored, a few times where it is unscored. It waits for no more attempts."""
        try:
            reply = await self.campaign.score(self._name(task, item, sample, generation, closes=True))
        except TaskSkipped as left_out:
            item.failed.update(
                (one, _explain_failure(left_out)) for one in item.generations if item.generations[one] == generation
            )
            return
        await self._take_group(item, reply.group_id, generation)

    def _name(
        self, task: HandedOutTask, item: TaskProgress, sample: int, generation: int, *, closes: bool = False
    ) -> AnsweredTask:
        part = self._plan.name_piece(sample, generation, closes=closes)
        return AnsweredTask(task.task_id, None, [item.answered[sample].completion], part)

    async def _take_group(self, item: TaskProgress, group_id: str, generation: int) -> None:
        view = await self.campaign.fetch_group(group_id)
        cost = sum_judgement_usd(view.judgements) if self.work.judges_cost else None
        item.take_group(view.group, generation, cost)


def _explain_missing_reward(item: TaskProgress) -> str:
    for failed in item.failed.values():
        return f"{failed.reason}: {failed.detail}"
    reasons = {one.score.reason for one in item.scored.values() if one.score.reason is not None}
    return ", ".join(sorted(reasons)) or "unknown"


def _explain_failure(left_out: TaskSkipped) -> AttemptFailed:
    return AttemptFailed(reason=left_out.reason, detail=left_out.detail[:500])


def derive_seed(seed: int, index: int, sample: int, turn: int) -> int:
    """Seed of one answer, the same in every start. 31 bits, since some servers accept no more."""
    return random.Random(f"{seed}:{index}:{sample}:{turn}").getrandbits(31)  # noqa: S311  # repeatable, not secret


@dataclass(frozen=True)
class TokenOptions:
    """What is done with the token ids that the policy server tells."""

    keeps: bool = False
    stores: bool = False
    checks: bool = False

    @property
    def needed_by(self) -> list[str]:
        options = {"--keep-tokens": self.keeps, "--store-tokens": self.stores, "--check-tokens": self.checks}
        return [name for name, is_set in options.items() if is_set]


@dataclass(frozen=True)
class EvaluationSession:
    spec: EvaluationSpec
    ends: Endpoints
    concurrency: int
    patience_seconds: float
    prices: PolicyPrices
    threshold: float
    tokenizer: LocalTokenizer | None
    console: Console
    go_on: GoOn
    tokens: TokenOptions = TokenOptions()

    async def run(self) -> CampaignOutcome[EvaluationReport]:
        file = open_plan_file(self.ends.out)
        before = file.read()
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            server = InferenceServer(policy, self.spec.model, self.spec.sampling)
            known = await gateway.fetch_run(self.spec.run)
            context = await self._inspect_gateway(gateway, server, known)
            seeded = None
            if known is None:  # made when the policy has answered, so that a wrong URL leaves no empty run
                if not self._agree([TaskProgress(place) for place in range(len(context.tasks))], context):
                    return CampaignOutcome(None, stopped=True)
                seeded = await self._accepts_seeds(server)
            server = await self._request_tokens(server)
            if known is None:
                run = await gateway.put_run(self.spec.run, RunSettings(seed=self.spec.seed))
                context = await self._inspect_gateway(gateway, server, run)
            options = self.spec.build_options(context.environment, len(context.tasks))
            task_ids = tuple(task.task_id for task in context.tasks)
            plan = EvaluationPlan(options=options, task_ids=task_ids, began_at=datetime.now(UTC))
            campaign = self._begin(gateway, plan)
            costs = bool(estimate_evaluation_judging(context.environment, context.judges, ()))

            async def load(one: EvaluationPlan) -> EvaluationLedger:
                if one.options.run == self.spec.run and known is None:  # it holds nothing
                    return EvaluationLedger.begin(one)
                return await load_ledger(campaign, one, self.concurrency, judges_cost=costs)

            with file.hold():
                ledger = await resume(file.path, before, plan, load)
                require_same_tasks(ledger.plan.task_ids, context.tasks, str(self.ends.out))
                return await self._evaluate(campaign, ledger, context, server, seeded)

    def _begin(self, gateway: GatewayClient, plan: EvaluationPlan) -> Campaign:
        return Campaign(
            gateway=gateway,
            patience=Retrier(ends_after=self.patience_seconds),
            run=self.spec.run,
            unit="tasks",
            most_in_a_row=_MOST_IN_A_ROW,
            comes_to_nothing="got no score",
            policy=plan.policy.model_dump(mode="json"),
        )

    async def dry_run(self) -> CampaignOutcome[EvaluationReport]:
        """Starts no run and writes nothing."""
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            server = InferenceServer(policy, self.spec.model, self.spec.sampling)
            context = await self._inspect_gateway(gateway, server, await gateway.fetch_run(self.spec.run))
            self._print_estimate(
                context, self._estimate_remaining([TaskProgress(place) for place in range(len(context.tasks))], context)
            )
        return CampaignOutcome(None)

    async def _evaluate(
        self,
        campaign: Campaign,
        ledger: EvaluationLedger,
        context: EvaluationContext,
        server: InferenceServer,
        seeded: bool | None,
    ) -> CampaignOutcome[EvaluationReport]:
        """`seeded`: whether the policy takes seeds; None where nobody was asked about the cost yet either."""
        if not ledger.list_open():
            return CampaignOutcome(self._write_report(ledger, context))
        if seeded is None:
            if not self._agree(ledger.items, context):
                return CampaignOutcome(None, stopped=True)
            seeded = await self._accepts_seeds(server)
        open_plan_file(self.ends.out).write(ledger.plan)
        work = _EvaluationWork(
            tasks=context.tasks,
            concurrency=self.concurrency,
            seeded=seeded,
            judges_cost=bool(self._estimate_remaining(ledger.items, context).judging),
            tokens=self._build_recorder(),
        )
        return await conclude(
            self._run_with_progress(work, campaign, ledger, server), lambda: self._write_report(ledger, context)
        )

    def _agree(self, items: Sequence[TaskProgress], context: EvaluationContext) -> bool:
        """Prints what the rest of these tasks costs. Whether somebody goes on."""
        estimate = self._estimate_remaining(items, context)
        self._print_estimate(context, estimate)
        return self.go_on(estimate.most_usd)

    async def _inspect_gateway(
        self, gateway: GatewayClient, server: InferenceServer, run: Run | None
    ) -> EvaluationContext:
        """Validates everything before anything is spent."""
        environment = await gateway.fetch_environment(self.spec.environment)
        await require_model(server)
        tasks = await fetch_tasks(gateway, environment, self.spec, None if run is None else run.name)
        if self.spec.tasks is not None and len(tasks) < self.spec.tasks:
            notice = f"{environment.name} has {len(tasks):,} tasks in its {self.spec.split} split: using all of them"
            self.console.print(notice, highlight=False, markup=False)
        judges, version = await gateway.list_judges(), await gateway.fetch_version()
        return EvaluationContext(environment, judges.judges, version, tasks, None if run is None else run.created_at)

    def _estimate_remaining(self, progress: Sequence[TaskProgress], context: EvaluationContext) -> CostEstimate:
        """Answered attempts only need scoring; judges always read the whole group."""
        samples = self.spec.samples
        items = [item for item in progress if item.list_owed(samples)]
        missing = [len([one for one in item.list_owed(samples) if one not in item.answered]) for item in items]
        owed = [(context.tasks[item.index], count) for item, count in zip(items, missing, strict=True) if count]
        return self._estimate(context, owed, [len(item.list_owed(samples)) for item in items])

    def _estimate(
        self, context: EvaluationContext, owed: Sequence[tuple[HandedOutTask, int]], groups: Sequence[int]
    ) -> CostEstimate:
        tokenizer, limit = self.tokenizer, self.spec.sampling.limit
        judging = estimate_evaluation_judging(context.environment, context.judges, groups)
        if tokenizer is None:
            return estimate_sampling(owed, limit, self.concurrency, self.prices, judging)
        counted = "by the tokenizer"
        return estimate_sampling(
            owed, limit, self.concurrency, self.prices, judging, _build_counter(tokenizer), counted
        )

    def _print_estimate(self, context: EvaluationContext, estimate: CostEstimate) -> None:
        spec = self.spec
        since = "" if context.since is None else f", started {context.since:%Y-%m-%d %H:%M}"
        title = f"{spec.model} on {spec.environment}, {spec.split} split, as run {spec.run}{since}:"
        offline = [
            judge.name
            for judge in context.judges
            if judge.name in context.environment.judges and not judge.for_training
        ]
        notices = [f"judge {name}: no model, no cost; for trying out only, not for training" for name in offline]
        for line in (title, *(f"  {line}" for line in (*describe_estimate(estimate), *notices))):
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    async def _request_tokens(self, server: InferenceServer) -> InferenceServer:
        """A server that is asked for token ids where they are needed. InvalidRequest when it returns none."""
        if not self.tokens.needed_by:
            return server
        extensions, reply = await probe_server(server, Retrier(ends_after=self.patience_seconds))
        if not reply.has_tokens:
            raise InvalidRequest(f"{', '.join(self.tokens.needed_by)}: {server.base} {describe_missing_ids(reply)}")
        return replace(server, extensions=extensions)

    def _build_recorder(self) -> _TokenRecorder:
        return _TokenRecorder(
            out=self.ends.out if self.tokens.keeps else None,
            stores=self.tokens.stores,
            check=TokenCheck.begin(self.tokenizer, checks=self.tokens.checks),
        )

    async def _accepts_seeds(self, server: InferenceServer) -> bool:
        """Requests one token with a seed. RequestRefused when the server refuses it without a seed too."""
        shortest = replace(server, sampling=self.spec.sampling.shortest)
        hello, patience = (Message(role="user", content="Hello."),), Retrier(ends_after=self.patience_seconds)
        try:
            seed = derive_seed(self.spec.seed, 0, 0, 0)
            await patience.retry_until_answered(POLICY, lambda: shortest.ask(hello, seed=seed))
        except InvalidRequest:
            await patience.retry_until_answered(POLICY, lambda: shortest.ask(hello))
            self.console.print("the policy server does not accept seeds: answers are not reproducible", highlight=False)
            return False
        return True

    async def _run_with_progress(
        self, work: _EvaluationWork, campaign: Campaign, ledger: EvaluationLedger, server: InferenceServer
    ) -> bool:
        """Whether the evaluation was completed."""
        tally = EvaluationTally(len(work.tasks), self.spec.samples, self.threshold, self.prices, ledger.usage)
        owed = set(ledger.list_open())
        for index in range(len(work.tasks)):
            if index not in owed:
                tally.add_item(ledger.items[index])
        rewards = RewardTally(self.ends.gateway, self.spec.run, "eval", self.spec.sampling.limit, self._print_line)
        tools, line = ToolCheck(server, self._print_line), asyncio.Semaphore(work.concurrency)
        runner = _EvaluationRunner(work, campaign, server, ledger, tally, rewards, tools, line)

        def tell() -> Standing:
            waits = [*campaign.patience.list_waits(), *list_policy_waits(server)]
            return Standing(tally.done, [*tally.list_words(), *waits])

        try:
            async with show_progress(self.console, self.spec.environment, "tasks", len(work.tasks), tell) as display:
                completed = await campaign.follow(runner.run(), display)
        finally:
            rewards.conclude()
        checked = [] if work.tokens.check is None else work.tokens.check.tally.lines
        for words in filter(None, [*checked, server.tally.describe(), server.meter.describe()]):
            self._print_line(words)
        return completed

    def _print_line(self, line: str) -> None:
        self.console.print(escape_invisible(line), highlight=False, markup=False, soft_wrap=True)

    def _write_report(self, ledger: EvaluationLedger, context: EvaluationContext) -> EvaluationReport:
        attempts = build_attempts(ledger, context.tasks, context.environment.label)
        whole = len(attempts) == len(context.tasks) * self.spec.samples
        evaluation = Evaluation(
            setup=build_evaluation_setup(
                self.spec, context, ledger, self.threshold, self.prices, describe_url(self.ends.gateway)
            ),
            attempts=attempts,
            judging_usd=ledger.judging_usd,
            finished_at=find_finish_time(self.ends.out / f"{REPORT}.json") if whole else None,
        )
        report = build_report(evaluation)
        write_evaluation(self.ends.out, evaluation, report)
        return report


def _build_counter(tokenizer: LocalTokenizer) -> Callable[[HandedOutTask], int]:
    def count(task: HandedOutTask) -> int:
        try:
            return len(tokenizer.encode_prompt(task.messages, task.tools))
        except UserError:  # templates that refuse what a system message or tools are
            return bound_prompt_tokens(task)

    return count
