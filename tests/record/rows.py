"""What the record is made of: rows of JSON in named blocks, and what is kept of them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

Blocks = Mapping[str, Sequence[JsonValue]]
"""Rows by the name of their block."""


@dataclass(frozen=True)
class Part:
    """`bulky`: of each block only how many rows it has, and their digest, are committed."""

    name: str
    made: Callable[[], Blocks]
    bulky: bool = False


class NotHere(Exception):
    """A part that this machine cannot make, and why."""


def line_of(row: JsonValue) -> str:
    """One text per row, whatever the order of its keys."""
    return json.dumps(row, sort_keys=True, ensure_ascii=True, allow_nan=False)


def digest_of(rows: Iterable[JsonValue]) -> str:
    """SHA-256 of all lines."""
    hashed = hashlib.sha256()
    for row in rows:
        hashed.update(line_of(row).encode())
        hashed.update(b"\n")
    return hashed.hexdigest()


def summary_of(rows: Sequence[JsonValue]) -> str:
    """`<rows> <digest>`."""
    return f"{len(rows)} {digest_of(rows)}"


def kept(part: Part, blocks: Blocks) -> dict[str, JsonValue]:
    """What is committed of a part. Blocks whose names begin with `~` are bulky in any part."""
    return {
        name: summary_of(rows) if part.bulky or name.startswith("~") else list(rows) for name, rows in blocks.items()
    }


def as_plain(value: object) -> JsonValue:
    """The same as JSON has it: tuples become lists, keys texts."""
    plain: JsonValue = json.loads(json.dumps(value, allow_nan=False))
    return plain
