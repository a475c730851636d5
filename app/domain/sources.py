"""Data sets: where the operator says they lie, and the rows from which an environment makes tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Generic, Self, TypeVar

from pydantic import BeforeValidator, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from app.domain.values import Frozen, Name, Split

RowT = TypeVar("RowT")

LEFT_OUT: Final = "left_out"
"""Type of the errors that leave a row out."""

CHECKED: Final[Mapping[str, bool]] = {"checked": True}
"""The context in which a row is read again that was checked before. Validators may then leave out what takes long."""

DEFAULT: Final = "default"
"""Name of the only data set of an environment, where the operator gives none."""

BUILT_IN: Final = "built-in"
"""Stands for the tasks that an environment has without a data set."""

Text = Annotated[str, Field(min_length=1)]


def _wrap_text(value: object) -> object:
    return (value,) if isinstance(value, str) else value


SplitNames = Annotated[tuple[Text, ...], BeforeValidator(_wrap_text), Field(min_length=1)]


class DatasetSource(Frozen):
    """A data set of an environment. A text alone is its `source`."""

    source: Text
    """A folder, a file (JSON lines, a JSON list, CSV or Parquet), or an id on the hub. What is on disk comes first."""
    subset: Text | None = None
    """The hub's configuration name; in a folder, the folder within it."""
    revision: Text | None = None
    """The hub's revision: a commit, a tag or a branch. A commit makes sure that the rows never change."""
    splits: dict[Split, SplitNames] = {}
    """Which splits of the data set serve as `train` and `test`: a name each, or a list of them. Without it those that
    are called so. In a folder a split is the file of that name."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the rows of `train` that serve as `test` instead. The text of a row decides, so equal rows stay
    together."""
    columns: dict[Text, Text] = {}
    """Columns that are called otherwise: the environment's name, and that of the data set. A dot leads into a column
    with parts: `answer: reward_model.ground_truth`."""
    values: dict[Text, JsonValue] = {}
    """Values of columns that the data set has not, or that are empty in a row: `kind: number`."""
    files: Path | None = None
    """Folder of the files that rows name, such as databases; the folder of the data set by default."""

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: object) -> object:
        return {"source": value.strip()} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_hold_out(self) -> Self:
        if self.hold_out is not None and "test" in self.splits:
            raise ValueError("`hold_out` makes the split `test`: leave `test` out of `splits`")
        return self


def _name_alone(value: object) -> object:
    if isinstance(value, str):
        return {DEFAULT: value} if value.strip() else {}
    if isinstance(value, Mapping) and BUILT_IN in value:
        raise ValueError(f"{BUILT_IN!r} stands for the tasks that need no data set: choose another name")
    return value


DatasetSources = Annotated[dict[Name, DatasetSource], BeforeValidator(_name_alone)]
"""The data sets of an environment by name, or the only one. The first serves where `params.dataset` chooses none."""


@dataclass(frozen=True)
class Dataset(Generic[RowT]):
    """Validated rows by split, read when they are asked for. `name` is the operator's, `origin` is shown in the
    catalogue, and `digest` changes when any row does. A split that the data set has not is absent. Rows may name files,
    such as databases: those lie in `folder`."""

    name: str
    origin: str
    digest: str
    splits: Mapping[Split, Sequence[RowT]]
    folder: Path | None = None


def leave_out(reason: str) -> PydanticCustomError:
    """What a validator of a row raises for a row that is sound but makes no task, such as one without an answer. The
    row is left out and counted. A ValueError says that the row is broken: then the whole data set is refused."""
    return PydanticCustomError(LEFT_OUT, "{reason}", {"reason": reason})
