"""Rows of a data set that an environment was given to make tasks from."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from app.domain.values import Split

RowT = TypeVar("RowT")


@dataclass(frozen=True)
class Dataset(Generic[RowT]):
    """Validated rows by split. `digest` changes when any row does; `origin` is shown in the catalogue."""

    origin: str
    digest: str
    splits: dict[Split, tuple[RowT, ...]]
