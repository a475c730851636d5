"""State of every task that was taken, folded from journal events."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from app.cli.process.atropos_groups import SampledCompletion
from app.cli.process.plan import ProcessSetup
from app.domain.values import Frozen
from app.service.request_models import HandedOutTask

WRITTEN: Final = "written"


class ProcessBegan(Frozen):
    kind: Literal["began"] = "began"
    setup: ProcessSetup


class AtroposRegistered(Frozen):
    """The environment id at the Atropos API."""

    kind: Literal["registered"] = "registered"
    env_id: int


class TakenTask(Frozen):
    key: str
    task: HandedOutTask


class TasksTaken(Frozen):
    kind: Literal["taken"] = "taken"
    tasks: tuple[TakenTask, ...]
    next_cursor: int | None = None


class GroupSampled(Frozen):
    kind: Literal["sampled"] = "sampled"
    key: str
    samples: tuple[SampledCompletion, ...]


class TaskSettled(Frozen):
    """The task is finished: written, or left out for a reason."""

    kind: Literal["settled"] = "settled"
    key: str
    outcome: str
    never_again: bool = False
    """The task is never leased again."""


class ProcessTotals(Frozen):
    """The result of earlier events, which it replaces."""

    kind: Literal["totals"] = "totals"
    outcomes: dict[str, int]
    never_again: tuple[str, ...]
    next_cursor: int | None


ProcessEvent = ProcessBegan | AtroposRegistered | TasksTaken | GroupSampled | TaskSettled | ProcessTotals
PROCESS_EVENT: Final[TypeAdapter[ProcessEvent]] = TypeAdapter(Annotated[ProcessEvent, Field(discriminator="kind")])


@dataclass
class TaskInHand:
    """A task in progress. `task` holds its newest lease."""

    key: str
    task: HandedOutTask
    samples: tuple[SampledCompletion, ...] | None = None


@dataclass
class ProcessLedger:
    setup: ProcessSetup | None = None
    env_id: int | None = None
    open: dict[str, TaskInHand] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    never_again: set[str] = field(default_factory=set)
    """Ids of tasks that the policy server refuses."""
    next_cursor: int | None = None

    @property
    def written_count(self) -> int:
        return self.outcomes[WRITTEN]

    @property
    def left_out(self) -> dict[str, int]:
        return {reason: count for reason, count in sorted(self.outcomes.items()) if reason != WRITTEN}

    @property
    def holds_results(self) -> bool:
        return bool(self.open or self.outcomes)

    def apply(self, happened: ProcessEvent) -> None:
        match happened:
            case ProcessBegan(setup=setup):
                self.setup = setup
            case AtroposRegistered(env_id=env_id):
                self.env_id = env_id
            case TasksTaken():
                self._take_tasks(happened.tasks)
                self.next_cursor = happened.next_cursor
            case GroupSampled(key=key, samples=samples):
                self.open[key].samples = samples
            case TaskSettled(key=key, outcome=outcome):
                item = self.open.pop(key)
                self.outcomes[outcome] += 1
                if happened.never_again:
                    self.never_again.add(item.task.task_id)
            case ProcessTotals():
                self.outcomes.update(happened.outcomes)
                self.never_again.update(happened.never_again)
                self.next_cursor = happened.next_cursor

    def _take_tasks(self, tasks: Sequence[TakenTask]) -> None:
        """A task that is leased again while in progress keeps its item and gets the new lease."""
        for one in tasks:
            known = self.open.get(one.key)
            if known is None:
                self.open[one.key] = TaskInHand(one.key, one.task)
            else:
                known.task = one.task

    def iter_compacted(self) -> Iterator[ProcessEvent]:
        """The shortest list of events with the same state."""
        if self.setup is not None:
            yield ProcessBegan(setup=self.setup)
        if self.env_id is not None:
            yield AtroposRegistered(env_id=self.env_id)
        yield ProcessTotals(
            outcomes=dict(self.outcomes), never_again=tuple(sorted(self.never_again)), next_cursor=self.next_cursor
        )
        items = list(self.open.values())
        if items:
            tasks = tuple(TakenTask(key=item.key, task=item.task) for item in items)
            yield TasksTaken(tasks=tasks, next_cursor=self.next_cursor)
        for item in items:
            if item.samples is not None:
                yield GroupSampled(key=item.key, samples=item.samples)


def assign_keys(ledger: ProcessLedger, tasks: Sequence[HandedOutTask], cursor: int | None) -> tuple[TakenTask, ...]:
    """Keys of tasks: the position in the stream, or the first lease of a task in progress."""
    if cursor is not None:
        return tuple(TakenTask(key=f"{cursor}+{place}", task=task) for place, task in enumerate(tasks))
    in_hand = {item.task.task_id: key for key, item in ledger.open.items()}
    return tuple(
        TakenTask(key=in_hand.get(task.task_id) or str(task.lease_id), task=task)
        for task in tasks
        if task.task_id not in ledger.never_again
    )
