"""One table of rows: a file, or one split of a folder or of a data set on the hub."""

from collections.abc import Sequence
from pathlib import Path

from app.datasets.configured_datasets import list_splits
from app.datasets.raw_rows import SUFFIXES, Row
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.sources import DatasetSource


def read_table(location: str, split: str | None = None, subset: str | None = None) -> Sequence[Row]:
    """Blocking. What is on disk comes before a hub id. Without `split` the only one is read. InvalidRequest says what
    cannot be read."""
    file = Path(location).expanduser()
    looks_like_a_path = file.suffix.lower() in SUFFIXES or location.startswith((".", "/", "~"))
    if looks_like_a_path and not file.exists():
        raise InvalidRequest(f"{location}: there is no such file")
    try:
        return _read_split(location, split, subset)
    except EnvironmentUnavailable as error:
        raise InvalidRequest(error.detail) from error


def _read_split(location: str, split: str | None, subset: str | None) -> Sequence[Row]:
    splits, read = list_splits(DatasetSource(source=location, subset=subset))
    if split is None and len(splits) > 1:
        raise InvalidRequest(f"{location}: choose one of its splits: {', '.join(splits)}", field="split")
    if split is not None and split not in splits:
        raise InvalidRequest(f"{location}: there is no split {split!r}; there are {', '.join(splits)}", field="split")
    rows: list[Row] = []
    for table in read(split or splits[0]):
        for number, row in table.iterate_rows():
            if isinstance(row, str):
                raise InvalidRequest(f"{table.name}, {table.unit} {number}: {row}")
            rows.append(row)
    return rows
