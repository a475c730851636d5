"""Rows as they are written, by split, on disk and by index: from files, or from the hub.

Files of lines are kept as texts, each with its line: a table library would give a column one type of number and read
texts that look like dates.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from app.domain.errors import EnvironmentUnavailable

Row = Mapping[str, object]

_AT_ONCE: Final = 1_000


class ArrowRows(Protocol):
    """The part of the library's data set of one split that is used here. It is mapped from disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Any) -> Any: ...

    @property
    def column_names(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class RawRows:
    """The rows of one file or split. `name` and `unit` (`line` or `row`) say in errors where a row stands."""

    name: str
    unit: str
    table: ArrowRows
    as_text: bool = False
    """Whether the table holds each row as JSON text, with its place."""

    def __len__(self) -> int:
        return len(self.table)

    def read_row(self, index: int) -> Row:
        row: Row = self.table[index]
        return _parse_row(str(row["text"])) if self.as_text else row

    def iterate_rows(self) -> Iterator[tuple[int, Row | str]]:
        """The number of each row in its file, from 1, and the row, or what is wrong with it."""
        for start in range(0, len(self), _AT_ONCE):
            columns: Mapping[str, Sequence[object]] = self.table[start : start + _AT_ONCE]
            if self.as_text:
                yield from zip(columns["place"], map(_try_to_parse, columns["text"]), strict=True)
                continue
            for offset, values in enumerate(zip(*columns.values(), strict=True)):
                yield start + offset + 1, dict(zip(columns, values, strict=True))


def read_file(file: Path, cache: Path | None) -> RawRows:
    """Blocking. Prepares the rows in the cache when the file is new or has changed. EnvironmentUnavailable when it
    cannot be read or has no rows."""
    place = f"{file.parent.name}/{file.name}"
    try:
        if file.suffix.lower() == ".parquet":
            rows = RawRows(file.name, "row", _prepare_parquet(file, cache))
        else:
            rows = RawRows(file.name, _UNITS[file.suffix.lower()], _prepare_lines(file, cache), as_text=True)
    except Exception as error:  # the library wraps whatever a file or a disk makes it meet
        raise EnvironmentUnavailable(f"{place}: {explain_error(error)}") from error
    if not len(rows):
        raise EnvironmentUnavailable(f"{place}: it has no rows")
    return rows


def _prepare_parquet(file: Path, cache: Path | None) -> ArrowRows:
    import datasets  # takes long, so only those who configure a data set wait for it

    datasets.disable_progress_bars()
    rows: ArrowRows = datasets.load_dataset(
        "parquet", data_files=str(file), split="train", cache_dir=_name_cache(cache)
    )
    return rows


def _prepare_lines(file: Path, cache: Path | None) -> ArrowRows:
    import datasets

    datasets.disable_progress_bars()
    state = file.stat()
    rows: ArrowRows = datasets.Dataset.from_generator(
        partial(_generate_lines, str(file.absolute())),
        gen_kwargs={"changed": state.st_mtime_ns, "size": state.st_size},
        features=datasets.Features({"place": datasets.Value("int64"), "text": datasets.Value("large_string")}),
        cache_dir=_name_cache(cache),
        split="train",
    )
    return rows


def _generate_lines(path: str, **_: object) -> Iterator[dict[str, object]]:
    """The other arguments are part of the name in the cache."""
    file = Path(path)
    place = 0
    for place, text in _READERS[file.suffix.lower()](file):
        yield {"place": place, "text": text}
    if not place:
        raise ValueError("it has no rows")


def _read_json_lines(file: Path) -> Iterator[tuple[int, str]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise ValueError(f"line {number}: not UTF-8") from None
            if text:
                yield number, text


def _read_json_list(file: Path) -> Iterator[tuple[int, str]]:
    try:
        rows = json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if not isinstance(rows, list):
        raise ValueError("it is no list of rows")
    for number, row in enumerate(rows, 1):
        yield number, json.dumps(row)


def _read_csv(file: Path) -> Iterator[tuple[int, str]]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        for row in reader:
            yield reader.line_num, json.dumps({name: text for name, text in row.items() if name is not None})


_READERS: Final[Mapping[str, Callable[[Path], Iterator[tuple[int, str]]]]] = {
    ".jsonl": _read_json_lines,
    ".json": _read_json_list,
    ".csv": _read_csv,
}
_UNITS: Final = {".jsonl": "line", ".json": "row", ".csv": "line"}
SUFFIXES: Final = (*_READERS, ".parquet")
"""Endings of the files that can be read."""


def _try_to_parse(text: object) -> Row | str:
    try:
        return _parse_row(str(text))
    except (ValueError, RecursionError) as error:
        return str(error) if isinstance(error, _NoObjectError) else "not JSON"


class _NoObjectError(ValueError):
    """JSON, but no object."""


def _parse_row(text: str) -> Row:
    row = json.loads(text, parse_constant=_reject_constant)
    if not isinstance(row, dict):
        raise _NoObjectError("not a JSON object")
    return row


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _name_cache(cache: Path | None) -> str | None:
    return None if cache is None else str(cache)


def explain_error(error: BaseException) -> str:
    """The first one: the library wraps it in others."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror}: {Path(error.filename).name} (rows are prepared in `cache_dir`)"
    return str(error).split("\n")[0][:300] or type(error).__name__
