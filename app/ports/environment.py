"""What an author writes: an environment, and what it gets from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel

from app.domain.errors import InvalidRequest
from app.domain.judging import Rubric
from app.domain.scores import Score
from app.domain.sources import Dataset
from app.domain.tasks import Completion, Context, ContextQuery, Message, Task, Turn
from app.domain.values import NoParams, Split
from app.ports.judges import Panel
from app.ports.sandbox import NoPrograms, NoWorkers, Programs, Workers

RowT = TypeVar("RowT", bound=BaseModel)


class Datasets(Protocol):
    """Data sets by environment name, as configured."""

    def rows(self, name: str, row: type[RowT], *, config: str | None = None) -> Dataset[RowT] | None:
        """None where nothing is configured under `name`. Blocking. EnvironmentUnavailable with the reason when what
        is configured cannot be read or a row does not validate. `config` is the hub's configuration name."""

    def folder(self, name: str) -> Path | None:
        """Where files called `name` are configured to lie; None where nothing is."""


@dataclass(frozen=True)
class Tools:
    """All that an environment gets from the outside while scoring."""

    panel: Panel
    workers: Workers = field(default_factory=NoWorkers)
    programs: Programs = field(default_factory=NoPrograms)


class Environment(Protocol):
    """A family of tasks and the rule that scores answers to them. Inherit from it: most methods have a default.

    Nothing here may depend on time, process or request order: the same index gives the same bytes everywhere.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    Params: ClassVar[type[BaseModel]] = NoParams
    """Only what changes prompt or reference; every field has a default."""
    rubric: ClassVar[Rubric | None] = None
    multi_turn: ClassVar[bool] = False
    runs_programs: ClassVar[bool] = False
    """Whether scoring runs what a model wrote: it then serves only where that is kept well apart, or is forced."""
    chance: ClassVar[float] = 0.0
    """At most this share of tasks pays for the gold of another task, drawn at random."""
    stats_label: ClassVar[str | None] = None
    """The metadata key, if any, by which its figures can be broken down: one with few values, all of them texts."""
    Draft: ClassVar[type[BaseModel] | None] = None
    """What an author brings to try something that is in no data yet; None where there is nothing to try."""

    @property
    def origin(self) -> str:
        """Where tasks come from: a data set's name, or `generated` / `built-in`."""
        return "generated"

    @property
    def digests(self) -> Mapping[str, str]:
        """By name, of everything but code that tasks and scores rest on: data set, sheets, scenes, rubric."""
        return {}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        """Blocking, once, at start. EnvironmentUnavailable when a configured source cannot be read."""
        return cls()

    def sheet_texts(self) -> tuple[str, ...]:
        """Its character sheets as JSON texts, in their order: what people edit while it serves. Empty without any."""
        return ()

    def with_sheets(self, texts: Sequence[str]) -> Self:
        """Blocking. The same environment over other sheets, as `sheet_texts` gave them. ValueError for what is none."""
        return self

    def size(self, split: Split, params: BaseModel) -> int | None:
        """Tasks per epoch; None for endless."""
        return None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        """Pure. `index` is in [0, size), or any non-negative integer below 2**53 when endless."""
        ...

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        """What the task's metadata have under `stats_label`. Override it where that is known without the task."""
        label = self.task(split, index, params).metadata.get(self.stats_label or "")
        return label if isinstance(label, str) else None

    def query(self, task: Task) -> ContextQuery | None:
        """What to retrieve before the task is handed out."""
        return None

    def place(self, task: Task, context: Context) -> Task:
        """Pure: the same task with the passages in its prompt."""
        return task

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        """Pure: replays the episode from `messages` (all after the prompt). InvalidRequest for forged observations."""
        raise InvalidRequest(f"{self.name} is single-turn", field="messages")

    def draft(self, draft: BaseModel) -> "Drafted":
        """Pure: the task that `draft` (a `Draft`) describes. InvalidRequest naming `draft.<field>`."""
        raise InvalidRequest(f"{self.name} does not accept drafts", field="draft")

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        """One score per completion, in order. Truncated completions are already taken out when the run says so."""
        ...

    def gold(self, task: Task) -> Completion | None:
        """A completion that must score 1.0; None where no sure win exists."""
        return None

    def equivalent(self, one: Task, other: Task) -> bool:
        """Whether a right answer to one is a right answer to the other."""
        return one.reference == other.reference


@dataclass(frozen=True)
class Drafted:
    """A task made from a draft, and the environment that scores answers to it as it scores its own."""

    environment: Environment
    task: Task
