"""A data set on the hub, read from the cache when it was prepared before."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from app.datasets.raw_rows import ArrowRows, RawRows, explain_error
from app.domain.errors import EnvironmentUnavailable

log = logging.getLogger(__name__)

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def read_hub(
    repository: str, subset: str | None, revision: str | None, cache: Path | None, probe_seconds: float
) -> dict[str, RawRows]:
    """Every split. Blocking. Uses a prepared copy in the cache without looking for a newer one, unless the revision is
    a branch or a tag and the hub can be reached. The hub is probed first, because the library takes about 23 seconds to
    notice that it is unreachable."""
    loaded = _load_cached(repository, subset, revision, cache)
    moving = revision is not None and _COMMIT.fullmatch(revision) is None
    if loaded is None or moving:
        try:
            _require_reachable(repository, revision, probe_seconds)
            loaded = _download(repository, subset, revision, cache)
        except EnvironmentUnavailable as error:
            if loaded is None:
                raise
            log.warning("%s; the copy that was prepared last is used", error.detail)
    return {name: RawRows(f"{name} split", "row", rows) for name, rows in loaded.items()}


def _load_cached(
    repository: str, subset: str | None, revision: str | None, cache: Path | None
) -> Mapping[str, ArrowRows] | None:
    import datasets  # takes two seconds, so only those who configure a data set wait for it
    from datasets.packaged_modules.cache.cache import Cache

    datasets.disable_progress_bars()
    pinned = revision is not None and _COMMIT.fullmatch(revision) is not None
    try:
        prepared = Cache(
            repo_id=repository,
            dataset_name=repository.rpartition("/")[2],
            config_name=subset or ("default" if pinned else None),
            version="0.0.0" if pinned else "auto",
            hash=revision if pinned else "auto",
            cache_dir=None if cache is None else str(cache),
        )
        loaded: Mapping[str, ArrowRows] = prepared.as_dataset()
    except Exception:  # absent, half written or of another version of the library: the hub decides
        return None
    return loaded


def _download(repository: str, subset: str | None, revision: str | None, cache: Path | None) -> Mapping[str, ArrowRows]:
    import datasets

    try:
        loaded: Mapping[str, ArrowRows] = datasets.load_dataset(
            repository, subset, revision=revision, cache_dir=None if cache is None else str(cache)
        )
    except Exception as error:  # whatever the library raises, the data set could not be read
        raise EnvironmentUnavailable(f"{repository}: {_explain_failure(subset, error)}") from error
    return loaded


def _explain_failure(subset: str | None, error: Exception) -> str:
    first = str(error).split("\n")[0][:300]
    if "Config name is missing" in first:
        choices = str(error).partition("available configs: ")[2].split("\n")[0]
        return f"it has several subsets: set `subset` to one of {choices}"
    wanted = f"subset {subset} cannot" if subset else "it cannot"
    return f"{wanted} be loaded ({explain_error(error)})"


def _require_reachable(repository: str, revision: str | None, seconds: float) -> None:
    """Probes in a thread: DNS look-ups ignore timeouts."""
    outcomes: SimpleQueue[Exception | None] = SimpleQueue()
    Thread(target=_probe_hub, args=(repository, revision, seconds, outcomes), daemon=True, name="hub-probe").start()
    try:
        error = outcomes.get(timeout=seconds)
    except Empty:
        error = TimeoutError()
    if error is not None:
        raise EnvironmentUnavailable(f"{repository}: {_describe_failure(error)}") from error


def _probe_hub(
    repository: str, revision: str | None, seconds: float, outcomes: "SimpleQueue[Exception | None]"
) -> None:
    import datasets
    from huggingface_hub import HfApi

    try:
        HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(repository, revision=revision, timeout=seconds)
    except Exception as error:
        outcomes.put(error)
    else:
        outcomes.put(None)


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
