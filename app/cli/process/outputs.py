"""Output of groups to a file or an Atropos trainer."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from pydantic import ValidationError

from app.cli.process.atropos_groups import GroupLine
from app.domain.values import Frozen


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
        async with self.turn:
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
    """Resumes the file if `began`, without an incomplete last line. ValueError for a file that existed before, or that
    holds something else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not began and path.exists() and path.stat().st_size:
        raise ValueError(f"{path} already exists without a journal: use another --out")
    with path.open("a+b") as file:
        group_ids, end = _scan_written(path, file)
        file.truncate(end)
        yield JsonlOutput(file, group_ids)


def _scan_written(path: Path, file: BinaryIO) -> tuple[set[str], int]:
    group_ids: set[str] = set()
    end = 0
    file.seek(0)
    for number, line in enumerate(file, 1):
        if not line.endswith(b"\n"):
            break
        try:
            group_ids.add(_WrittenGroup.model_validate(json.loads(line)).group_id)
        except (ValidationError, ValueError) as error:
            raise ValueError(f"{path}:{number}: not a group") from error
        end += len(line)
    return group_ids, end
