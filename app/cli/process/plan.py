"""What `process` does and has done: its plan, the output of groups, its meter, its ledger and its journal.

Each task goes through three events: taken from the gateway, sampled, settled (written, or left out for a reason). The
journal has every event before the next step begins. A killed command goes on where it was: sampled groups are scored
and put again, which changes nothing, as the gateway and the output know a group by its id. A task's key is its position
in the stream where tasks are taken by cursor, else the lease under which it was taken first."""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, Protocol

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from app.cli.journal import SHORTEN_AFTER, open_journal
from app.cli.journal import Journal as AnyJournal
from app.cli.policies import PolicyPrices
from app.cli.process.atropos import GroupLine, SampledCompletion
from app.domain.errors import UserError
from app.domain.values import Frozen, Name, Split
from app.inference.wire import Usage
from app.service.requests import HandedOutTask, MixMember
from app.terminal.consoles import parse_params

To = Literal["jsonl", "atropos"]

_NAME = TypeAdapter(Name)


class ProcessSetup(Frozen):
    """Options that must stay the same when a journal is resumed."""

    mix: tuple[MixMember, ...]
    run: str
    by_cursor: bool
    model: str
    step: int | None = None
    """Training step that groups are stored under."""
    group_size: int
    to: To


@dataclass(frozen=True)
class ProcessPlan:
    setup: ProcessSetup
    limit: int | None
    batch_size: int
    hands: int
    """Concurrent tasks."""
    lease_seconds: float
    first_cursor: int

    @property
    def policy(self) -> dict[str, JsonValue]:
        return {"model": self.setup.model, "step": self.setup.step}

    def build_request(self, batch_size: int, cursor: int | None) -> dict[str, JsonValue]:
        """The body of `POST /next-batch`."""
        dispatch: dict[str, JsonValue] = {"lease_seconds": self.lease_seconds} if cursor is None else {"cursor": cursor}
        if cursor is None and self.setup.step is not None:
            dispatch["policy"] = {"step": self.setup.step}
        mix: list[JsonValue] = [member.model_dump(mode="json") for member in self.setup.mix]
        return {"mix": mix, "run": self.setup.run, "batch_size": batch_size, **dispatch}


def parse_mix(env: str | None, mix: str | None, split: Split, params: str | None) -> tuple[MixMember, ...]:
    """UserError naming the invalid option."""
    if (env is None) == (mix is None):
        raise UserError("give either --env or --mix")
    if mix is None:
        return (_parse_member("--env", str(env), "1", split, parse_params(params)),)
    if params is not None:
        raise UserError("--params needs --env; environments in --mix use their default params")
    parts = [part.strip().partition("=") for part in mix.split(",") if part.strip()]
    if not parts:
        raise UserError("--mix names no environment")
    return tuple(_parse_member("--mix", name, weight or "1", split, {}) for name, _, weight in parts)


def check_run_name(name: str, option: str = "--run") -> str:
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise UserError(f"{option}: use at most 64 lower-case letters, digits, - and _") from error


def _parse_member(option: str, name: str, weight: str, split: Split, params: dict[str, JsonValue]) -> MixMember:
    try:
        number: float | str = float(weight)
    except ValueError:
        number = weight
    try:
        return MixMember.model_validate({"env": name, "weight": number, "split": split, "params": params})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UserError(f"{option} {name}: {first['loc'][0]}: {first['msg']}") from error


# The output of groups to a file; that to a trainer is an `AtroposOutput`.


class GroupOutput(Protocol):
    """Idempotent: a group that is put twice is stored once."""

    async def wait_until_ready(self) -> None:
        """Returns when the output accepts more groups."""

    async def put(self, line: GroupLine) -> str | None:
        """Durable on return. Returns the reason if the group is left out instead."""


@dataclass
class JsonlOutput:
    file: BinaryIO
    group_ids: set[str]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def wait_until_ready(self) -> None:
        return None

    async def put(self, line: GroupLine) -> str | None:
        async with self.turn:  # one line at a time: groups are finished by several workers
            if line.group_id not in self.group_ids:
                self.group_ids.add(line.group_id)
                await asyncio.to_thread(self._append, line)
        return None

    def _append(self, line: GroupLine) -> None:
        self.file.write(line.as_json() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())


class _WrittenGroup(Frozen, extra="ignore"):
    group_id: str


@contextmanager
def open_jsonl_output(path: Path, *, began: bool) -> Iterator[JsonlOutput]:
    """Resumes the file if `began`, without an incomplete last line. UserError for a file that existed before, or that
    holds something else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not began and path.exists() and path.stat().st_size:
        raise UserError(f"{path} already exists without a journal: use another --out")
    with path.open("a+b") as file:
        group_ids, end = _scan_written(path, file)
        file.truncate(end)
        yield JsonlOutput(file, group_ids)


def _scan_written(path: Path, file: BinaryIO) -> tuple[set[str], int]:
    group_ids: set[str] = set()
    end = 0
    file.seek(0)
    for number, line in enumerate(file, 1):
        if not line.endswith(b"\n"):  # the process died while it wrote this line
            break
        try:
            group_ids.add(_WrittenGroup.model_validate(json.loads(line)).group_id)
        except (ValidationError, ValueError) as error:
            raise UserError(f"{path}:{number}: not a group") from error
        end += len(line)
    return group_ids, end


# The meter: rewards, rates, tokens and cost of this start.


@dataclass
class ProcessMeter:
    """Statistics since the start of the command."""

    prices: PolicyPrices = field(default_factory=PolicyPrices)
    began: float = field(default_factory=time.monotonic)
    usage: Usage = field(default_factory=Usage)
    groups: int = 0
    rewards: int = 0
    reward_sum: float = 0.0

    def add_usage(self, usage: Usage, seconds: float = 0.0) -> None:
        self.usage += usage

    def add_group(self, rewards: Sequence[float]) -> None:
        self.groups += 1
        self.rewards += len(rewards)
        self.reward_sum += sum(rewards)

    @property
    def mean(self) -> float | None:
        return self.reward_sum / self.rewards if self.rewards else None

    def list_words(self) -> list[str]:
        minutes = max(time.monotonic() - self.began, 1e-9) / 60
        mean, cost = self.mean, self.prices.compute_cost(self.usage)
        parts = [] if mean is None else [f"mean reward {mean:.3f}"]
        parts += [f"{self.groups / minutes:.0f} groups/min"]
        parts += [f"{self.usage.prompt_tokens:,} + {self.usage.completion_tokens:,} tokens"]
        return [*parts, *([] if cost is None else [f"{cost:.4f} USD"])]


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


# The journal of `process`.

Journal = AnyJournal[ProcessEvent, ProcessLedger]


@contextmanager
def open_process_journal(path: Path, setup: ProcessSetup, shorten_after: int = SHORTEN_AFTER) -> Iterator[Journal]:
    """Resumes or starts the journal of this setup. UserError when the file has another setup, is not a journal, or is
    in use."""
    with open_journal(
        path, "process", PROCESS_EVENT, ProcessLedger, setup, ProcessBegan(setup=setup), shorten_after
    ) as journal:
        yield journal
