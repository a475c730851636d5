"""The journal of `process`, by which a killed command goes on where it was: what has been done of its tasks, on disk.

Each task goes through three events: taken from the gateway, sampled, settled (written, or left out for a reason). The
journal, JSON Lines of which each is an event, has every event before the next step begins. Sampled groups are scored
and put again, which changes nothing, as the gateway and the output know a group by its id. A task's key is its position
in the stream where tasks are taken by cursor, else the lease under which it was taken first."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from app.cli.process.atropos import SampledCompletion
from app.cli.process.plan import ProcessSetup
from app.domain.errors import UserError
from app.domain.values import Frozen
from app.service.requests import HandedOutTask
from app.terminal.files import hold_file, require_same_options

# The ledger: the state of every task that was taken, folded from journal events.

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
            item = self.open.get(one.key)
            if item is None:
                self.open[one.key] = TaskInHand(one.key, one.task)
            else:
                item.task = one.task

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
        return tuple(TakenTask(key=f"{cursor}+{offset}", task=task) for offset, task in enumerate(tasks))
    in_hand = {item.task.task_id: key for key, item in ledger.open.items()}
    return tuple(
        TakenTask(key=in_hand.get(task.task_id) or str(task.lease_id), task=task)
        for task in tasks
        if task.task_id not in ledger.never_again
    )


# The file.

SHORTEN_AFTER: Final = 64 * 1024 * 1024
"""Bytes written since it was last rewritten."""


class Journal:
    """Rewritten as the shortest list of events with its state, at every start and when it has grown long."""

    def __init__(self, path: Path, ledger: ProcessLedger, shorten_after: int) -> None:
        self.path = path
        self.ledger = ledger
        self._file = _rewrite(path, ledger)
        self._written = 0
        self._shorten_after = shorten_after
        self._turn = asyncio.Lock()

    async def add(self, *happened: ProcessEvent) -> None:
        """Returns when the events are on disk."""
        # The lock keeps the order of the file that of the ledger.
        async with self._turn:
            lines = b"".join(map(_encode_line, happened))
            await asyncio.to_thread(_append, self._file, lines)
            for one in happened:
                self.ledger.apply(one)
            self._written += len(lines)
            if self._written > self._shorten_after:
                self._file.close()
                self._file, self._written = _rewrite(self.path, self.ledger), 0

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_journal(path: Path, setup: ProcessSetup, shorten_after: int = SHORTEN_AFTER) -> Iterator[Journal]:
    """Resumes or starts the journal of this setup. UserError when the file has results of another setup, is not a
    journal, or is in use."""
    with hold_file(path):
        ledger = _read(path)
        if ledger.setup != setup and ledger.holds_results:
            require_same_options(path, ledger.setup or setup, setup)
        if ledger.setup != setup:
            ledger = ProcessLedger(setup=setup)
        journal = Journal(path, ledger, shorten_after)
        try:
            yield journal
        finally:
            journal.close()


def _read(path: Path) -> ProcessLedger:
    """Ignores an incomplete last line: the process died while writing it."""
    ledger = ProcessLedger()
    if not path.exists():
        return ledger
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                ledger.apply(PROCESS_EVENT.validate_json(line))
            except (ValidationError, KeyError) as error:
                raise UserError(f"{path}:{number}: not a journal of `process`") from error
    return ledger


def _rewrite(path: Path, ledger: ProcessLedger) -> BinaryIO:
    """Open for what is added to it."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        _append(file, b"".join(map(_encode_line, ledger.iter_compacted())))
    fresh.replace(path)
    return path.open("ab")


def _encode_line(happened: ProcessEvent) -> bytes:
    return PROCESS_EVENT.dump_json(happened) + b"\n"


def _append(file: BinaryIO, lines: bytes) -> None:
    file.write(lines)
    file.flush()
    os.fsync(file.fileno())
