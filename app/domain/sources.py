"""Rows of a data set from which an environment makes tasks."""

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
