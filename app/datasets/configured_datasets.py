"""Data sets at configured locations: a folder, or an id on the hub."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from app.datasets.folder import read_folder
from app.datasets.hub import read_hub
from app.datasets.tables import SplitTable
from app.domain.digests import digest
from app.domain.errors import EnvironmentUnavailable
from app.domain.sources import Dataset
from app.domain.values import Split

RowT = TypeVar("RowT", bound=BaseModel)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?")


class ConfiguredDatasets:
    """`locations`: by environment name, a folder with `train.jsonl` and `test.jsonl`, or a hub id. An existing folder
    takes precedence over a hub id. Blank locations are ignored."""

    def __init__(
        self,
        locations: Mapping[str, str],
        *,
        folders: Mapping[str, Path | None] | None = None,
        hub_cache: Path | None = None,
        probe_seconds: float = 5.0,
    ) -> None:
        """`folders`: other folders by name.
        `hub_cache`: cache of prepared hub data sets; None for the library's default (`HF_HOME`).
        `probe_seconds`: timeout of the test whether the hub is reachable."""
        self._locations = {name: location.strip() for name, location in locations.items() if location.strip()}
        self._folders = folders or {}
        self._hub_cache = hub_cache
        self._probe_seconds = probe_seconds

    def rows(self, name: str, row: type[RowT], *, config: str | None = None) -> Dataset[RowT] | None:
        """`row` defines the columns; others are ignored, and nulls count as absent. The digest covers all rows of both
        splits, in order, and nothing else."""
        location = self._locations.get(name)
        if location is None:
            return None
        origin = location.rstrip("/") if _is_hub_id(location) else _resolve_folder(location).name
        splits = {
            split: _validate_rows(table, row, origin) for split, table in self._read_tables(location, config).items()
        }
        return Dataset(
            origin=origin,
            digest=digest({split: [item.model_dump(mode="json") for item in rows] for split, rows in splits.items()}),
            splits=splits,
        )

    def folder(self, name: str) -> Path | None:
        return self._folders.get(name)

    def _read_tables(self, location: str, config: str | None) -> dict[Split, SplitTable]:
        if _is_hub_id(location):
            return read_hub(location, config, self._hub_cache, self._probe_seconds)
        return read_folder(_resolve_folder(location))


def _resolve_folder(location: str) -> Path:
    return Path(location).expanduser().absolute()


def _is_hub_id(location: str) -> bool:
    return _HUB_ID.fullmatch(location) is not None and not _resolve_folder(location).is_dir()


def _validate_rows(table: SplitTable, row: type[RowT], origin: str) -> tuple[RowT, ...]:
    columns = {field.alias or name for name, field in row.model_fields.items()}
    read = [{key: value for key, value in item.items() if key in columns and value is not None} for item in table.rows]
    try:
        return tuple(TypeAdapter(list[row]).validate_python(read))  # type: ignore[valid-type]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        number, *field = first["loc"]
        raise EnvironmentUnavailable(
            f"{origin}: {table.name}, row {int(number) + 1}, {'.'.join(map(str, field)) or 'whole row'}: {first['msg']}"
        ) from None
