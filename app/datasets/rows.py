"""Rows of data sets: as they are written, which of them make tasks, and their reading by index.

Rows stay on disk, whatever their number, and are validated once when the data set is read and again when they are
asked for. Files of lines are kept as texts, each with its line: a table library would give a column one type of number
and read texts that look like dates.
"""

import csv
import hashlib
import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar, overload

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app.domain.errors import EnvironmentUnavailable
from app.domain.faults import explain_faults, explain_json_error, explain_os_error
from app.domain.tasks import CHECKED, LEFT_OUT, DatasetSource
from app.domain.values import MEBIBYTE, Split, remember

# Rows as they are written.

Row = Mapping[str, object]

_AT_ONCE: Final = 1_000
_MOST_BYTES_READ: Final = 8 * MEBIBYTE
"""Of rows of a split that are kept in memory; a larger row is read again each time."""


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

    def describe_place(self, index: int) -> str:
        """File and line of a row."""
        number = self.table[index]["place"] if self.as_text else index + 1
        return f"{self.name}, {self.unit} {number}"

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
    name = f"{file.parent.name}/{file.name}"
    try:
        if file.suffix.lower() == ".parquet":
            rows = RawRows(file.name, "row", _prepare_parquet(file, cache))
        else:
            rows = RawRows(file.name, _UNITS[file.suffix.lower()], _prepare_lines(file, cache), as_text=True)
    except Exception as error:  # the library wraps whatever a file or a disk makes it meet
        raise EnvironmentUnavailable(f"{name}: {explain_error(error)}") from error
    if not len(rows):
        raise EnvironmentUnavailable(f"{name}: it has no rows")
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
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {explain_json_error(error)}") from None
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
        return f"{Path(error.filename).name}: {explain_os_error(error)} (rows are prepared in `cache_dir`)"
    return str(error).split("\n")[0][:300] or type(error).__name__


# Rows that make tasks.

RowT = TypeVar("RowT", bound=BaseModel)

_REPEATED: Final = "it repeats another row"
_MOST_PLACES: Final = 5
"""How many places of rows that are left out are kept for each reason."""


@dataclass(frozen=True)
class LeftOut:
    """Rows that are left out for one reason, with the places of the first few."""

    reason: str
    count: int
    places: tuple[str, ...]


@dataclass(frozen=True)
class RowReport:
    """What became of the rows of a split. `shared` are those that the other split has too."""

    used: int
    shared: int
    left_out: tuple[LeftOut, ...]
    digest: str


class CheckedRows(Sequence[RowT], Generic[RowT]):
    """The rows of a split that make tasks. A row is read from disk and validated when it is asked for."""

    def __init__(
        self,
        tables: Sequence[RawRows],
        form: type[RowT],
        columns: Mapping[str, str],
        values: Row,
        used: "array[int]",
    ) -> None:
        """`values`: of columns that a row has not. `used`: indexes of rows in all tables, one after the other."""
        self._tables = tables
        self._ends = tuple(accumulate(map(len, tables)))
        self._form = form
        self._columns = columns
        self._values = values
        self._used = used
        self._read = remember(_MOST_BYTES_READ)(self._read_row)

    def __len__(self) -> int:
        return len(self._used)

    @overload
    def __getitem__(self, index: int) -> RowT: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RowT]: ...

    def __getitem__(self, index: int | slice) -> RowT | Sequence[RowT]:
        if isinstance(index, slice):
            return tuple(self._read(place) for place in self._used[index])
        return self._read(self._used[index])

    def describe_place(self, index: int) -> str:
        """File and line of a row."""
        table, place = self._find_table(self._used[index])
        return table.describe_place(place)

    def _find_table(self, place: int) -> tuple[RawRows, int]:
        number = bisect_right(self._ends, place)
        start = self._ends[number - 1] if number else 0
        return self._tables[number], place - start

    def _read_row(self, place: int) -> RowT:
        table, within = self._find_table(place)
        row = table.read_row(within)
        return self._form.model_validate({**self._values, **_select_columns(row, self._columns)}, context=CHECKED)


def choose_form(origin: str, table: RawRows, source: DatasetSource, forms: Sequence[type[RowT]]) -> type[RowT]:
    """The first form whose required columns the first row has. EnvironmentUnavailable if there is none."""
    if len(forms) == 1:
        return forms[0]
    _, first = next(table.iterate_rows())
    if isinstance(first, str):
        return forms[0]
    for form in forms:
        if all(any(_has(first, name, source) for name in names) for names in _list_required(form)):
            return form
    needed = "; or ".join(", ".join(names[0] for names in _list_required(form)) for form in forms)
    raise EnvironmentUnavailable(
        f"{origin}: {table.name} has the columns {', '.join(first)}; needed are {needed}. Set `columns`"
    )


def check_rows(
    origin: str, form: type[RowT], tables: Mapping[Split, Sequence[RawRows]], source: DatasetSource
) -> Mapping[Split, tuple[CheckedRows[RowT], RowReport]]:
    """Validates every row once. EnvironmentUnavailable with file and line for the first that is broken."""
    columns = _map_columns(form, source)
    sorted_rows: dict[Split, _SplitRows] = {"train": _SplitRows(), "test": _SplitRows()}
    for split, parts in tables.items():
        for index, place, row in _iterate_places(origin, parts):
            chosen = _select_columns(row, columns)
            content = _hash_row(chosen)
            into = sorted_rows["test" if _is_held_out(content, source.hold_out) else split]
            into.tables = parts
            reason = (
                _find_reason(form, {**source.values, **chosen}, f"{origin}: {place}")
                if into.is_new(content)
                else _REPEATED
            )
            into.add(index, place, content, reason)
    filled = {split: rows for split, rows in sorted_rows.items() if rows.tables}
    _require_rows(origin, filled)
    shared = sorted_rows["train"].seen & sorted_rows["test"].seen
    return {
        split: (CheckedRows(rows.tables, form, columns, source.values, rows.used), rows.report(len(shared)))
        for split, rows in filled.items()
    }


class _SplitRows:
    """The rows of a split while they are gathered."""

    def __init__(self) -> None:
        self.tables: Sequence[RawRows] = ()
        self.used = array("Q")
        self.seen: set[bytes] = set()
        self.left_out: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}
        self._hasher = hashlib.sha256()

    def is_new(self, content: bytes) -> bool:
        return content not in self.seen

    def add(self, index: int, place: str, content: bytes, reason: str) -> None:
        """`reason`: why the row is left out; empty for one that is used."""
        self.seen.add(content)
        if not reason:
            self.used.append(index)
            self._hasher.update(content)
            return
        self.left_out[reason] += 1
        places = self.places.setdefault(reason, [])
        if len(places) < _MOST_PLACES:
            places.append(place)

    def report(self, shared: int) -> RowReport:
        reasons = tuple(LeftOut(reason, count, tuple(self.places[reason])) for reason, count in self.left_out.items())
        return RowReport(len(self.used), shared, reasons, self._hasher.hexdigest()[:32])


def _iterate_places(origin: str, tables: Sequence[RawRows]) -> Iterator[tuple[int, str, Row]]:
    """Each row with its index in all tables and its place in words."""
    index = 0
    for table in tables:
        for number, row in table.iterate_rows():
            place = f"{table.name}, {table.unit} {number}"
            if isinstance(row, str):
                named = place if table.name == origin else f"{origin}: {place}"
                raise EnvironmentUnavailable(f"{named}: {row}")
            yield index, place, row
            index += 1


def _find_reason(form: type[BaseModel], row: Row, place: str) -> str:
    """Why the row is left out; empty for one that makes a task. EnvironmentUnavailable for a broken one."""
    try:
        form.model_validate(row)
    except ValidationError as error:
        faults = explain_faults(error, form, quotes=False)  # what stands in a row may be the answer
        broken = next((fault for fault in faults if fault.kind != LEFT_OUT), None)
        if broken is None:
            return faults[0].words
        raise EnvironmentUnavailable(f"{place}, {broken.dotted or 'whole row'}: {broken.words}") from None
    return ""


def _require_rows(origin: str, filled: Mapping[Split, _SplitRows]) -> None:
    for split, rows in filled.items():
        if not rows.used:
            reason, count = rows.left_out.most_common(1)[0]
            raise EnvironmentUnavailable(f"{origin}: no row of {split} makes a task: {reason} ({count} rows)")


def _hash_row(row: Row) -> bytes:
    return hashlib.sha256(repr(sorted(row.items())).encode("utf-8", "surrogatepass")).digest()[:16]


def _is_held_out(content: bytes, share: float | None) -> bool:
    return share is not None and int.from_bytes(content[:8]) < share * 2**64


def _map_columns(form: type[BaseModel], source: DatasetSource) -> Mapping[str, str]:
    """By the form's names of its columns, where the data set has them."""
    names = [name for key, info in form.model_fields.items() for name in _list_names(key, info)]
    configured = {
        **{f"columns.{name}": name for name in source.columns},
        **{f"values.{name}": name for name in source.values},
    }
    unknown = [setting for setting, name in configured.items() if name not in names]
    if unknown:
        raise EnvironmentUnavailable(f"{unknown[0]}: there is no such column; there are {', '.join(names)}")
    return {name: source.columns.get(name, name) for name in names}


def _list_required(form: type[BaseModel]) -> list[tuple[str, ...]]:
    return [_list_names(key, info) for key, info in form.model_fields.items() if info.is_required()]


def _list_names(key: str, info: FieldInfo) -> tuple[str, ...]:
    """The names by which a field is read."""
    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(str(choice) for choice in alias.choices)
    return (str(alias or info.alias or key),)


def _has(row: Row, name: str, source: DatasetSource) -> bool:
    return name in source.values or _get_value(row, source.columns.get(name, name)) is not None


def _select_columns(row: Row, columns: Mapping[str, str]) -> dict[str, object]:
    """Nulls count as absent."""
    values = {name: _get_value(row, column) for name, column in columns.items()}
    return {name: value for name, value in values.items() if value is not None}


def _get_value(row: Row, column: str) -> Any:
    """A dot leads into a column with parts."""
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value
