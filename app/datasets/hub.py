"""A data set on the hub, read from the cache when it was prepared before."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol, get_args

from app.datasets.tables import SplitTable
from app.domain.errors import EnvironmentUnavailable
from app.domain.values import Split


class _HubSplit(Protocol):
    """The part of the library's data set of one split that is used here."""

    def to_list(self) -> Sequence[Mapping[str, object]]: ...


def read_hub(repository: str, config: str | None, cache: Path | None, probe_seconds: float) -> dict[Split, SplitTable]:
    """Blocking. Uses a prepared copy in the cache without looking for a newer one. Otherwise probes the hub first,
    because the library takes about 23 seconds to notice that the hub is unreachable."""
    loaded = _load_cached(repository, config, cache)
    if loaded is None:
        _require_reachable(repository, probe_seconds)
        loaded = _download(repository, config, cache)
    return {split: _build_table(loaded, repository, split) for split in get_args(Split)}


def _build_table(loaded: Mapping[str, _HubSplit], repository: str, split: Split) -> SplitTable:
    if split not in loaded:
        raise EnvironmentUnavailable(f"{repository}: no {split} split")
    rows = loaded[split].to_list()
    if not rows:
        raise EnvironmentUnavailable(f"{repository}: the {split} split has no rows")
    return SplitTable(f"{split} split", rows)


def _load_cached(repository: str, config: str | None, cache: Path | None) -> Mapping[str, _HubSplit] | None:
    import datasets  # takes two seconds, so only those who configure a data set wait for it
    from datasets.packaged_modules.cache.cache import Cache

    datasets.disable_progress_bars()
    try:
        prepared = Cache(
            repo_id=repository,
            dataset_name=repository.rpartition("/")[2],
            config_name=config,
            version="auto",
            hash="auto",
            cache_dir=None if cache is None else str(cache),
        )
        loaded: Mapping[str, _HubSplit] = prepared.as_dataset()
    except Exception:  # absent, half written or of another version of the library: the hub decides
        return None
    return loaded


def _download(repository: str, config: str | None, cache: Path | None) -> Mapping[str, _HubSplit]:
    import datasets

    try:
        loaded: Mapping[str, _HubSplit] = datasets.load_dataset(
            repository, config, cache_dir=None if cache is None else str(cache)
        )
    except Exception as error:  # whatever the library raises, the data set could not be read
        wanted = f"configuration {config} cannot" if config else "it cannot"
        raise EnvironmentUnavailable(f"{repository}: {wanted} be loaded ({type(error).__name__})") from error
    return loaded


def _require_reachable(repository: str, seconds: float) -> None:
    """Probes in a thread: DNS look-ups ignore timeouts."""
    outcomes: SimpleQueue[Exception | None] = SimpleQueue()
    Thread(target=_probe_hub, args=(repository, seconds, outcomes), daemon=True, name="hub-probe").start()
    try:
        error = outcomes.get(timeout=seconds)
    except Empty:
        error = TimeoutError()
    if error is not None:
        raise EnvironmentUnavailable(f"{repository}: {_describe_failure(error)}") from error


def _probe_hub(repository: str, seconds: float, outcomes: "SimpleQueue[Exception | None]") -> None:
    import datasets
    from huggingface_hub import HfApi

    try:
        HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(repository, timeout=seconds)
    except Exception as error:
        outcomes.put(error)
    else:
        outcomes.put(None)


def _describe_failure(error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return "access must first be granted on the hub"
    if isinstance(error, RepositoryNotFoundError):
        return "no such local folder, and no readable data set of this name on the hub"
    if isinstance(error, OfflineModeIsEnabled):
        return "not in the cache, and offline mode is on"
    return "not in the cache, and the hub cannot be reached"
