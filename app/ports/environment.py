"""The interface of environments, and what the service provides to them.

Authors inherit `Environment`: a pure function from an index to a task, and the rule that scores completions of a task.
While scoring it has `Tools`: a panel of judges, workers for code that reads what models wrote, and jails for programs
that models wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Protocol, Self, TypeVar, runtime_checkable

from pydantic import BaseModel, JsonValue

from app.domain.errors import InvalidRequest, WorkerFailed
from app.domain.hosting import ServerFacts
from app.domain.judging import Case, Judgement, Rubric
from app.domain.scores import ReferencePlan, Score
from app.domain.tasks import (
    DEFAULT_LIMITS,
    Completion,
    Context,
    ContextQuery,
    Dataset,
    Execution,
    Limits,
    Message,
    Program,
    Task,
    Turn,
)
from app.domain.values import Frozen, NoParams, Split, Unit
from app.ports.hosts import EpisodeHost
from app.ports.judges import Panel
from app.ports.players import Player

# The service around environments


@runtime_checkable
class ManagedResource(Protocol):
    """A judge or retriever that holds a resource while the service runs."""

    async def open(self) -> None:
        """Called before first use. A judge raises StoreUnavailable when it cannot read its spending."""

    async def close(self) -> None: ...


ScoredGroup = tuple[Sequence[Score], float]
"""A group's scores, and how many seconds it took to score it."""


class Observer(Protocol):
    """Receives what happens in the service, for metrics and logs. Never raises, never blocks."""

    def record_hand_out(self, environment: str, tasks: int) -> None: ...

    def record_scores(self, environment: str, groups: Sequence[ScoredGroup]) -> None: ...

    def record_judgements(self, judgements: Sequence[Judgement]) -> None: ...

    def record_refusal(self, environment: str, code: str) -> None: ...

    def record_closed_group(self, environment: str, flags: Sequence[str]) -> None:
        """A group sent in pieces was closed, with these flags."""

    def record_retrieval(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        """`future`: number of passages withheld because they are later than the requested time."""

    def groups_received(self, new: int, known: int) -> None:
        """`known` groups were duplicates."""

    def batch_asked(self, outcome: str) -> None:
        """`outcome` is `handed`, `again`, `not_yet` or `no_trainer`."""

    def record_alarms(self, standing: Mapping[str, int]) -> None:
        """Alarms of all runs that stand now, by series."""


Clock = Callable[[], datetime]
"""The current time, in UTC, with its time zone."""


# What environments are given


class Workers(Protocol):
    """Killable worker processes, for code that parses or runs model output."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        """Runs `function(*arguments)` in another process. The function is found by name, so it must be a module-level
        function without state. Arguments and result are passed as JSON. WorkExceeded when it exceeds `limits` twice,
        the second time in a fresh process. WorkerFailed when it raises, returns no JSON, or dies twice within its
        limits. Cancelling kills it."""


class NoWorkers:
    """For environments that need no workers. Calling it is a bug in the setup of the tools."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        raise WorkerFailed(f"{function.__qualname__}: no workers were given")


class Programs(Protocol):
    """Runs untrusted programs, each in its own isolated process."""

    async def run(self, program: Program) -> Execution:
        """Runs a program; whatever it does is reported in the `Execution`. The wall-clock limit `seconds` is reported
        only if it is met twice, the second time in a fresh process. WorkerFailed when the service could not run it.
        Cancelling kills it."""


class NoPrograms:
    """For environments that run no programs. Calling it is a bug in the setup of the tools."""

    async def run(self, program: Program) -> Execution:
        raise WorkerFailed("no place to run programs was given")


RowT = TypeVar("RowT", bound=BaseModel)


class Datasets(Protocol):
    """Configured data sets, by environment name."""

    def rows(self, name: str, *forms: type[RowT], subset: str | None = None) -> Mapping[str, Dataset[RowT]]:
        """The data sets of the environment `name`, by their own names, in the operator's order; none where none is
        configured. `forms` are models of a row: that of a data set is the first whose required columns it has.
        `subset` is the hub's configuration where the operator gives none. Blocking. EnvironmentUnavailable with file
        and line when the data cannot be read or a row is invalid."""

    def folder(self, name: str) -> Path | None:
        """The configured folder of the files called `name`; None when none is configured."""

    def list_written(self, name: str) -> Mapping[str, str]:
        """Texts that people wrote in place of files of that folder or beside them, by path in it."""


@dataclass(frozen=True)
class Tools:
    """Everything that an environment may use while scoring."""

    panel: Panel
    workers: Workers = field(default_factory=NoWorkers)
    programs: Programs = field(default_factory=NoPrograms)


# Environments


class FreeReward(Frozen):
    """What an environment knows that a strategy earns without doing the task. `atropos-envs envs check` measures it."""

    strategy: str
    """As the check calls it, such as `constant` or `hedge`."""
    share: Unit | None
    """Mean reward, at the level where it is highest. None where the answers that the strategy sends are right, so that
    there is nothing to measure."""
    because: str


class RefusedSpelling(Frozen):
    """Spellings of a right answer that an environment refuses on purpose. `atropos-envs envs check` sends many."""

    kinds: tuple[str, ...]
    """As the check names them, such as `text: quotes`; `text` stands for all spellings of a text."""
    because: str


class Environment(Protocol):
    """A family of tasks and the rule that scores their completions. Inherit from it: most methods have defaults.

    Results must not depend on time, process or request order: the same index gives the same bytes everywhere.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    Params: ClassVar[type[BaseModel]] = NoParams
    """Parameters that change prompt or reference. Every field has a default."""
    rubric: ClassVar[Rubric | None] = None
    takes_rubric: ClassVar[bool] = False
    """Whether the settings and runs may bring another rubric, which then replaces that of each case."""
    multi_turn: ClassVar[bool] = False
    runs_elsewhere: ClassVar[bool] = False
    """Whether its episodes run on another's server: `step` and `score` are then asked nothing."""
    runs_programs: ClassVar[bool] = False
    """Whether scoring runs programs written by models. Such environments serve only with strong isolation, or if
    forced."""
    costly_first_task: ClassVar[bool] = False
    """Whether the first task of a process takes a second or much memory, such as by importing a large package. A start
    makes none then: its example stands in the OpenAPI document from when that is first asked for."""
    scores_at_once: ClassVar[bool] = False
    """Whether `score` awaits nothing for a group that is not large: no judge, worker or program. Such groups are scored
    one after the other, without looking first whether they are known."""
    chance: ClassVar[float] = 0.0
    """Upper bound on the share of tasks that accept the gold answer of a random other task."""
    free_rewards: ClassVar[tuple[FreeReward, ...]] = ()
    """Where strategies earn more than nothing. Without an entry guesses may earn `chance` or a little
    luck, everything else nothing."""
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = ()
    """Without an entry every spelling that the check knows must be paid."""
    stats_label: ClassVar[str | None] = None
    """Metadata key by which statistics can be broken down: one with few values, all of them texts."""
    Draft: ClassVar[type[BaseModel] | None] = None
    """Model of drafts that authors can preview; None if the environment accepts no drafts."""

    @property
    def origin(self) -> str:
        """Source of the tasks: a data set's name, `generated` or `built-in`."""
        return "generated"

    @property
    def server_facts(self) -> ServerFacts | None:
        """Of the server that its episodes run on; None where they run here."""
        return None

    @property
    def digests(self) -> Mapping[str, str]:
        """Digests, by name, of all data behind tasks and scores: data set, sheets, scenes, rubric."""
        return {}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        """Loads the data. Blocking, once, at start. EnvironmentUnavailable when a configured source cannot be read."""
        return cls()

    def sheet_texts(self) -> tuple[str, ...]:
        """Its character sheets as JSON texts, in order, and what else people may edit while the service runs."""
        return ()

    def with_sheets(self, texts: Sequence[str]) -> Self:
        """The same environment with other sheets, in the form of `sheet_texts`. Blocking. ValueError for invalid
        ones."""
        return self

    def check_params(self, params: BaseModel) -> None:
        """InvalidRequest naming `params.<field>` for values that only the loaded data can refuse."""
        return None

    def size(self, split: Split, params: BaseModel) -> int | None:
        """Number of tasks per epoch; None for endless splits, 0 for a split that its data set has not."""
        return None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        """The task at an index. Pure. `index` is in [0, size), or any integer in [0, 2**53) if endless."""
        ...

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        """The metadata value under `stats_label`. Override it if the value is known without building the task."""
        label = self.task(split, index, params).metadata.get(self.stats_label or "")
        return label if isinstance(label, str) else None

    def find_target_pass_rate(self, params: BaseModel) -> float | None:
        """The `select.target_pass_rate` of training runs that name none themselves; None for tasks in their order."""
        return None

    def query(self, task: Task) -> ContextQuery | None:
        """What to retrieve before the task is handed out; None for nothing."""
        return None

    def place(self, task: Task, context: Context) -> Task:
        """The same task with the retrieved passages in its prompt. Pure."""
        return task

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        """Replays the episode from `messages` (all after the prompt). Pure. InvalidRequest for forged observations."""
        raise InvalidRequest(f"{self.name} is single-turn", field="messages")

    def find_player(self, task: Task) -> Player | None:
        """Who says the next line where a model plays the player: `step` is then asked nothing, and `score` trusts the
        lines of transcripts, since the service has compared them with those that it stored. None for all other tasks.
        Pure."""
        return None

    def find_host(self, task: Task) -> EpisodeHost:
        """Where the episode runs, of an environment that `runs_elsewhere`. Pure."""
        raise InvalidRequest(f"{self.name} runs on no other server")

    def turn_rewards(self, task: Task, messages: Sequence[Message]) -> Sequence[float | None]:
        """What each message of the model adds to the reward, from -1 to 1, as far as it is known when the message
        comes; None where it is not. Pure, and later messages change nothing before them. Shorter than the episode
        where the rest is not known, or the transcript is forged."""
        return ()

    def draft(self, draft: BaseModel) -> "Drafted":
        """The task that `draft` (a `Draft`) describes. Pure. InvalidRequest naming `draft.<field>`."""
        raise InvalidRequest(f"{self.name} does not accept drafts", field="draft")

    async def read_draft(self, draft: BaseModel, workers: Workers) -> BaseModel:
        """The draft with what is dear to read in it read, in workers: `draft` gets what comes back."""
        return draft

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        """One score per completion, in order. Truncated completions are already removed if the run says so."""
        ...

    async def build_cases(self, task: Task, group: Sequence[Completion]) -> list[Case] | None:
        """What `score` would ask the panel about the group, for those who want to see it, or what it costs; empty where
        nothing is left to judge. A judged environment's `score` takes its questions from here. None where it does not
        say."""
        return None

    def references(self, task: Task) -> ReferencePlan | None:
        """Replies of known level to this task, beside which judges read some groups once more; None for an environment
        that has none. Pure."""
        return None

    def gold(self, task: Task) -> Completion | None:
        """A completion that must score 1.0; None if no such completion is known."""
        return None

    def equivalent(self, one: Task, other: Task) -> bool:
        """Whether every right answer to one task is right for the other."""
        return one.reference == other.reference


@dataclass(frozen=True)
class Drafted:
    """A task built from a draft, with the environment that scores it."""

    environment: Environment
    task: Task
