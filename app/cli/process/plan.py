"""What `process` is asked to do: its plan, the output of groups, and its meter."""

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from pydantic import JsonValue, ValidationError

from app.cli.policies import PolicyPrices
from app.cli.process.atropos import GroupLine
from app.domain.errors import UserError
from app.domain.faults import explain_faults
from app.domain.values import Frozen, Split
from app.inference.wire import Usage
from app.service.requests import MixMember
from app.terminal.consoles import parse_params

To = Literal["jsonl", "atropos"]


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


def _parse_member(option: str, name: str, weight: str, split: Split, params: dict[str, JsonValue]) -> MixMember:
    try:
        number: float | str = float(weight)
    except ValueError:
        number = weight
    try:
        return MixMember.model_validate({"env": name, "weight": number, "split": split, "params": params})
    except ValidationError as error:
        fault = explain_faults(error, MixMember)[0]
        raise UserError(f"{option} {name}: {fault.dotted}: {fault.words}") from error


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
