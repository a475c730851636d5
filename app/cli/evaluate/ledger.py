"""State of every attempt, folded from journal events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, JsonValue, TypeAdapter

from app.domain.scores import Score
from app.domain.tasks import Completion
from app.domain.values import FiniteNumber, Frozen, Split
from app.inference.wire import Usage


class EvaluationJournalSetup(Frozen):
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


class EvaluationBegan(Frozen):
    kind: Literal["began"] = "began"
    setup: EvaluationJournalSetup
    at: AwareDatetime


class TasksDealt(Frozen):
    """The task ids, in order."""

    kind: Literal["dealt"] = "dealt"
    task_ids: tuple[str, ...]


class AttemptAnswered(Frozen):
    """A finished attempt of the model."""

    kind: Literal["answered"] = "answered"
    place: int
    sample: int
    completion: Completion
    turns: int
    input_tokens: int | None
    output_tokens: int | None
    """None where the server reports no usage."""
    seconds: FiniteNumber

    @property
    def usage(self) -> Usage:
        return Usage(prompt_tokens=self.input_tokens or 0, completion_tokens=self.output_tokens or 0)


class AttemptsGrouped(Frozen):
    """Attempts that are scored as one group, also after a restart."""

    kind: Literal["grouped"] = "grouped"
    place: int
    samples: tuple[int, ...]


class AttemptsScored(Frozen):
    """The gateway's scores of a group, in order of `samples`."""

    kind: Literal["scored"] = "scored"
    place: int
    samples: tuple[int, ...]
    group_id: str
    scores: tuple[Score, ...]
    judging_usd: FiniteNumber | None = None


class AttemptsFailed(Frozen):
    """Attempts without a score for now: the model gave no answer, or the gateway refused the group."""

    kind: Literal["failed"] = "failed"
    place: int
    samples: tuple[int, ...]
    reason: str
    detail: str


EvaluationEvent = EvaluationBegan | TasksDealt | AttemptAnswered | AttemptsGrouped | AttemptsScored | AttemptsFailed
EVALUATION_EVENT: Final[TypeAdapter[EvaluationEvent]] = TypeAdapter(
    Annotated[EvaluationEvent, Field(discriminator="kind")]
)


@dataclass
class TaskProgress:
    """A task's attempts, by sample."""

    place: int
    answered: dict[int, AttemptAnswered] = field(default_factory=dict)
    groups: list[tuple[int, ...]] = field(default_factory=list)
    scored: dict[tuple[int, ...], AttemptsScored] = field(default_factory=dict)
    """The latest scores of each group."""
    failed: dict[int, AttemptsFailed] = field(default_factory=dict)

    def find_score(self, sample: int) -> Score | None:
        """The latest score, with or without a reward."""
        return next(
            (one.scores[one.samples.index(sample)] for one in self.scored.values() if sample in one.samples), None
        )

    def find_reward(self, sample: int) -> float | None:
        score = self.find_score(sample)
        return None if score is None else score.reward

    def find_group_id(self, sample: int) -> str | None:
        return next((one.group_id for one in self.scored.values() if sample in one.samples), None)

    def list_owed(self, samples: int) -> list[int]:
        """Attempts without a reward."""
        return [sample for sample in range(samples) if self.find_reward(sample) is None]

    def list_ungrouped(self) -> tuple[int, ...]:
        sent = {sample for group in self.groups for sample in group}
        return tuple(sample for sample in sorted(self.answered) if sample not in sent)

    def iter_events(self) -> Iterator[EvaluationEvent]:
        yield from self.answered.values()
        yield from (AttemptsGrouped(place=self.place, samples=samples) for samples in self.groups)
        yield from self.scored.values()
        yield from dict.fromkeys(self.failed.values())


@dataclass
class EvaluationLedger:
    setup: EvaluationJournalSetup | None = None
    began_at: datetime | None = None
    task_ids: tuple[str, ...] = ()
    items: dict[int, TaskProgress] = field(default_factory=dict)
    """By task index; absent for tasks without events."""

    @property
    def holds_results(self) -> bool:
        return any(item.answered for item in self.items.values())

    def apply(self, happened: EvaluationEvent) -> None:
        match happened:
            case EvaluationBegan(setup=setup, at=at):
                self.setup, self.began_at = setup, at
            case TasksDealt(task_ids=task_ids):
                self.task_ids = task_ids
            case AttemptAnswered(place=place, sample=sample):
                self.get_item(place).answered[sample] = happened
                self.get_item(place).failed.pop(sample, None)
            case AttemptsGrouped(place=place, samples=samples):
                self.get_item(place).groups.append(samples)
            case AttemptsScored(place=place, samples=samples):
                item = self.get_item(place)
                item.scored[samples] = happened
                for sample in samples:
                    item.failed.pop(sample, None)
            case AttemptsFailed(place=place, samples=samples):
                self.get_item(place).failed.update(dict.fromkeys(samples, happened))

    def get_item(self, place: int) -> TaskProgress:
        return self.items.setdefault(place, TaskProgress(place))

    def list_open(self) -> list[int]:
        """Indices of tasks with an attempt without a reward."""
        if self.setup is None:
            return []
        samples = self.setup.samples
        return [place for place in range(self.setup.tasks) if self.get_item(place).list_owed(samples)]

    @property
    def usage(self) -> Usage:
        """Total usage over all starts, as reported by the server."""
        return sum((one.usage for item in self.items.values() for one in item.answered.values()), Usage())

    def iter_compacted(self) -> Iterator[EvaluationEvent]:
        """The shortest list of events with the same state."""
        if self.setup is not None and self.began_at is not None:
            yield EvaluationBegan(setup=self.setup, at=self.began_at)
        if self.task_ids:
            yield TasksDealt(task_ids=self.task_ids)
        for item in self.items.values():
            yield from item.iter_events()


def sum_judging_usd(items: Sequence[TaskProgress]) -> float | None:
    """None where no cost is known."""
    known = [one.judging_usd for item in items for one in item.scored.values() if one.judging_usd is not None]
    return sum(known) if known else None
