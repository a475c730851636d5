"""What the record is made of: rows of JSON in named blocks, and the committed files, whose differences are of rows."""

import difflib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

Blocks = Mapping[str, Sequence[JsonValue]]
"""Rows by the name of their block."""


@dataclass(frozen=True)
class Part:
    """`bulky`: of each block only how many rows it has, and their digest, are committed. So it is in any part of
    blocks whose names begin with `~`."""

    name: str
    made: Callable[[], Blocks]
    bulky: bool = False

    @property
    def file(self) -> Path:
        return Path(__file__).parent / "expected" / f"{self.name}.txt"

    def keep(self, blocks: Blocks) -> None:
        self.file.write_text("".join(f"{line}\n" for line in self._lines(blocks)), encoding="utf-8")

    def compare(self, blocks: Blocks) -> list[str]:
        """Lines that were kept and are no longer there after `-`, new ones after `+`."""
        before = self.file.read_text(encoding="utf-8").splitlines() if self.file.is_file() else []
        compared = difflib.unified_diff(before, [*self._lines(blocks)], lineterm="", n=0)
        return [line for line in [*compared][2:] if not line.startswith("@@")]

    def _lines(self, blocks: Blocks) -> Iterator[str]:
        for name, rows in sorted(blocks.items()):
            kept = [summary_of(rows)] if self.bulky or name.startswith("~") else rows or ["(nothing)"]
            yield from (f"{json.dumps(name)}: {line_of(row)}" for row in kept)


class NotHere(Exception):
    """A part that this machine cannot make, and why."""


def line_of(row: JsonValue) -> str:
    """One text per row, whatever the order of its keys."""
    return json.dumps(row, sort_keys=True, ensure_ascii=True, allow_nan=False)


def summary_of(rows: Sequence[JsonValue]) -> str:
    """`<rows> <digest>`: SHA-256 of all lines."""
    lines = "".join(f"{line_of(row)}\n" for row in rows)
    return f"{len(rows)} {hashlib.sha256(lines.encode()).hexdigest()}"


def as_plain(value: object) -> JsonValue:
    """The same as JSON has it: tuples become lists, keys texts."""
    plain: JsonValue = json.loads(json.dumps(value, allow_nan=False))
    return plain
