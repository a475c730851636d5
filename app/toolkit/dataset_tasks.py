"""Base class of environments whose tasks may come from data sets.

Name it before the base that makes the environment's own tasks: `class Math(DatasetEnvironment[MathRow],
ProceduralEnvironment[…])`. Say which rows it reads (`row_forms`) and how a row becomes a task (`build_row_task`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from app.domain.errors import InvalidRequest
from app.domain.sources import BUILT_IN, DEFAULT, Dataset
from app.domain.suggestions import suggest
from app.domain.tasks import Task
from app.domain.values import Frozen, Name, Split
from app.ports.environment import Datasets, Environment

RowT = TypeVar("RowT")


class DatasetParams(Frozen):
    dataset: Name | None = None
    """Name of a configured data set; by default the first, or `built-in` where there is none. `built-in`: the tasks
    that need no data set."""

    @model_serializer(mode="wrap")
    def _leave_default_out(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What was not chosen is in no seed and in no name of a stream."""
        values: dict[str, Any] = serialize(self)
        return {name: value for name, value in values.items() if name != "dataset" or value is not None}


class DatasetEnvironment(Environment, Generic[RowT]):
    """Rows of the chosen data set are the tasks, and the environment's own where none is chosen. `Params` are to have
    the fields of `DatasetParams`."""

    Params: ClassVar[type[BaseModel]] = DatasetParams
    row_forms: ClassVar[tuple[type[BaseModel], ...]]
    """Models of a row. That of a data set is the first whose required columns it has."""
    hub_subset: ClassVar[str | None] = None
    """The hub's configuration where the operator gives none."""

    def __init__(self, datasets: Mapping[str, Dataset[RowT]] | None = None) -> None:
        self.datasets = datasets or {}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        return cls(cls.read_datasets(datasets))

    @classmethod
    def read_datasets(cls, datasets: Datasets) -> Mapping[str, Dataset[RowT]]:
        read = datasets.rows(cls.name, *cls.row_forms, subset=cls.hub_subset)
        return cast("Mapping[str, Dataset[RowT]]", read)

    def build_row_task(self, row: RowT, dataset: Dataset[RowT], params: BaseModel) -> Task:
        """The task of a row. Pure. `source`, `dataset`, `split` and `index` are added to its metadata."""
        raise NotImplementedError

    def build_dataset_task(self, dataset: Dataset[RowT], split: Split, index: int, params: BaseModel) -> Task:
        """Override it where a task is not of one row. Pure."""
        return self.build_row_task(dataset.splits[split][index], dataset, params)

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        """The task without a data set: by default that of the next base."""
        return super().task(split, index, params)  # type: ignore[safe-super]  # the next base has one

    def count_own_tasks(self, split: Split, params: BaseModel) -> int | None:
        return super().size(split, params)

    @property
    def own_digests(self) -> Mapping[str, str]:
        """Digests of what is behind the tasks without a data set."""
        return super().digests

    @property
    def own_origin(self) -> str:
        return super().origin

    @property
    def origin(self) -> str:
        return ", ".join(dataset.origin for dataset in self.datasets.values()) or self.own_origin

    @property
    def digests(self) -> Mapping[str, str]:
        rows = {
            "dataset" if name == DEFAULT else f"dataset.{name}": dataset.digest
            for name, dataset in self.datasets.items()
        }
        return {**self.own_digests, **rows}

    def check_params(self, params: BaseModel) -> None:
        self.find_dataset(params)

    def find_dataset(self, params: BaseModel) -> Dataset[RowT] | None:
        """None for the environment's own tasks. InvalidRequest naming `params.dataset`."""
        chosen: str | None = getattr(params, "dataset", None)
        if chosen is None:
            return next(iter(self.datasets.values()), None)
        if chosen == BUILT_IN:
            return None
        if chosen not in self.datasets:
            known = [*self.datasets, BUILT_IN]
            hint = suggest(chosen, known) or f"; there are {', '.join(known)}"
            raise InvalidRequest(f"{self.name} has no data set {chosen!r}{hint}", field="params.dataset")
        return self.datasets[chosen]

    def count_left_out(self, dataset: str, split: Split) -> Mapping[str, int]:
        """Rows that make no task for a reason which the row alone does not show, by reason."""
        return {}

    def find_row(self, task: Task) -> RowT | None:
        """The row that a task was made from; None for a task of the environment's own."""
        dataset = self.datasets.get(str(task.metadata.get("dataset")))
        if dataset is None:
            return None
        return dataset.splits[cast("Split", task.metadata["split"])][int(str(task.metadata["index"]))]

    def size(self, split: Split, params: BaseModel) -> int | None:
        dataset = self.find_dataset(params)
        return self.count_own_tasks(split, params) if dataset is None else len(dataset.splits.get(split, ()))

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        dataset = self.find_dataset(params)
        if dataset is None:
            return self.build_own_task(split, index, params)
        task = self.build_dataset_task(dataset, split, index, params)
        place = {"source": dataset.origin, "dataset": dataset.name, "split": split, "index": index}
        return task.model_copy(update={"metadata": {**place, **task.metadata}})

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        if self.find_dataset(params) is None:
            return super().label(split, index, params)
        return Environment.label(self, split, index, params)
