"""Files of rows in a folder, or one alone, by split."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app.datasets.raw_rows import SUFFIXES
from app.domain.errors import EnvironmentUnavailable

_SHARD: Final = re.compile(r"(.+?)-\d{5}-of-\d{5}")


def list_files(source: Path, subset: str | None, usual_subset: str | None) -> Mapping[str, tuple[Path, ...]]:
    """Files by split: their names without ending, or what comes before `-00000-of-00001`. Without `subset` they may lie
    in `data` or `usual_subset`, as in copies of the hub's repositories. EnvironmentUnavailable for a folder without
    any."""
    if source.is_file():
        if source.suffix.lower() not in SUFFIXES:
            raise EnvironmentUnavailable(f"{source.name}: the name must end with {', '.join(SUFFIXES)}")
        return {_name_split(source): (source,)}
    if not source.is_dir():
        raise EnvironmentUnavailable(f"{source.name}: folder not found")
    places = (subset,) if subset else (".", "data", *((usual_subset,) if usual_subset else ()))
    found = next(filter(None, (_find_files(source / place) for place in places)), None)
    if not found:
        where = f"{source.name}/{subset}" if subset else source.name
        raise EnvironmentUnavailable(f"{where}: no file ends with {', '.join(SUFFIXES)}")
    return found


def _find_files(folder: Path) -> Mapping[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.is_file() and file.suffix.lower() in SUFFIXES:
            found[_name_split(file)] = (*found.get(_name_split(file), ()), file)
    return found


def _name_split(file: Path) -> str:
    shard = _SHARD.fullmatch(file.stem)
    return shard[1] if shard else file.stem
