"""Data sets at configured places: a folder, a file, or an id on the hub.

What is on disk comes before the hub. A data set on the hub is read from the cache when it was prepared before, without
asking for a newer one, so that a restart neither waits for the network nor changes the data. A digest covers the rows
that are used.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Final, TypeVar, get_args
from urllib.parse import quote

from pydantic import BaseModel, JsonValue, TypeAdapter

from app.datasets.rows import (
    SUFFIXES,
    ArrowRows,
    CheckedRows,
    RawRows,
    Row,
    RowReport,
    check_rows,
    choose_form,
    explain_error,
    read_file,
)
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.tasks import Dataset, DatasetSource, DatasetSources
from app.domain.values import Split, digest

log = logging.getLogger(__name__)

RowT = TypeVar("RowT", bound=BaseModel)


_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?")
_PROBE_SECONDS: Final = 5.0
_SPLITS: Final[tuple[Split, ...]] = get_args(Split)
_SOURCES: Final = TypeAdapter(DatasetSources)

_ReadSplit = Callable[[str], tuple[RawRows, ...]]
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
        probe_seconds: float = _PROBE_SECONDS,
    ) -> None:
        """`folders`: other folders by name. `written`: what people wrote in place of their files, at present.
        `hub_cache`: cache of prepared data sets; None for the library's default (`HF_HOME`).
        `probe_seconds`: timeout of the test whether the hub is reachable."""
        self._sources = {environment: _SOURCES.validate_python(named) for environment, named in sources.items()}
        self._folders = folders or {}
        self._written = written or {}
        self._hub_cache = hub_cache
        self._probe_seconds = probe_seconds
        self.reports: dict[str, Mapping[str, Mapping[Split, RowReport]]] = {}
        """What became of the rows that were read last, by environment and data set."""

    def rows(self, name: str, *forms: type[RowT], subset: str | None = None) -> Mapping[str, Dataset[RowT]]:
        """Columns that a form does not name are ignored, and nulls count as absent. The digest covers the rows that are
        used, in order, and nothing else. Rows that repeat another one of their split are left out."""
        results = {
            called: self._read_dataset(called, source, forms, subset)
            for called, source in self._sources.get(name, {}).items()
        }
        self.reports[name] = {called: reports for called, (_, reports) in results.items()}
        return {called: dataset for called, (dataset, _) in results.items()}

    def folder(self, name: str) -> Path | None:
        return self._folders.get(name)

    def list_written(self, name: str) -> Mapping[str, str]:
        return self._written[name]() if name in self._written else {}

    def _read_dataset(
        self, name: str, source: DatasetSource, forms: Sequence[type[RowT]], subset: str | None
    ) -> tuple[Dataset[RowT], Mapping[Split, RowReport]]:
        began = monotonic()
        origin = _name_origin(source)
        names, read_split = _list_splits(source, subset, self._hub_cache, self._probe_seconds)
        tables = {
            split: tuple(table for part in parts for table in read_split(part))
            for split, parts in _choose_splits(origin, source, names).items()
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


def _list_splits(
    source: DatasetSource,
    usual_subset: str | None = None,
    hub_cache: Path | None = None,
    probe_seconds: float = _PROBE_SECONDS,
) -> tuple[Sequence[str], _ReadSplit]:
    """The names of its splits, and what reads one. Blocking. EnvironmentUnavailable when it cannot be read."""
    if _is_hub_id(source):
        chosen_subset = source.subset or usual_subset
        loaded = _read_hub(source.source, chosen_subset, source.revision, hub_cache, probe_seconds)
        return tuple(loaded), lambda name: (loaded[name],)
    files = _list_files(_resolve(source), source.subset, usual_subset)
    return tuple(files), cache(lambda name: tuple(read_file(file, hub_cache) for file in files[name]))


def _choose_splits(origin: str, source: DatasetSource, names: Sequence[str]) -> Mapping[Split, tuple[str, ...]]:
    """By our splits, those of the data set."""
    missing = [part for parts in source.splits.values() for part in parts if part not in names]
    if missing:
        raise EnvironmentUnavailable(f"{origin}: there is no split {missing[0]!r}; there are {', '.join(names)}")
    if source.splits:
        return {split: source.splits[split] for split in _SPLITS if split in source.splits}
    if len(names) == 1 and (names[0] != "test" or source.hold_out is not None):
        return {"train": (names[0],)}
    if source.hold_out is not None:
        names = [part for part in names if part != "test"]
    chosen: dict[Split, tuple[str, ...]] = {split: (split,) for split in _SPLITS if split in names}
    if not chosen:
        raise EnvironmentUnavailable(
            f"{origin}: neither train nor test is among its splits: {', '.join(names)}. Set `splits`"
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
    path = _resolve(source)
    return path.parent if path.is_file() else path


def _name_origin(source: DatasetSource) -> str:
    whole = source.source.rstrip("/") if _is_hub_id(source) else _resolve(source).name
    return f"{whole} ({source.subset})" if source.subset else whole


def _resolve(source: DatasetSource) -> Path:
    return Path(source.source).expanduser().absolute()


def _is_hub_id(source: DatasetSource) -> bool:
    return _HUB_ID.fullmatch(source.source) is not None and not _resolve(source).exists()


# One table.


def read_table(location: str, split: str | None = None, subset: str | None = None) -> Sequence[tuple[str, Row]]:
    """Blocking. Each row after its place, a file and a line. What is on disk comes before a hub id. Without `split` the
    only one is read. InvalidRequest says what cannot be read."""
    file = Path(location).expanduser()
    looks_like_a_path = file.suffix.lower() in SUFFIXES or location.startswith((".", "/", "~"))
    if looks_like_a_path and not file.exists():
        raise InvalidRequest(f"{location}: there is no such file")
    try:
        return _read_split(location, split, subset)
    except EnvironmentUnavailable as error:
        raise InvalidRequest(error.detail) from error


def _read_split(location: str, split: str | None, subset: str | None) -> Sequence[tuple[str, Row]]:
    splits, read_split = _list_splits(DatasetSource(source=location, subset=subset))
    if split is None and len(splits) > 1:
        raise InvalidRequest(f"{location}: choose one of its splits: {', '.join(splits)}", field="split")
    if split is not None and split not in splits:
        raise InvalidRequest(f"{location}: there is no split {split!r}; there are {', '.join(splits)}", field="split")
    rows: list[tuple[str, Row]] = []
    for table in read_split(split or splits[0]):
        for number, row in table.iterate_rows():
            place = f"{table.name}, {table.unit} {number}"
            if isinstance(row, str):
                raise InvalidRequest(f"{place}: {row}")
            rows.append((place, row))
    return rows


# Folders and files.

_SHARD: Final = re.compile(r"(.+?)-\d{5}-of-\d{5}")


def _list_files(source: Path, subset: str | None, usual_subset: str | None) -> Mapping[str, tuple[Path, ...]]:
    """Files by split: their names without ending, or what comes before `-00000-of-00001`. Without `subset` they may lie
    in `data` or `usual_subset`, as in copies of the hub's repositories. EnvironmentUnavailable for a folder without
    any."""
    if source.is_file():
        if source.suffix.lower() not in SUFFIXES:
            raise EnvironmentUnavailable(f"{source.name}: the name must end with {', '.join(SUFFIXES)}")
        return {_name_split(source): (source,)}
    if not source.is_dir():
        raise EnvironmentUnavailable(f"{source.name}: folder not found")
    folders = (subset,) if subset else (".", "data", *((usual_subset,) if usual_subset else ()))
    files = next(filter(None, (_find_files(source / folder) for folder in folders)), None)
    if not files:
        where = f"{source.name}/{subset}" if subset else source.name
        raise EnvironmentUnavailable(f"{where}: no file ends with {', '.join(SUFFIXES)}")
    return files


def _find_files(folder: Path) -> Mapping[str, tuple[Path, ...]]:
    files: dict[str, tuple[Path, ...]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.is_file() and file.suffix.lower() in SUFFIXES:
            files[_name_split(file)] = (*files.get(_name_split(file), ()), file)
    return files


def _name_split(file: Path) -> str:
    shard = _SHARD.fullmatch(file.stem)
    return shard[1] if shard else file.stem


# The hub.

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def _read_hub(
    repository: str, subset: str | None, revision: str | None, cache: Path | None, probe_seconds: float
) -> dict[str, RawRows]:
    """Every split. Blocking. Without a revision a prepared copy in the cache is used, and the hub is not asked for a
    newer one. A branch or a tag is looked up on the hub; when the hub cannot be reached, it is the commit that it was
    last. The hub is probed first, because the library takes about 23 seconds to notice that it is unreachable."""
    folder = _find_prepared_folder(repository, cache)
    commit = revision if revision is None or _COMMIT.fullmatch(revision) else None
    if revision is not None and commit is None:
        commit = _look_up_commit(repository, revision, folder, probe_seconds)
    loaded = _load_cached(repository, subset, commit, cache, folder)
    if loaded is None:
        _ask_hub(repository, revision, probe_seconds)
        loaded = _download(repository, subset, commit, cache)
    return {name: RawRows(f"{name} split", "row", rows) for name, rows in loaded.items()}


def _find_prepared_folder(repository: str, cache: Path | None) -> Path:
    """Of its prepared copies, as the library names it."""
    import datasets  # takes two seconds, so only those who configure a data set wait for it
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = repository.rpartition("/")
    root = Path(cache or datasets.config.HF_DATASETS_CACHE).expanduser()
    return root / "___".join([*([owner] if owner else []), camelcase_to_snakecase(name)])


def _look_up_commit(repository: str, revision: str, folder: Path, probe_seconds: float) -> str:
    """Of a branch or a tag. What the hub says is kept beside the prepared copies."""
    record = folder / f"{quote(revision, safe='')}.commit"
    try:
        commit = _ask_hub(repository, revision, probe_seconds)
    except EnvironmentUnavailable as error:
        if not record.is_file():
            raise
        log.warning("%s; the copy that was prepared last is used", error.detail)
        return record.read_text(encoding="ascii").strip()
    folder.mkdir(parents=True, exist_ok=True)
    record.write_text(commit, encoding="ascii")
    return commit


def _load_cached(
    repository: str, subset: str | None, commit: str | None, cache: Path | None, folder: Path
) -> Mapping[str, ArrowRows] | None:
    """None where there is no prepared copy, or none of this commit."""
    import datasets
    from datasets.packaged_modules.cache.cache import Cache

    datasets.disable_progress_bars()
    config, version, fingerprint = subset, "auto", "auto"
    if commit is not None:
        copies = [copy for copy in folder.glob(f"*/*/{commit}") if subset in (None, copy.parts[-3])]
        if len(copies) != 1:
            return None
        config, version, fingerprint = copies[0].parts[-3:]
    try:
        loaded: Mapping[str, ArrowRows] = Cache(
            repo_id=repository,
            dataset_name=repository.rpartition("/")[2],
            config_name=config,
            version=version,
            hash=fingerprint,
            cache_dir=None if cache is None else str(cache),
        ).as_dataset()
    except Exception:  # absent, half written or of another version of the library: the hub decides
        return None
    return loaded


def _download(repository: str, subset: str | None, commit: str | None, cache: Path | None) -> Mapping[str, ArrowRows]:
    import datasets

    try:
        loaded: Mapping[str, ArrowRows] = datasets.load_dataset(
            repository, subset, revision=commit, cache_dir=None if cache is None else str(cache)
        )
    except Exception as error:  # whatever the library raises, the data set could not be read
        raise EnvironmentUnavailable(f"{repository}: {_explain_failure(subset, error)}") from error
    return loaded


def _explain_failure(subset: str | None, error: Exception) -> str:
    first = str(error).split("\n")[0][:300]
    if "Config name is missing" in first:
        choices = str(error).partition("available configs: ")[2].split("\n")[0]
        return f"it has several subsets: set `subset` to one of {choices}"
    subject = f"subset {subset} cannot" if subset else "it cannot"
    return f"{subject} be loaded ({explain_error(error)})"


def _ask_hub(repository: str, revision: str | None, seconds: float) -> str:
    """The commit. Asked in a thread: DNS look-ups ignore timeouts."""
    answers: SimpleQueue[str | Exception] = SimpleQueue()
    Thread(target=_read_commit, args=(repository, revision, seconds, answers), daemon=True, name="hub-probe").start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        answer = TimeoutError()
    if isinstance(answer, Exception):
        raise EnvironmentUnavailable(f"{repository}: {_describe_failure(answer)}") from answer
    return answer


def _read_commit(
    repository: str, revision: str | None, seconds: float, answers: "SimpleQueue[str | Exception]"
) -> None:
    import datasets
    from huggingface_hub import HfApi

    try:
        info = HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(repository, revision=revision, timeout=seconds)
    except Exception as error:
        answers.put(error)
    else:
        answers.put(info.sha or "")


def _describe_failure(error: Exception) -> str:
    from huggingface_hub.errors import (
        GatedRepoError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return "it is gated: accept its terms on the hub, and give the token of that account in HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return "it has no such revision"
    if isinstance(error, RepositoryNotFoundError):
        return "no such local folder, and no readable data set of this name on the hub"
    if isinstance(error, OfflineModeIsEnabled):
        return "not in the cache, and offline mode is on"
    return "not in the cache, and the hub cannot be reached"
