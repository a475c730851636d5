"""A folder with one JSON-lines file per split."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, get_args

from app.datasets.tables import SplitTable
from app.domain.errors import EnvironmentUnavailable
from app.domain.values import Split


def read_folder(folder: Path) -> dict[Split, SplitTable]:
    """Writes and caches nothing. EnvironmentUnavailable names file and row."""
    if not folder.is_dir():
        raise EnvironmentUnavailable(f"{folder.name}: folder not found")
    tables: dict[Split, SplitTable] = {}
    for split in get_args(Split):
        file = folder / f"{split}.jsonl"
        if not file.is_file():
            raise EnvironmentUnavailable(f"{folder.name}: {file.name} is missing")
        tables[split] = SplitTable(file.name, _read_rows(file))
    return tables


def _read_rows(file: Path) -> Sequence[Mapping[str, object]]:
    """Keeps each value as it is written. Table libraries would give a column one number type and parse texts that look
    like dates."""
    rows: list[Mapping[str, object]] = []
    try:
        with file.open("rb") as lines:
            for line in lines:
                if line.strip():
                    rows.append(_parse_row(line, f"{file.parent.name}: {file.name}, row {len(rows) + 1}"))
    except OSError as error:
        raise EnvironmentUnavailable(f"{file.parent.name}: {file.name}: {error.strerror}") from error
    if not rows:
        raise EnvironmentUnavailable(f"{file.parent.name}: {file.name} has no rows")
    return rows


def _parse_row(line: bytes, place: str) -> Mapping[str, object]:
    try:
        row = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise EnvironmentUnavailable(f"{place}: not JSON") from error
    if not isinstance(row, dict):
        raise EnvironmentUnavailable(f"{place}: not a JSON object")
    return row


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
