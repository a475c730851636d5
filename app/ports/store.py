"""What is kept: tasks, leases, groups, runs, scorings, and the ways of looking at them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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
from app.domain.judging import Judgement
from app.domain.parts import Cohort, Look, Member, Misfit, Seat, Windows
from app.domain.pass_rates import TaskOutcome
from app.domain.runs import HeldLease, Lease, Pin, Run, Slot, Stream
from app.domain.tasks import Completion, Context

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


class Health(Protocol):
    async def check(self) -> None:
        """Writes and reads through the working path; StoreUnavailable when that fails."""
