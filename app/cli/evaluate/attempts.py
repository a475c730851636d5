"""An evaluation as data: its folder, its plan, what the run holds of it, its progress, and the attempts of its report.

The gateway is the ledger. Each attempt is sent as it ends, as one named piece of its task's group, with what it took;
the group's name is made from the plan. So a start asks what the run holds under these names, and makes what is missing.
Under another plan (policy, sampling, tasks) the names are others, and nothing is mixed. The folder keeps the plan
alone, so that a start with other options, and changed data, are noticed. The report is built from what the run holds,
also for an evaluation that was stopped."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from pydantic import AwareDatetime, JsonValue, ValidationError

from app.cli.campaigns import Campaign, PlanFile, sum_judgement_usd, write_document
from app.cli.policies import PolicyPrices
from app.domain.errors import Gone, InvalidRequest, UserError
from app.domain.faults import explain_faults
from app.domain.groups import Group
from app.domain.parts import GroupPart
from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.tasks import Completion, Message
from app.domain.values import FiniteNumber, Frozen, Split, digest
from app.evaluation.report import Attempt, Evaluation, EvaluationReport, EvaluationSetup, SamplingSettings
from app.http.api.models import EnvironmentInfo, JudgeInfo
from app.inference.policies import SamplingParameters, TurnTokens
from app.inference.wire import Usage
from app.service.requests import HandedOutTask, compute_part_group_id
from app.terminal.client import GatewayClient
from app.terminal.files import write_file

_PLAN: Final = "evaluation.plan.json"
_ATTEMPTS: Final = "attempts.jsonl"
_TOKENS: Final = "tokens.jsonl"
REPORT: Final = "report"
COMPARISON: Final = "comparison"
_NOTES: Final = "attempt"
"""The name of an attempt's notes among what is stored with its completion."""
_GATHER_SECONDS: Final = 86_400.0
"""How long the gateway keeps a task's attempts together before it has them judged without those that are missing."""

# The folder.


class AttemptTokens(Frozen):
    """A line of `tokens.jsonl`. An attempt that was made again after a crash has two lines: the last one counts."""

    task_id: str
    place: int
    sample: int
    turns: tuple[TurnTokens, ...]


def append_tokens(out: Path, tokens: AttemptTokens) -> None:
    with (out / _TOKENS).open("a", encoding="utf-8", newline="\n") as file:
        file.write(tokens.model_dump_json() + "\n")


def write_evaluation(out: Path, evaluation: Evaluation, report: EvaluationReport) -> None:
    """Writes each file atomically."""
    lines = (attempt.model_dump_json() + "\n" for attempt in evaluation.attempts)
    write_file(out / _ATTEMPTS, lines)
    write_document(out / f"{REPORT}.html", out / f"{REPORT}.json", report)


def read_evaluation(path: Path) -> Evaluation:
    """Reads the folder, or the folder of a file. UserError when it holds no evaluation."""
    folder = path.parent if path.is_file() else path
    try:
        report = EvaluationReport.model_validate_json((folder / f"{REPORT}.json").read_bytes())
        with (folder / _ATTEMPTS).open("rb") as file:
            attempts = tuple(Attempt.model_validate_json(line) for line in file)
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not an evaluation folder: {Path(str(error.filename)).name} is missing") from error
    except ValidationError as error:
        fault = explain_faults(error)[0]
        raise UserError(f"{folder} holds an evaluation of another version: {fault.sentence}") from error
    return Evaluation(
        setup=report.setup, attempts=attempts, judging_usd=report.cost.judging_usd, finished_at=report.finished_at
    )


# The plan.


class EvaluationOptions(Frozen):
    """Options that must stay the same when an evaluation is resumed under one --out."""

    environment: str
    version: str
    split: Split
    params: dict[str, JsonValue]
    run: str
    model: str
    step: int | None
    tasks: int
    samples: int
    seed: int
    sampling: dict[str, JsonValue]


class EvaluationPlan(Frozen):
    options: EvaluationOptions
    task_ids: tuple[str, ...]
    """In order."""
    began_at: AwareDatetime

    @property
    def policy(self) -> Policy:
        return Policy(model=self.options.model, step=self.options.step)

    @cached_property
    def digest(self) -> str:
        return digest([self.options.model_dump(mode="json"), list(self.task_ids)])

    def name_piece(self, sample: int, generation: int, *, closes: bool = False) -> GroupPart:
        """An attempt's place in a group of its task. There is a further generation where one was closed without all."""
        return GroupPart(
            key=f"evaluation/{self.digest}/{generation}",
            index=sample,
            size=self.options.samples,
            deadline_seconds=0 if closes else _GATHER_SECONDS,
        )

    def compute_group_id(self, task_id: str, generation: int) -> str:
        key = self.name_piece(0, generation).key
        return compute_part_group_id(task_id, self.options.run, self.policy, "eval", key)


def open_plan_file(out: Path) -> PlanFile[EvaluationPlan]:
    return PlanFile(out / _PLAN, EvaluationPlan)


# What the run holds.


class AttemptNotes(Frozen):
    """What an attempt took, which is stored with its completion. None where it is not known."""

    turns: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: FiniteNumber | None = None


class AttemptAnswered(Frozen):
    """A finished attempt of the model."""

    completion: Completion
    notes: AttemptNotes

    @classmethod
    def begin(cls, completion: Completion, notes: AttemptNotes) -> Self:
        extra = {**completion.extra, _NOTES: notes.model_dump(mode="json")}
        return cls(completion=completion.model_copy(update={"extra": extra}), notes=notes)

    @classmethod
    def from_stored(cls, completion: Completion) -> Self:
        """Without notes where a reduced group has none left, or somebody else wrote other ones."""
        try:
            notes = AttemptNotes.model_validate(completion.extra.get(_NOTES, {}))
        except ValidationError:
            notes = AttemptNotes()
        return cls(completion=completion, notes=notes)

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.notes.input_tokens or 0,
            completion_tokens=self.notes.output_tokens or 0,
        )


class AttemptFailed(Frozen):
    """An attempt without a score for now: the model gave no answer, or the gateway refused it."""

    reason: str
    detail: str


@dataclass(frozen=True)
class AttemptScored:
    """Its latest score, with or without a reward."""

    score: Score
    group_id: str


@dataclass
class TaskProgress:
    """A task's attempts, by sample."""

    index: int
    answered: dict[int, AttemptAnswered] = field(default_factory=dict)
    scored: dict[int, AttemptScored] = field(default_factory=dict)
    failed: dict[int, AttemptFailed] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    """Of those that the run holds: in which group of the task."""
    generation: int = 0
    """Of the group that takes further attempts."""
    judging_usd: dict[str, float | None] = field(default_factory=dict)
    """By group; None where it is not known."""

    def take_group(self, group: Group, generation: int, judging_usd: float | None) -> None:
        """What the run holds of the task in this group."""
        for rollout in group.rollouts:
            self.answered[rollout.place] = AttemptAnswered.from_stored(rollout.completion)
            self.generations[rollout.place] = generation
            self.failed.pop(rollout.place, None)
            if rollout.score.outcome != "pending":
                self.scored[rollout.place] = AttemptScored(rollout.score, group.group_id)
        if group.outcome != "pending":
            self.judging_usd[group.group_id] = judging_usd

    def find_reward(self, sample: int) -> float | None:
        scored = self.scored.get(sample)
        return None if scored is None else scored.score.reward

    def list_owed(self, samples: int) -> list[int]:
        """Attempts without a reward."""
        return [sample for sample in range(samples) if self.find_reward(sample) is None]

    def list_unscored(self) -> dict[int, int]:
        """Groups with an attempt without a reward, by generation: the first of each."""
        owed = [sample for sample in sorted(self.generations) if self.find_reward(sample) is None]
        firsts = {self.generations[sample]: sample for sample in reversed(owed)}
        return dict(sorted(firsts.items()))


@dataclass
class EvaluationLedger:
    plan: EvaluationPlan
    items: list[TaskProgress]
    """By task index."""

    @classmethod
    def begin(cls, plan: EvaluationPlan) -> Self:
        return cls(plan, [TaskProgress(index) for index in range(len(plan.task_ids))])

    @property
    def holds_results(self) -> bool:
        return any(item.answered for item in self.items)

    def list_open(self) -> list[int]:
        """Indices of tasks with an attempt without a reward."""
        return [item.index for item in self.items if item.list_owed(self.plan.options.samples)]

    @property
    def usage(self) -> Usage:
        """Total usage over all starts, as reported by the server."""
        return sum((one.usage for item in self.items for one in item.answered.values()), Usage())

    @property
    def judging_usd(self) -> float | None:
        """None where no cost is known."""
        costs = [usd for item in self.items for usd in item.judging_usd.values() if usd is not None]
        return sum(costs) if costs else None


async def load_ledger(campaign: Campaign, plan: EvaluationPlan, at_once: int, *, judges_cost: bool) -> EvaluationLedger:
    """What the plan's run holds of it. `judges_cost`: whether what judging took is of interest. UserError where groups
    of it were pruned: their attempts can be neither read nor sent again."""
    ledger = EvaluationLedger.begin(plan)

    async def load(item: TaskProgress) -> None:
        while len(item.answered) < plan.options.samples:
            view = await campaign.find_group(plan.compute_group_id(plan.task_ids[item.index], item.generation))
            if view is None:
                return
            item.take_group(view.group, item.generation, sum_judgement_usd(view.judgements) if judges_cost else None)
            if view.group.outcome == "pending" and "partial_group" not in view.group.flags:
                return  # it takes further attempts
            item.generation += 1

    try:
        await campaign.work_through(ledger.items, load, at_once)
    except Gone as error:
        raise UserError(
            f"groups of this evaluation were pruned: use another --out, and another --run or --seed ({error.detail})"
        ) from error
    return ledger


# What is to be evaluated, and the tasks that the gateway has for it.

_ENDLESS_TASKS: Final = 100
"""Default number of tasks of an endless split."""
_BATCH_SIZE: Final = 256
"""Tasks of one request."""


@dataclass(frozen=True)
class EvaluationSpec:
    environment: str
    split: Split
    params: dict[str, JsonValue]
    tasks: int | None
    samples: int
    run: str
    model: str
    step: int | None
    seed: int
    sampling: SamplingParameters

    def build_options(self, environment: EnvironmentInfo, tasks: int) -> EvaluationOptions:
        return EvaluationOptions(
            environment=environment.name,
            version=environment.version,
            split=self.split,
            params=self.params,
            run=self.run,
            model=self.model,
            step=self.step,
            tasks=tasks,
            samples=self.samples,
            seed=self.seed,
            sampling=self.sampling.parameters,
        )


@dataclass(frozen=True)
class EvaluationContext:
    """The gateway's environment, judges and tasks for this evaluation."""

    environment: EnvironmentInfo
    judges: tuple[JudgeInfo, ...]
    version: str
    tasks: tuple[HandedOutTask, ...]
    since: datetime | None
    """When the run started, which fixes retrieved contexts and characters; None for a dry run."""


async def fetch_tasks(
    gateway: GatewayClient, environment: EnvironmentInfo, spec: EvaluationSpec, run: str | None
) -> tuple[HandedOutTask, ...]:
    """Distinct tasks in the run's order; fewer in a smaller split. Without a run the gateway records nothing."""
    size = next((split.size for split in environment.splits if split.name == spec.split), None)
    most = _find_task_limit(spec, size)
    tasks: dict[str, HandedOutTask] = {}
    cursor: int | None = 0
    while cursor is not None and (most is None or len(tasks) < most):
        ask: dict[str, JsonValue] = {
            "split": spec.split,
            "params": spec.params,
            "run": run,
            "purpose": "eval",
            "cursor": cursor,
            "batch_size": _BATCH_SIZE if most is None else min(_BATCH_SIZE, most - len(tasks)),
        }
        batch = await gateway.fetch_next_batch(ask, spec.environment)
        fresh = [task for task in batch.tasks if task.task_id not in tasks]
        tasks.update((task.task_id, task) for task in fresh)
        # A stream of a run begins again after its last task: a task that was there before ends the loop.
        came_round = len(fresh) < len(batch.tasks) or not fresh
        cursor = None if batch.exhausted or came_round else batch.next_cursor
    if not tasks:
        raise InvalidRequest(f"{spec.environment} has no tasks in its {spec.split} split")
    return tuple(tasks.values())


def _find_task_limit(spec: EvaluationSpec, size: int | None) -> int | None:
    """None for all tasks. The known size applies to default params only."""
    if spec.tasks is None:
        return _ENDLESS_TASKS if size is None else (None if spec.params else size)
    return spec.tasks if size is None or spec.params else min(spec.tasks, size)


def require_same_tasks(before: Sequence[str], now: Sequence[HandedOutTask], out: str) -> None:
    """InvalidRequest when the tasks have changed since the evaluation was started."""
    changed = [index for index, (old, new) in enumerate(zip(before, now, strict=True)) if old != new.task_id]
    if changed:
        raise InvalidRequest(
            f"{len(changed)} tasks differ from those that {out} was started with (first at index {changed[0]}), "
            "because data, characters or passages have changed: use another --out and another --run"
        )


# Progress.


@dataclass
class EvaluationTally:
    """Counts of finished tasks, earlier starts included; tokens per second count this start only."""

    tasks: int
    samples: int
    threshold: float
    prices: PolicyPrices
    usage: Usage
    """Total usage over all starts."""
    done: int = 0
    measured: int = 0
    mean_sum: float = 0.0
    scored: int = 0
    passed: int = 0
    unscored: int = 0
    new_tokens: int = 0
    """Completion tokens since this start."""
    began: float = field(default_factory=time.monotonic)

    def add_usage(self, usage: Usage, seconds: float = 0.0) -> None:
        self.usage += usage
        self.new_tokens += usage.completion_tokens

    def add_item(self, item: TaskProgress) -> None:
        rewards = [reward for sample in range(self.samples) if (reward := item.find_reward(sample)) is not None]
        self.done += 1
        self.scored += len(rewards)
        self.unscored += self.samples - len(rewards)
        self.passed += sum(reward >= self.threshold for reward in rewards)
        if rewards:
            self.measured += 1
            self.mean_sum += sum(rewards) / len(rewards)

    def list_words(self) -> list[str]:
        parts = (
            [f"mean {self.mean_sum / self.measured:.3f}, passed {self.passed / self.scored:.1%}"] if self.scored else []
        )
        parts += [f"{self.unscored} unscored"] if self.unscored else []
        parts += [f"{self.new_tokens / max(time.monotonic() - self.began, 1e-9):.0f} tokens/s"]
        cost = self.prices.compute_cost(self.usage)
        return [*parts, *([] if cost is None else [f"{cost:.4f} USD"])]


# The attempts of a report, and what the report says of how it was made.

_MOST_PROMPT: Final = 4_000
_MOST_TEXT: Final = 12_000
"""Maximum characters kept; the stored group has the full text."""


def build_attempts(ledger: EvaluationLedger, tasks: Sequence[HandedOutTask], label: str | None) -> tuple[Attempt, ...]:
    """Attempts that were made, by task and sample. `label` is the metadata key for the breakdown."""
    return tuple(
        attempt for index, task in enumerate(tasks) for attempt in _iter_attempts(ledger.items[index], task, label)
    )


def build_evaluation_setup(
    spec: EvaluationSpec,
    context: EvaluationContext,
    ledger: EvaluationLedger,
    threshold: float,
    prices: PolicyPrices,
    gateway_url: str = "",
) -> EvaluationSetup:
    """What a report says of how it was made."""
    environment, sent = context.environment, spec.sampling.parameters
    main_fields = {"temperature", "top_p", "max_tokens"}
    return EvaluationSetup.model_validate(
        {
            "environment": environment.name,
            "version": environment.version,
            "split": spec.split,
            "params": spec.params,
            "strictness": _find_strictness(context.tasks),
            "tasks": len(context.tasks),
            "samples": spec.samples,
            "threshold": threshold,
            "seed": spec.seed,
            "model": spec.model,
            "step": spec.step,
            "sampling": SamplingSettings.model_validate(
                {name: value for name, value in sent.items() if name in main_fields}
                | {"extra": {name: value for name, value in sent.items() if name not in main_fields}}
            ),
            "run": spec.run,
            "label": environment.label,
            "criteria": tuple(criterion.name for criterion in environment.criteria),
            "offline_judges": tuple(judge.name for judge in context.judges if not judge.for_training),
            "gateway": context.version,
            "gateway_url": gateway_url,
            "input_price": prices.input,
            "output_price": prices.output,
            "started_at": ledger.plan.began_at,
        }
    )


def _find_strictness(tasks: Sequence[HandedOutTask]) -> str:
    said = {task.metadata.get("strictness") for task in tasks}
    return ", ".join(sorted(one for one in said if isinstance(one, str)))


def _iter_attempts(item: TaskProgress, task: HandedOutTask, label: str | None) -> Iterator[Attempt]:
    prompt, value = (
        _keep_end(_format_message(task.messages[-1]) if task.messages else ""),
        task.metadata.get(label or ""),
    )
    for sample in sorted({*item.answered, *item.failed}):
        if (standing := _find_outcome(item, sample)) is None:
            continue
        score, reason, detail = standing
        answered = item.answered.get(sample)
        text = "" if answered is None else _extract_text(answered.completion)
        yield Attempt(
            task_id=task.task_id,
            place=item.index,
            sample=sample,
            outcome="scored" if reason is None else "unscored",
            reason=reason,
            reward=score.reward,
            calibrated=score.calibrated,
            calibrated_error=score.calibrated_error,
            criteria={criterion.name: criterion.value for criterion in score.criteria},
            label=value if isinstance(value, str) else None,
            flags=score.flags,
            rationale=score.rationale or detail,
            judges=score.judges,
            scoring_digest=score.scoring_digest,
            group_id=None if sample not in item.scored else item.scored[sample].group_id,
            prompt=prompt,
            text=_cut_middle(text),
            characters=len(text),
            turns=0 if answered is None else answered.notes.turns,
            input_tokens=None if answered is None else answered.notes.input_tokens,
            output_tokens=None if answered is None else answered.notes.output_tokens,
            finish_reason=None if answered is None else answered.completion.finish_reason,
            seconds=None if answered is None else answered.notes.seconds,
        )


def _find_outcome(item: TaskProgress, sample: int) -> tuple[Score, str | None, str] | None:
    """The score, the reason for a missing reward, and its detail; None for an unfinished attempt."""
    scored, failed = item.scored.get(sample), item.failed.get(sample)
    score = None if scored is None else scored.score
    if score is not None and score.reward is not None:
        return score, None, ""
    if failed is not None:
        return score or Score.pending(), failed.reason, failed.detail
    return None if score is None else (score, score.reason or score.outcome, "")


def _extract_text(completion: Completion) -> str:
    """The model's messages with the observations between them."""
    if completion.messages is None:
        return completion.text or ""
    if len(completion.messages) == 1 and not completion.messages[0].tool_calls:
        return completion.messages[0].content or ""
    return _format_transcript(completion.messages)


def _format_transcript(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{message.role}: {_format_message(message)}" for message in messages)


def _format_message(message: Message) -> str:
    calls = [f"{call.function.name}({_format_arguments(call.function.arguments)})" for call in message.tool_calls]
    return "\n".join(part for part in (message.content or "", *calls) if part)


def _format_arguments(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _keep_end(text: str) -> str:
    return text if len(text) <= _MOST_PROMPT else "… " + text[-_MOST_PROMPT:]


def _cut_middle(text: str) -> str:
    """Keeps more of the end, where answers usually are."""
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT // 3]} … {text[-2 * _MOST_TEXT // 3 :]}"
