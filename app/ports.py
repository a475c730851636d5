"""The seams. The core speaks only to these; `main` chooses what stands behind each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Protocol, Self, TypeVar, runtime_checkable

from pydantic import BaseModel, JsonValue

from app.domain.budgets import Admission, BudgetConfig, Hold, Standing
from app.domain.exports import ExportFilter, StoredGroup
from app.domain.groups import (
    Group,
    GroupDetail,
    GroupFilter,
    GroupSummary,
    RunActivity,
    Scoring,
    StatisticsRow,
    TaskRecord,
)
from app.domain.judging import Case, Judgement, JudgeReport, JudgeRequest, PanelResult, Rubric
from app.domain.lorebooks import Lorebook
from app.domain.parts import Cohort, Look, Member, Misfit, Seat, Windows
from app.domain.pass_rates import TaskOutcome
from app.domain.programs import Execution, Program
from app.domain.runs import HeldLease, Lease, PanelOptions, Pin, Run, ScoringOptions, Slot, Stream
from app.domain.scores import Score
from app.domain.sources import Dataset
from app.domain.tasks import Completion, Context, ContextQuery, Message, Task, Turn
from app.domain.trajectories import Feeder, Form, Handed, Joining, Line, NotYet, Packed, Registration, TrajectoryRun
from app.domain.values import NoParams, Split
from app.domain.work import DEFAULT_LIMITS, Limits
from app.domain.worlds import Event, EventSearch, EventsTold, Explained, Findings, World
from app.errors import InvalidRequest, WorkerFailed

RowT = TypeVar("RowT", bound=BaseModel)


class Datasets(Protocol):
    """Data sets by environment name, as configured."""

    def rows(self, name: str, row: type[RowT], *, config: str | None = None) -> Dataset[RowT] | None:
        """None where nothing is configured under `name`. Blocking. EnvironmentUnavailable with the reason when what
        is configured cannot be read or a row does not validate. `config` is the hub's configuration name."""

    def folder(self, name: str) -> Path | None:
        """Where files called `name` are configured to lie; None where nothing is."""


class Judge(Protocol):
    """Something that reads a group and says how good each completion is."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def digest(self) -> str:
        """Of everything of this judge that could change a verdict: model, parameters, templates, code version."""

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Never raises for a judge's failure: the judgement then has `error` set, with what the attempt cost."""


@runtime_checkable
class SelfReporting(Protocol):
    """A judge that knows how it is doing."""

    def report(self) -> JudgeReport: ...


@runtime_checkable
class Backed(Protocol):
    """A judge with another behind it, which answers where it refuses."""

    @property
    def fallback(self) -> Judge: ...


@runtime_checkable
class Opened(Protocol):
    """A judge or a retriever that holds something between the service's start and its end."""

    async def open(self) -> None:
        """Before it is asked anything. StoreUnavailable from a judge that cannot know what it has spent."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Recalled:
    """`claimed`: a group holds this judgement already, with what it cost."""

    judgement: Judgement
    claimed: bool


class JudgementMemory(Protocol):
    """What judges answered and what it cost, so that nothing is asked and paid twice."""

    async def get(self, reading: str) -> Recalled | None: ...

    async def put(self, judgement: Judgement, hold: str = "") -> Standing:
        """Durable on return: its cost is added to its judge's spending in the place of the hold, and it is found again
        by its `reading` unless it failed. StoreUnavailable when it cannot be written."""

    async def standing(self, judge: str) -> Standing:
        """What everybody spent and holds. Holds whose time is up count as calls without an answer."""

    async def put_aside(self, hold: Hold, budget: BudgetConfig) -> Admission:
        """Durable on return: `hold` stands in the place of an earlier one of its id where the budget admits it, and
        only what it has used where not. Two that ask at the same time never get what is there for one."""

    async def give_back(self, judge: str, hold: str) -> Standing:
        """Forgets a hold of which nothing was used."""


class Panel(Protocol):
    """One or more judges under one set of options."""

    @property
    def judges(self) -> tuple[str, ...]: ...

    @property
    def models(self) -> tuple[str, ...]:
        """One per judge, in the same order."""

    @property
    def digest(self) -> str:
        """Of all that turns its judges' answers into scores."""

    async def judge(self, case: Case) -> PanelResult:
        """One score per candidate, in order. Gated candidates are 0 even when every judge fails; the rest are then
        `unscored`."""


class Panels(Protocol):
    @property
    def judges(self) -> Mapping[str, Judge]:
        """Every judge there is, by name."""

    def options(self, environment: str, options: ScoringOptions) -> PanelOptions:
        """`options`, with what they leave open as it is configured for the environment."""

    def panel(self, environment: str, options: ScoringOptions) -> Panel:
        """InvalidRequest naming `options.judges` when a judge is not configured."""

    def refuses_self_judging(self, judge: str) -> bool:
        """Whether `judge` must not score a policy that is its own model."""


class Workers(Protocol):
    """Processes that can be killed, for whatever parses or runs what a model wrote."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        """`function(*arguments)` in another process, which finds it by its name: one of a module, that keeps no state.
        Arguments and result cross as JSON. WorkExceeded when it goes beyond `limits`, twice, the second time in a fresh
        process; WorkerFailed when it raises, gives what is no JSON, or twice dies without going beyond them. Cancelling
        ends it."""


class NoWorkers:
    """For environments that need none: asking it is a mistake in what made the tools."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        raise WorkerFailed(f"{function.__qualname__}: no workers were given")


class Programs(Protocol):
    """Where programs of strangers are run, each in a process of its own that is kept from everything else."""

    async def run(self, program: Program) -> Execution:
        """Whatever the program does becomes an `Execution`: one that is out of time by the clock was so twice, the
        second time in a fresh process. WorkerFailed when it could not be run: our fault. Cancelling ends it."""


class NoPrograms:
    """For environments that run none: asking it is a mistake in what made the tools."""

    async def run(self, program: Program) -> Execution:
        raise WorkerFailed("no place to run programs was given")


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
        raise InvalidRequest(f"{self.name} has nothing to try", field="draft")

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


class Retriever(Protocol):
    """What an operator may bring a class for, by the entry-point group `atropos_environments.retrievers`."""

    async def retrieve(self, query: ContextQuery) -> Context:
        """RetrieverFailed when it cannot answer; an empty context means that there is nothing to tell. InvalidRequest
        naming `world` when there is no such world."""


class NoRetriever:
    """Where nothing is kept of any world."""

    async def retrieve(self, query: ContextQuery) -> Context:
        raise InvalidRequest(f"there is no world {query.world!r}: nothing is kept of worlds here", field="world")


@runtime_checkable
class ExplainingRetriever(Protocol):
    """A retriever that can say why."""

    async def explain(self, query: ContextQuery) -> Explained:
        """Its `context` is what `retrieve` gives for the same query."""


class Events(Protocol):
    """What was told of worlds. A branch sees its parent's events up to the moment at which it branched, and its
    parent's lorebooks. Whatever writes is durable on return."""

    async def tell(self, world: str, events: Sequence[Event]) -> EventsTold:
        """All or none. A world that nobody named before begins. Conflict naming `events[i].id` when the id was told
        before, to this world or as part of its past, with another content."""

    async def withdraw(self, world: str, event_id: str) -> bool:
        """It never happened here, nor in what branches off this world; where it came from a parent, it stays there.
        Whether there was such an event; telling it again changes nothing. NotFound without the world."""

    async def branch(self, world: str, parent: str, at: datetime) -> World:
        """Repeats give the same world. NotFound without the parent; Conflict when `world` is another one already, or
        too many branches lie between it and the first."""

    async def world(self, name: str) -> World | None: ...

    async def worlds(self, limit: int, after: str | None) -> list[World]:
        """By name."""

    async def newest(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> list[Event]:
        """By time and id, downwards, of its past too, without what was withdrawn. `before`: the last of the page
        before."""

    async def search(self, wanted: EventSearch) -> Findings | None:
        """None without the world. Filters before it ranks: what may not be told is in `hidden` at most, and there only
        what is near: by the terms, by time, by importance."""


class Lorebooks(Protocol):
    """Lorebooks of worlds, by name within their world."""

    async def put(self, world: str, name: str, book: Lorebook) -> None:
        """Durable on return, in the place of an earlier one; a world that nobody named before begins."""

    async def remove(self, world: str, name: str) -> bool: ...

    async def of(self, world: str) -> dict[str, Lorebook]:
        """By name, in the order of the names; those of its past too, which its own of the same name replace."""


Place = tuple[int, int]
"""(epoch, index) within a stream."""

Locate = Callable[[int], Slot | None]
"""Pure: the slot at a position of a stream; None past the end of a one-epoch stream."""


@dataclass(frozen=True)
class Leased:
    """`outstanding` counts live leases of the stream after this hand-out; `drained` that no position is left."""

    leases: tuple[Lease, ...]
    outstanding: int
    drained: bool


@dataclass(frozen=True)
class Front:
    """`position` is the next that a stream gives out; `held` are the indexes of tasks that somebody in the stream's run
    holds, whichever stream they came from."""

    position: int
    held: frozenset[int]


class Tasks(Protocol):
    """Tasks that were handed out, and the leases on them."""

    async def put(self, records: Sequence[TaskRecord]) -> None:
        """Durable on return; a known id is left as it is."""

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]: ...

    async def freeze(
        self, stream: Stream, contexts: Mapping[tuple[int, int], Context]
    ) -> dict[tuple[int, int], Context]:
        """Keeps the first context of each place of a stream and returns what is kept."""

    async def frozen(self, stream: Stream, places: Sequence[Place]) -> dict[Place, Context]: ...

    async def lease(self, stream: Stream, count: int, seconds: float, locate: Locate) -> Leased:
        """Expired leases first, then new positions; a task that is live in this run is never leased a second time."""

    async def give_back(self, stream: Stream, lease_ids: Sequence[str]) -> None:
        """Leases of the stream whose tasks never reached anybody: they expire at once, and are the next to go."""

    async def reserve(self, stream: Stream, count: int) -> int:
        """Advances the stream by `count` positions and returns the first of them (mixtures draw from these)."""

    async def leases(self, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
        """What each lease was given for, whatever has become of it since."""

    async def front(self, stream: Stream) -> Front:
        """At this moment: others may lease meanwhile."""


class Sheets(Protocol):
    """Character sheets that tasks were made from. An edition is all of an environment's sheets, in their order, under
    the digest of the data that they were part of."""

    async def keep(self, environment: str, data_digest: str, texts: Sequence[str]) -> None:
        """Durable on return; a known edition is left as it is."""

    async def get(self, environment: str, data_digest: str) -> tuple[str, ...] | None:
        """The texts of an edition; None for one that was never kept."""

    async def begin(self, stream: Stream, epochs: Sequence[int], data_digest: str) -> dict[int, str]:
        """By epoch of the stream, the data digest that it began with: this one for epochs that nobody began before.
        Durable on return."""


@dataclass(frozen=True)
class GroupToStore:
    """A group on its way into the store, with the judgements made for it since it was last written."""

    group: Group
    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True)
class IdempotencyKey:
    key: str
    body_digest: str


class Outcomes(Protocol):
    async def since(self, stream: Stream, sequence: int, limit: int, others: Sequence[int] = ()) -> list[TaskOutcome]:
        """The training groups of the stream's run, environment, split and params, whichever stream of the run handed
        their tasks out: the newest `limit` after that place among all groups, and those in the places `others`, which
        an earlier answer named. In the order of their places."""


class Groups(Protocol):
    async def find(self, group_ids: Sequence[str]) -> dict[str, Group]: ...

    async def add(self, groups: Sequence[GroupToStore], key: IdempotencyKey | None = None) -> list[Group]:
        """All in one transaction, durable on return. A group that exists is returned as stored, untouched. A live
        lease on the same run and task is completed; otherwise the group gets the flag `late`. InvalidRequest when
        `key` was used with another body."""

    async def finish(self, groups: Sequence[GroupToStore]) -> list[Group]:
        """Writes scores of rollouts that are still pending or unscored; scored ones never change."""

    async def unfinished(self, limit: int) -> list[Group]:
        """Pending groups, oldest first: accepted work that a restart interrupted."""

    async def check_key(self, key: IdempotencyKey) -> None:
        """InvalidRequest when the key was used with another body."""


class Parts(Protocol):
    """Groups whose completions do not come together. What closes one stores it, as pending, in the same transaction;
    whoever closed it scores it. Whatever writes is durable on return."""

    async def arrive(self, cohort: Cohort, group_id: str, members: Sequence[Member], seconds: float) -> Seat | Misfit:
        """Members that name their places. The first to come open the cohort for as many seconds; those who come when
        it is closed, and were not there before, get a group of their own, `late`."""

    async def take(self, cohort: Cohort, completion: Completion, seconds: float, windows: Windows) -> Seat:
        """A place for a completion that names none: that of an equal member whose holder has left, else one in the open
        cohort of the scope, else, where the newest was closed without some, one of the missing, `late`; else the first
        of another cohort. It is held until it is settled, or until nobody says any more that it is."""

    async def settle(self, held: Seat, *, answered: bool) -> None:
        """Its holder has got its answer, or has left without it and will ask again."""

    async def keep(self, held: Collection[Seat], scoring: Collection[str]) -> None:
        """A sign of life: these places are still held by this process, and these groups being scored."""

    async def forget_holders(self) -> None:
        """When a service starts that is the only one: whoever held a place before has left."""

    async def opened(self, group_ids: Collection[str]) -> dict[str, Group]:
        """Of those that are open what has come so far, as pending groups."""

    async def look(self, group_ids: Collection[str]) -> Look: ...

    async def take_due(self, limit: int) -> list[Group]:
        """Closes what is over its deadline, and claims closed groups that nobody seems to be scoring; to be scored."""

    async def clear(self, seconds: float) -> int:
        """Forgets some that are older, and done with; how many. Their groups stay."""


class Scorings(Protocol):
    """Groups scored anew. Nothing here touches a group, its scores or its statistics."""

    async def find(self, scoring_ids: Sequence[str]) -> dict[str, Scoring]:
        """Without their judgements."""

    async def put(self, scoring: Scoring) -> Scoring:
        """Durable on return, with the judgements made since it was last written. Of a known one only the scores that
        are still unscored are replaced. The scoring as stored, without its judgements. NotFound without its group."""


class Runs(Protocol):
    async def get(self, name: str) -> Run | None: ...

    async def create(self, run: Run) -> Run:
        """The run as stored: another's, when the name was taken first."""

    async def pin(self, name: str, pin: Pin) -> Run:
        """Adds the pin unless the run has one for that environment."""

    async def list(self, limit: int, after: str | None) -> list[Run]: ...

    async def activity(self, name: str) -> tuple[RunActivity, ...]: ...


class Views(Protocol):
    """What people and dashboards look at."""

    async def groups(self, where: GroupFilter) -> list[GroupSummary]: ...

    async def group(self, group_id: str) -> GroupDetail | None: ...

    async def statistics(
        self, environment: str | None, run: str | None, *, by_label: bool = False
    ) -> list[StatisticsRow]:
        """Training rollouts only: `eval` ones are left out. `by_label` breaks them down further, and leaves out tasks
        without a label."""


class Exports(Protocol):
    """What training data is made from."""

    async def newest(self) -> int:
        """The sequence of the newest group; 0 where nothing is stored."""

    async def page(self, where: ExportFilter, after: int, last: int, limit: int) -> list[StoredGroup]:
        """Groups with sequences above `after` up to `last`, in their order."""


class TrajectoryQueue(Protocol):
    """Groups on their way from environments elsewhere to trainers, run by run. Whatever writes is durable on return."""

    async def register(self, run: str, registration: Registration) -> None:
        """A trainer. Another registration replaces the run's, and its step begins anew; what waits goes on waiting."""

    async def join(self, run: str, joining: Joining) -> Feeder | None:
        """An environment; None before a trainer has asked for a batch."""

    async def leave(self, run: str, env_id: int) -> bool:
        """Whether there was such an environment."""

    async def seen(self, run: str, env_id: int) -> None:
        """A sign of life."""

    async def add(self, run: str, groups: Sequence[Packed]) -> int:
        """How many are new: what came within the last minutes with the same digest is the same group, sent again."""

    async def take(self, run: str, life: str, sent: Collection[int], form: Form) -> Handed | NotYet | None:
        """The next batch, or one that did not arrive; None without a trainer. `life` names this process: a batch handed
        out in another one, and never confirmed, did not arrive. `sent` are batches that now count as delivered."""

    async def give_back(self, run: str, number: int) -> None:
        """A batch that could not be sent is handed out again."""

    async def look(self, run: str, life: str) -> TrajectoryRun: ...

    async def line(self, run: str) -> Line | None:
        """What a batch would be formed from; None without a trainer."""

    async def latest(self, run: str) -> bytes | None:
        """The body of the newest group; None when the run had none."""

    async def reset(self, run: str) -> None:
        """Forgets everything about the run."""

    async def runs(self, limit: int) -> list[str]:
        """By name."""


class Health(Protocol):
    async def check(self) -> None:
        """Writes and reads through the working path; StoreUnavailable when that fails."""


class Observer(Protocol):
    """Where the service tells what happened, for metrics and logs. Never raises, never blocks."""

    def handed_out(self, environment: str, tasks: int) -> None: ...

    def scored(self, environment: str, scores: Sequence[Score], seconds: float) -> None: ...

    def judged(self, judgements: Sequence[Judgement]) -> None: ...

    def refused(self, environment: str, code: str) -> None: ...

    def gathered(self, environment: str, flags: Sequence[str]) -> None:
        """A group that came in pieces was closed, with these flags."""

    def retrieved(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        """`future`: passages that were withheld since they are later than was asked for."""


Clock = Callable[[], datetime]
"""The present, in UTC with its zone."""
