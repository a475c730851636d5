"""Base classes of environments: one whose tasks are generated, and one whose tasks may come from data sets.

A generated environment has levels, splits that do not overlap, one prompt out of several phrasings, and an answer in
`<answer>` tags that code checks. An environment says how a task is made, what makes two of them the same, what stands
in its prompt, what is wrong with an answer, and what would be right. Everything else is here, and can be replaced.

To read data sets as well, name `DatasetEnvironment` before the base that makes the environment's own tasks:
`class Math(DatasetEnvironment[MathRow], ProceduralEnvironment[…])`. Say which rows it reads (`row_forms`) and how a row
becomes a task (`build_row_task`).
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue, SerializerFunctionWrapHandler, model_serializer

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import BUILT_IN, DEFAULT, Completion, Dataset, Message, Task
from app.domain.values import Frozen, Name, Split, suggest
from app.ports.environment import Datasets, Environment, Tools
from app.toolkit.answers import forgive_markup, grade_committed
from app.toolkit.seeded import SeededRandom, draw_apart
from app.toolkit.templates import Phrasings
from app.toolkit.thoughts import map_completions

Level = Literal["first", "easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = get_args(Level)
MIXED: tuple[Level, ...] = ("easy", "medium", "hard")
_SHOWN: Final = 2
"""Solved tasks before a task of level `first`."""
_FOLLOWED: Final = 0.5
"""Pass rate of the tasks that `auto` hands out: such groups teach most."""
_DRAWN: Final = 64
"""Draws for a solved task of the same kind."""


class LevelParams(Frozen):
    level: Level | Literal["mixed", "auto"] = "mixed"
    """Difficulty of tasks. `first`: tiny tasks after two solved ones, for models that solve no easy task. `mixed`: a
    third each of `easy`, `medium` and `hard`. `auto`: all levels; a run is then handed those that its policy gets right
    about half of the time, as `select.target_pass_rate` does. The metadata name the level for statistics."""


MadeT = TypeVar("MadeT", bound=Frozen)
ParamsT = TypeVar("ParamsT", bound=LevelParams)


class ProceduralEnvironment(Environment, Generic[MadeT, ParamsT]):
    """Subclass it as `ProceduralEnvironment[Puzzle, Params]`. `Puzzle` holds the whole task and is its hidden
    reference. `Params` holds the options of callers (`LevelParams` if there are no others)."""

    Made: ClassVar[type[Frozen]]
    phrasings: ClassVar[Phrasings]
    data: ClassVar[Mapping[str, str]] = {}
    """Digests of word lists and other data, by name."""
    test_size: ClassVar[int] = 1_000
    stats_label: ClassVar[str | None] = "level"
    scores_at_once: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = MIXED
    ignores_markup: ClassVar[bool] = False
    """Whether an answer counts with quotes or markup around it, or a full stop behind it, such as `**7**`. Not for an
    environment whose right answers may have those themselves."""
    """Those that `make` knows. `LEVELS` has `first` too."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is ProceduralEnvironment:
                cls.Made, cls.Params = get_args(base)

    @abstractmethod
    def make(self, draws: SeededRandom, level: Level, params: ParamsT) -> MadeT:
        """Generates a task. Pure: all randomness comes from `draws`. Called until the task is in the wanted split."""

    def key(self, made: MadeT) -> str:
        """Equal for equivalent tasks; decides the split. By default all of `made`."""
        return made.model_dump_json()

    @abstractmethod
    def slots(self, made: MadeT) -> Mapping[str, str | int]:
        """Values for the slots of a phrasing. `number`, unique per task, is added automatically."""

    def wording(self, made: MadeT) -> Phrasings:
        """Override it to use several phrasings, and add their digests to `data`."""
        return self.phrasings

    def metadata(self, made: MadeT) -> dict[str, JsonValue]:
        """Public metadata besides the level."""
        return {}

    def kind(self, made: MadeT) -> object:
        """What the solved tasks before one of level `first` have in common with it, if possible."""
        return self.metadata(made)

    def turns(self, made: MadeT) -> int:
        """Maximum turns of an episode."""
        return 1

    def fault(self, answer: str, made: MadeT) -> str:
        """Describes what is wrong with a committed answer, without revealing the right one; empty when it is right.
        `answer` is untrusted and at most 10,000 characters long. Required unless `score` is overridden."""
        raise NotImplementedError

    @abstractmethod
    def solution(self, made: MadeT) -> str:
        """A right answer, without tags."""

    def check_params(self, params: BaseModel) -> None:
        if getattr(params, "level", "mixed") not in (*self.levels, "mixed", "auto"):
            words = f"{self.name} has no such level; there are {', '.join(self.levels)}, mixed and auto"
            raise InvalidRequest(words, field="params.level")

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": self.phrasings.digest, **self.data}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return self.test_size if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = cast("ParamsT", self.Params.model_validate(params, from_attributes=True))
        level = self.level(split, index, chosen)
        seed = f"{self.name} {chosen.model_dump_json(exclude={'dataset'})} {index}"
        made = self.draw_content(seed, split, level, chosen)
        task = self._word(made, level, 2 * index + (split == "test"), f"{seed} {split}")
        if level != "first":
            return task
        shown = self._draw_shown(made, f"{seed} {split}", chosen)
        solved = [self._word(one, level, number, f"{seed} {split}") for number, one in enumerate(shown, start=1)]
        before = tuple(message for one in solved for message in (*one.messages, self._write_solution(one)))
        return task.model_copy(update={"messages": (*before, *task.messages)})

    def _word(self, made: MadeT, level: Level, number: int, seed: str) -> Task:
        prompt = self.wording(made).say(SeededRandom(seed), **{"number": number, **self.slots(made)})
        return Task(
            messages=(Message(role="user", content=prompt),),
            max_turns=self.turns(made),
            metadata={"level": level, **self.metadata(made)},
            reference=made.model_dump(mode="json"),
        )

    def _draw_shown(self, made: MadeT, seed: str, params: ParamsT) -> Sequence[MadeT]:
        """Different training tasks of level `first`, none of them `made`; of its kind, if a few draws have so many. A
        small model takes the form of an answer from examples, and seldom from a rule."""
        alike, others = dict[str, MadeT](), dict[str, MadeT]()
        for number in range(_DRAWN):
            one = self.draw_content(f"{seed} shown {number}", "train", "first", params)
            if self.key(one) != self.key(made):
                (alike if self.kind(one) == self.kind(made) else others).setdefault(self.key(one), one)
            if len(alike) == _SHOWN:
                break
        return [*alike.values(), *others.values()][:_SHOWN]

    def _write_solution(self, task: Task) -> Message:
        gold = self.gold(task)
        assert gold is not None  # noqa: S101 - a task of ours has one
        return Message(role="assistant", content=gold.answer)

    def draw_content(self, seed: str, split: Split, level: Level, params: ParamsT) -> MadeT:
        """Pure. Override it to defer work until the task's split is known."""
        return draw_apart(seed, split == "test", lambda draws: self.make(draws, level, params), self.key)

    def level(self, split: Split, index: int, params: LevelParams) -> Level:
        drawn = {"mixed": MIXED, "auto": self.levels}.get(params.level)
        return cast("Level", params.level) if drawn is None else SeededRandom(f"{self.name} {split} {index}").one(drawn)

    def find_target_pass_rate(self, params: BaseModel) -> float | None:
        return _FOLLOWED if getattr(params, "level", None) == "auto" else None

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        if self.stats_label == "level":
            return self.level(split, index, LevelParams.model_validate({"level": getattr(params, "level", "mixed")}))
        return super().label(split, index, params)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.parse_reference(task)
        return await map_completions(group, lambda one: grade_committed(one.answer, self._choose_fault(made)))

    def _choose_fault(self, made: MadeT) -> Callable[[str], str]:
        def find_fault(answer: str) -> str:
            return self.fault(answer, made)

        return forgive_markup(find_fault) if self.ignores_markup else find_fault

    def gold(self, task: Task) -> Completion | None:
        return Completion(text=f"<answer>{self.solution(self.parse_reference(task))}</answer>")

    def equivalent(self, one: Task, other: Task) -> bool:
        first, second = self.parse_reference(one), self.parse_reference(other)
        return self.key(first) == self.key(second) or self.solution(first) == self.solution(second)

    def parse_reference(self, task: Task) -> MadeT:
        return cast("MadeT", self.Made.model_validate(task.reference))


# Tasks from data sets

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
    answers_are_values: ClassVar[bool] = False
    """Whether the answers of golds are values: numbers, terms, names, letters. `data check` writes them otherwise, and
    says what of that is paid."""

    def __init__(self, datasets: Mapping[str, Dataset[RowT]] | None = None) -> None:
        self.datasets = datasets or {}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        return cls(cls.read_datasets(datasets))

    @classmethod
    def read_datasets(cls, datasets: Datasets) -> Mapping[str, Dataset[RowT]]:
        rows = datasets.rows(cls.name, *cls.row_forms, subset=cls.hub_subset)
        return cast("Mapping[str, Dataset[RowT]]", rows)

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
        super().check_params(params)
        self.find_dataset(params)

    def find_dataset(self, params: BaseModel) -> Dataset[RowT] | None:
        """None for the environment's own tasks. InvalidRequest naming `params.dataset`."""
        chosen: str | None = getattr(params, "dataset", None)
        if chosen is None:
            return next(iter(self.datasets.values()), None)
        if chosen == BUILT_IN:
            return None
        if chosen not in self.datasets:
            names = [*self.datasets, BUILT_IN]
            hint = suggest(chosen, names) or f"; there are {', '.join(names)}"
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
        origin = {"source": dataset.origin, "dataset": dataset.name, "split": split, "index": index}
        return task.model_copy(update={"metadata": {**origin, **task.metadata}})

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        if self.find_dataset(params) is None:
            return super().label(split, index, params)
        return Environment.label(self, split, index, params)
