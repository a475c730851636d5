"""Data sets at configured places: a folder, a file, or an id on the hub."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar, get_args

from pydantic import BaseModel, JsonValue, TypeAdapter

from app.datasets.checked_rows import CheckedRows, RowReport, check_rows, choose_form
from app.datasets.folder import list_files
from app.datasets.hub import read_hub
from app.datasets.raw_rows import RawRows, read_file
from app.domain.digests import digest
from app.domain.errors import EnvironmentUnavailable
from app.domain.sources import Dataset, DatasetSource, DatasetSources
from app.domain.values import Split

RowT = TypeVar("RowT", bound=BaseModel)

log = logging.getLogger(__name__)

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?")
PROBE_SECONDS: Final = 5.0
_SPLITS: Final[tuple[Split, ...]] = get_args(Split)
_SOURCES: Final = TypeAdapter(DatasetSources)

ReadSplit = Callable[[str], tuple[RawRows, ...]]
"""Reads the tables of a split of the data set, by its name there."""


class ConfiguredDatasets:
    """`sources`: by environment, its data sets by name, or a text for the only one. Blank texts are ignored."""

    def __init__(
        self,
        sources: Mapping[str, str | Mapping[str, DatasetSource]],
        *,
        folders: Mapping[str, Path | None] | None = None,
        written: Mapping[str, Callable[[], Mapping[str, str]]] | None = None,
        hub_cache: Path | None = None,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        """`folders`: other folders by name. `written`: what people wrote in place of their files, at present.
        `hub_cache`: cache of prepared data sets; None for the library's default (`HF_HOME`).
        `probe_seconds`: timeout of the test whether the hub is reachable."""
        self._sources = {environment: _SOURCES.validate_python(given) for environment, given in sources.items()}
        self._folders = folders or {}
        self._written = written or {}
        self._hub_cache = hub_cache
        self._probe_seconds = probe_seconds
        self.reports: dict[str, Mapping[str, Mapping[Split, RowReport]]] = {}
        """What became of the rows that were read last, by environment and data set."""

    def rows(self, name: str, *forms: type[RowT], subset: str | None = None) -> Mapping[str, Dataset[RowT]]:
        """Columns that a form does not name are ignored, and nulls count as absent. The digest covers the rows that are
        used, in order, and nothing else. Rows that repeat another one of their split are left out."""
        read = {
            called: self._read_dataset(called, source, forms, subset)
            for called, source in self._sources.get(name, {}).items()
        }
        self.reports[name] = {called: reports for called, (_, reports) in read.items()}
        return {called: dataset for called, (dataset, _) in read.items()}

    def folder(self, name: str) -> Path | None:
        return self._folders.get(name)

    def list_written(self, name: str) -> Mapping[str, str]:
        return self._written[name]() if name in self._written else {}

    def _read_dataset(
        self, name: str, source: DatasetSource, forms: Sequence[type[RowT]], subset: str | None
    ) -> tuple[Dataset[RowT], Mapping[Split, RowReport]]:
        began = monotonic()
        origin = _name_origin(source)
        known, read_split = list_splits(source, subset, self._hub_cache, self._probe_seconds)
        tables = {
            split: tuple(table for part in parts for table in read_split(part))
            for split, parts in _choose_splits(origin, source, known).items()
        }
        form = choose_form(origin, next(iter(tables.values()))[0], source, forms)
        checked = check_rows(origin, form, tables, source)
        splits: dict[Split, CheckedRows[RowT]] = {split: rows for split, (rows, _) in checked.items()}
        reports = {split: report for split, (_, report) in checked.items()}
        _log_reports(origin, reports, monotonic() - began)
        return (
            Dataset(
                name=name,
                origin=origin,
                digest=_compute_digest(source, reports),
                splits=splits,
                folder=source.files or _find_folder(source),
            ),
            reports,
        )


def list_splits(
    source: DatasetSource,
    usual_subset: str | None = None,
    hub_cache: Path | None = None,
    probe_seconds: float = PROBE_SECONDS,
) -> tuple[Sequence[str], ReadSplit]:
    """The names of its splits, and what reads one. Blocking. EnvironmentUnavailable when it cannot be read."""
    if _is_hub_id(source):
        wanted = source.subset or usual_subset
        loaded = read_hub(source.source, wanted, source.revision, hub_cache, probe_seconds)
        return tuple(loaded), lambda name: (loaded[name],)
    files = list_files(_resolve(source), source.subset, usual_subset)
    return tuple(files), cache(lambda name: tuple(read_file(file, hub_cache) for file in files[name]))


def _choose_splits(origin: str, source: DatasetSource, known: Sequence[str]) -> Mapping[Split, tuple[str, ...]]:
    """By our splits, those of the data set."""
    missing = [part for parts in source.splits.values() for part in parts if part not in known]
    if missing:
        raise EnvironmentUnavailable(f"{origin}: there is no split {missing[0]!r}; there are {', '.join(known)}")
    if source.splits:
        return {split: source.splits[split] for split in _SPLITS if split in source.splits}
    if len(known) == 1 and (known[0] != "test" or source.hold_out is not None):
        return {"train": (known[0],)}
    if source.hold_out is not None:
        known = [part for part in known if part != "test"]
    chosen: dict[Split, tuple[str, ...]] = {split: (split,) for split in _SPLITS if split in known}
    if not chosen:
        raise EnvironmentUnavailable(
            f"{origin}: neither train nor test is among its splits: {', '.join(known)}. Set `splits`"
        )
    return chosen


def _log_reports(origin: str, reports: Mapping[Split, RowReport], seconds: float) -> None:
    for split, report in reports.items():
        log.info("%s: %d rows of %s, checked in %.1f s", origin, report.used, split, seconds)
        for left_out in report.left_out:
            where = f"{left_out.places[0]}{' and others' if left_out.count > 1 else ''}"
            log.warning("%s: %d rows of %s left out: %s (%s)", origin, left_out.count, split, left_out.reason, where)
    shared = max((report.shared for report in reports.values()), default=0)
    if shared:
        log.warning("%s: %d rows are in train and in test", origin, shared)


def _compute_digest(source: DatasetSource, reports: Mapping[Split, RowReport]) -> str:
    content: dict[str, JsonValue] = {split: report.digest for split, report in reports.items()}
    return digest({**content, "values": source.values} if source.values else content)


def _find_folder(source: DatasetSource) -> Path | None:
    if _is_hub_id(source):
        return None
    place = _resolve(source)
    return place.parent if place.is_file() else place


def _name_origin(source: DatasetSource) -> str:
    whole = source.source.rstrip("/") if _is_hub_id(source) else _resolve(source).name
    return f"{whole} ({source.subset})" if source.subset else whole


def _resolve(source: DatasetSource) -> Path:
    return Path(source.source).expanduser().absolute()


def _is_hub_id(source: DatasetSource) -> bool:
    return _HUB_ID.fullmatch(source.source) is not None and not _resolve(source).exists()
