"""A data set on the hub, read from the cache when it was prepared before."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final
from urllib.parse import quote

from app.datasets.raw_rows import ArrowRows, RawRows, explain_error
from app.domain.errors import EnvironmentUnavailable

log = logging.getLogger(__name__)

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def read_hub(
    repository: str, subset: str | None, revision: str | None, cache: Path | None, probe_seconds: float
) -> dict[str, RawRows]:
    """Every split. Blocking. Without a revision a prepared copy in the cache is used, and the hub is not asked for a
    newer one. A branch or a tag is looked up on the hub; when the hub cannot be reached, it is the commit that it was
    last. The hub is probed first, because the library takes about 23 seconds to notice that it is unreachable."""
    folder = _find_folder(repository, cache)
    commit = revision if revision is None or _COMMIT.fullmatch(revision) else None
    if revision is not None and commit is None:
        commit = _look_up_commit(repository, revision, folder, probe_seconds)
    loaded = _load_cached(repository, subset, commit, cache, folder)
    if loaded is None:
        _ask_hub(repository, revision, probe_seconds)
        loaded = _download(repository, subset, commit, cache)
    return {name: RawRows(f"{name} split", "row", rows) for name, rows in loaded.items()}


def _find_folder(repository: str, cache: Path | None) -> Path:
    """Of its prepared copies, as the library names it."""
    import datasets  # takes two seconds, so only those who configure a data set wait for it
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = repository.rpartition("/")
    root = Path(cache or datasets.config.HF_DATASETS_CACHE).expanduser()
    return root / "___".join([*([owner] if owner else []), camelcase_to_snakecase(name)])


def _look_up_commit(repository: str, revision: str, folder: Path, probe_seconds: float) -> str:
    """Of a branch or a tag. What the hub says is kept beside the prepared copies."""
    kept = folder / f"{quote(revision, safe='')}.commit"
    try:
        commit = _ask_hub(repository, revision, probe_seconds)
    except EnvironmentUnavailable as error:
        if not kept.is_file():
            raise
        log.warning("%s; the copy that was prepared last is used", error.detail)
        return kept.read_text(encoding="ascii").strip()
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(commit, encoding="ascii")
    return commit


def _load_cached(
    repository: str, subset: str | None, commit: str | None, cache: Path | None, folder: Path
) -> Mapping[str, ArrowRows] | None:
    """None where there is no prepared copy, or none of this commit."""
    import datasets
    from datasets.packaged_modules.cache.cache import Cache

    datasets.disable_progress_bars()
    config, version, found = subset, "auto", "auto"
    if commit is not None:
        copies = [copy for copy in folder.glob(f"*/*/{commit}") if subset in (None, copy.parts[-3])]
        if len(copies) != 1:
            return None
        config, version, found = copies[0].parts[-3:]
    try:
        loaded: Mapping[str, ArrowRows] = Cache(
            repo_id=repository,
            dataset_name=repository.rpartition("/")[2],
            config_name=config,
            version=version,
            hash=found,
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
    wanted = f"subset {subset} cannot" if subset else "it cannot"
    return f"{wanted} be loaded ({explain_error(error)})"


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
        found = HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(repository, revision=revision, timeout=seconds)
    except Exception as error:
        answers.put(error)
    else:
        answers.put(found.sha or "")


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
