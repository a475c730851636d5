"""A folder with one JSON-lines file per split."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from app.domain.values import Split
from app.errors import EnvironmentUnavailable
from app.sources.rows import Table


def read_folder(folder: Path) -> dict[Split, Table]:
    """Nothing is written into the folder, and nothing is kept of it. EnvironmentUnavailable names file and row."""
    if not folder.is_dir():
        raise EnvironmentUnavailable(f"{folder.name}: there is no such folder")
    tables: dict[Split, Table] = {}
    for split in get_args(Split):
        file = folder / f"{split}.jsonl"
        if not file.is_file():
            raise EnvironmentUnavailable(f"{folder.name}: {file.name} is missing")
        tables[split] = Table(file.name, _read(file))
    return tables


def _read(file: Path) -> Sequence[Mapping[str, object]]:
    _require_rows(file)
    import datasets  # takes two seconds, so only those who configure a data set wait for it

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(prefix="gateway-rows-") as cache:
        try:
            table = datasets.load_dataset(
                "json", data_files=str(file), split="train", cache_dir=cache, keep_in_memory=True
            )
            rows: Sequence[Mapping[str, object]] = table.to_list()
        except Exception as error:  # whatever the library raises, the file could not be read
            raise EnvironmentUnavailable(
                f"{file.parent.name}: {file.name} cannot be read ({type(error).__name__})"
            ) from error
    return rows


def _require_rows(file: Path) -> None:
    """The library's own errors name neither file nor row, so lines that are no JSON objects are found here."""
    number = 0
    try:
        with file.open("rb") as lines:
            for line in lines:
                if not line.strip():
                    continue
                number += 1
                if not isinstance(json.loads(line), dict):
                    raise EnvironmentUnavailable(f"{file.parent.name}: {file.name}, row {number}: not a JSON object")
    except OSError as error:
        raise EnvironmentUnavailable(f"{file.parent.name}: {file.name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise EnvironmentUnavailable(f"{file.parent.name}: {file.name}, row {number}: not JSON") from error
    if number == 0:
        raise EnvironmentUnavailable(f"{file.parent.name}: {file.name} has no rows")
