"""One table of rows: a file (JSON lines, a JSON list, CSV or Parquet) or one split of a data set on the hub."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from app.domain.errors import InvalidRequest

Row = Mapping[str, object]


def read_table(location: str, split: str | None = None, subset: str | None = None) -> Sequence[Row]:
    """Blocking. A file takes precedence over a hub id. Of a hub's data set without `split` the only one is read.
    InvalidRequest says what cannot be read."""
    file = Path(location).expanduser()
    if file.is_file():
        return _read_file(file)
    if not file.is_dir() and (file.suffix.lower() in _READERS or location.startswith((".", "/", "~"))):
        raise InvalidRequest(f"{location}: there is no such file")
    return _read_hub_split(location, split, subset)


def _read_file(file: Path) -> Sequence[Row]:
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise InvalidRequest(f"{file.name}: the name must end with {', '.join(sorted(_READERS))}")
    try:
        rows = read(file)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{file.name}: it cannot be read: {error}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidRequest(f"{file.name}: every row must be an object with named columns")
    return rows


def _read_json_lines(file: Path) -> Sequence[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]


def _read_json_list(file: Path) -> Sequence[Row]:
    rows = json.loads(file.read_text(encoding="utf-8-sig"))
    if not isinstance(rows, list):
        raise ValueError("it is no list of rows")
    return rows


def _read_csv(file: Path) -> Sequence[Row]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        return list(csv.DictReader(lines, strict=True))


def _read_parquet(file: Path) -> Sequence[Row]:
    from pyarrow import parquet  # takes long to import

    rows: list[Row] = parquet.read_table(file).to_pylist()
    return rows


def _read_hub_split(repository: str, split: str | None, subset: str | None) -> Sequence[Row]:
    import datasets

    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_dataset(repository, subset)
    except Exception as error:  # whatever the library raises, the data set could not be read
        reason = str(error).split("\n")[0][:300] or type(error).__name__
        raise InvalidRequest(f"{repository}: neither a file nor a readable data set on the hub: {reason}") from None
    splits = sorted(loaded)
    if split is None and len(splits) > 1:
        raise InvalidRequest(f"{repository}: choose one of its splits: {', '.join(splits)}", field="split")
    if split is not None and split not in splits:
        raise InvalidRequest(f"{repository}: there is no split {split!r}; there are {', '.join(splits)}", field="split")
    rows: list[Row] = loaded[split or splits[0]].to_list()
    return rows


_READERS: Final[Mapping[str, Callable[[Path], Sequence[Row]]]] = {
    ".jsonl": _read_json_lines,
    ".json": _read_json_list,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
