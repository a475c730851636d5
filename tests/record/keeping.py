"""The committed files, a line for each row, so that differences are of rows."""

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.record.rows import Blocks, Part, kept, line_of

EXPECTED: Final = Path(__file__).with_name("expected")


def keep(part: Part, blocks: Blocks) -> None:
    EXPECTED.mkdir(exist_ok=True)
    _file(part).write_text("".join(f"{line}\n" for line in _lines(part, blocks)), encoding="utf-8")


def differences(part: Part, blocks: Blocks) -> list[str]:
    """Lines that were kept and are no longer there after `-`, new ones after `+`."""
    before = _file(part).read_text(encoding="utf-8").splitlines() if _file(part).is_file() else []
    compared = difflib.unified_diff(before, [*_lines(part, blocks)], lineterm="", n=0)
    return [line for line in [*compared][2:] if not line.startswith("@@")]


def _lines(part: Part, blocks: Blocks) -> Iterator[str]:
    for name, rows in sorted(kept(part, blocks).items()):
        if isinstance(rows, list):
            yield from (f"{json.dumps(name)}: {line_of(row)}" for row in rows or ["(nothing)"])
        else:
            yield f"{json.dumps(name)}: {line_of(rows)}"


def _file(part: Part) -> Path:
    return EXPECTED / f"{part.name}.txt"
