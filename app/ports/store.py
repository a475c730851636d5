"""Storage of tasks, leases, groups, runs and scorings."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.groups import (
    Group,
    RunActivity,
    Scoring,
    TaskRecord,
)
from app.domain.judging import Judgement
from app.domain.keeping import KeepRule
from app.domain.parts import (
    UNNAMED,
    GroupSlot,
    Member,
    Mismatch,
    PendingGroup,
    PendingGroupStatus,
    RetryWindows,
    SampleName,
)
from app.domain.pass_rates import TaskOutcome
from app.domain.run_costs import BudgetAnswer, RunLedger
from app.domain.run_health import HealthOptions
from app.domain.runs import HeldLease, LagLimitChange, Lease, Pin, Run, Slot, Stream
from app.domain.tasks import Completion, Context, KeptEpisode, TaskKey

StreamPlace = tuple[int, int]
"""(epoch, index) within a stream."""


SlotLocator = Callable[[int], Slot | None]
"""A pure function: the slot at a position of a stream; None past the end of a one-epoch stream."""


TaskNaming = Callable[[Sequence[int]], list[str]]
"""The ids of those tasks at these indexes that were made before."""


@dataclass(frozen=True)
class LeaseResult:
    """New leases. `outstanding` counts the stream's live leases, and ends at some hundreds; `drained` means that no
    position is left. `stored` are the named tasks that the store has."""

    leases: tuple[Lease, ...]
    outstanding: int
    drained: bool
    stored: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StreamState:
    """State of a stream. `position` is the next one to hand out; `held` are the indexes of tasks leased in the stream's
    run, from any of its streams."""

    position: int
    held: frozenset[int]


class TaskStore(Protocol):
    """Tasks that were handed out, and leases on them."""

    async def put(self, records: Sequence[TaskRecord]) -> None:
        """Stores tasks; durable on return. Existing ids are unchanged."""

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]: ...

    async def find_missing(self, task_ids: Sequence[str]) -> set[str]:
        """Those that are not stored."""

    async def freeze_contexts(
        self, stream: Stream, contexts: Mapping[tuple[int, int], Context]
    ) -> dict[tuple[int, int], Context]:
        """Stores the first context of each place of a stream and returns the stored ones."""

    async def get_frozen_contexts(
        self, stream: Stream, places: Sequence[StreamPlace]
    ) -> dict[StreamPlace, Context]: ...

    async def lease(
        self,
        stream: Stream,
        count: int,
        seconds: float,
        locate: SlotLocator,
        step: int | None = None,
        name_tasks: TaskNaming | None = None,
    ) -> LeaseResult:
        """Leases expired slots first, then new positions. A task with a live lease in this run is never leased again.
        `step` is the holder's training step. `name_tasks` is called in the store's thread."""

    async def get_oldest_step(self, run: str) -> int | None:
        """The lowest training step of the run's leases that are neither answered nor expired; None where none has
        one."""

    async def expire_leases(self, stream: Stream, lease_ids: Sequence[str]) -> None:
        """Expires leases whose tasks never reached a holder; they are handed out next."""

    async def reserve(self, stream: Stream, count: int) -> int:
        """Advances the stream by `count` positions and returns the first one. Mixtures use these."""

    async def get_leases(self, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
        """The task of each lease, whatever its present state."""

    async def find_leasing_runs(self, keys: Sequence[TaskKey]) -> list[frozenset[str]]:
        """For each task the runs that hold it by a lease which is not answered yet, expired ones included."""

    async def get_stream_state(self, stream: Stream) -> StreamState:
        """The current state of a stream. Others may lease meanwhile."""


class SheetStore(Protocol):
    """Versions of the character sheets that tasks were made from. A version is all of an environment's sheets, in
    order, under the digest of the data that they belong to."""

    async def keep(self, environment: str, data_digest: str, texts: Sequence[str]) -> None:
        """Stores a version; durable on return. An existing one is unchanged."""

    async def get(self, environment: str, data_digest: str) -> tuple[str, ...] | None:
        """The texts of a version; None if it was never stored."""

    async def begin_epochs(self, stream: Stream, epochs: Sequence[int], data_digest: str) -> dict[int, str]:
        """The data digest that each epoch of the stream began with. Epochs that have not begun begin with this one.
        Durable on return."""


@dataclass(frozen=True)
class GroupToStore:
    """A group to be stored, with the judgements made since it was last written."""

    group: Group
    judgements: tuple[Judgement, ...] = ()


@dataclass(frozen=True)
class IdempotencyKey:
    key: str
    body_digest: str


class OutcomeStore(Protocol):
    async def list_since(
        self, stream: Stream, sequence: int, limit: int, others: Sequence[int] = ()
    ) -> list[TaskOutcome]:
        """Outcomes of training groups with the stream's run, environment, split and params, from any stream of the run:
        the newest `limit` after `sequence`, and those with the sequences `others`. Ordered by sequence."""


@dataclass(frozen=True)
class KnownGroups:
    """What the store knows of some groups: those that it has, and those that it had."""

    stored: dict[str, Group]
    pruned: frozenset[str] = frozenset()


class GroupStore(Protocol):
    async def find(self, group_ids: Sequence[str]) -> dict[str, Group]: ...

    async def recall(self, group_ids: Sequence[str]) -> KnownGroups:
        """The stored ones of these groups, and which were pruned: nobody may score those again."""

    async def add(self, groups: Sequence[GroupToStore], key: IdempotencyKey | None = None) -> list[Group]:
        """Stores all groups in one transaction; durable on return. An existing group is returned unchanged. A live
        lease on the same run and task is completed; without one the group gets the flag `late`. InvalidRequest when
        `key` was used with a different body, Gone when one of the groups was pruned."""

    async def finish(self, groups: Sequence[GroupToStore]) -> list[Group]:
        """Writes the scores of pending or unscored rollouts. Scored rollouts never change."""

    async def mask(self, group_id: str) -> Group:
        """Flags a group that is unscored as `masked`: from then on its scores never change. Any other group is returned
        as it is. NotFound when it was never added."""

    async def list_unfinished(self, limit: int) -> list[Group]:
        """Pending groups, oldest first, such as work that a restart interrupted. Where there may be replicas, without
        those that one of them has claimed (`PendingGroupStore.claim_due`)."""

    async def check_key(self, key: IdempotencyKey) -> None:
        """InvalidRequest when the key was used with a different body."""


class PendingGroupStore(Protocol):
    """Groups that are still collecting completions. Closing one stores it as pending in the same transaction, unless it
    comes with its score; whoever closed it scores it. Writes are durable on return."""

    async def add_members(
        self, pending: PendingGroup, group_id: str, members: Sequence[Member], seconds: float
    ) -> GroupSlot | Mismatch:
        """Adds completions that name their places. The first ones open the group for `seconds`. New ones that arrive
        after it was closed get a group of their own, flagged `late`."""

    async def assign_slot(
        self,
        pending: PendingGroup,
        completion: Completion,
        seconds: float,
        windows: RetryWindows,
        name: SampleName = UNNAMED,
        scored: Group | None = None,
    ) -> GroupSlot:
        """Assigns a place to a completion, by the first rule that applies:

        1. with a fingerprint, the place of the completion that came under it before; without one, that of an equal
           completion whose sender disconnected (a retry);
        2. the place that it names, or the next one, of the newest group of this scope, if that is open;
        3. a missing place of the newest group, if it was closed incomplete not long ago; flagged `late`;
        4. a place of a new group.

        The place is held until it is settled, or until its heartbeat stops. `scored` is the whole group of a completion
        that is judged alone, with its score: it is stored so where the completion is a new one."""

    async def release_slot(self, held: GroupSlot, *, answered: bool) -> None:
        """Ends the hold: the sender got its answer, or disconnected and may retry."""

    async def renew_holds(self, held: Collection[GroupSlot], scoring: Collection[str]) -> None:
        """Heartbeat: this process still holds these places and is scoring these groups."""

    async def forget_holders(self) -> None:
        """For a single-replica service at start: all earlier holders count as disconnected."""

    async def load_open_groups(self, group_ids: Collection[str]) -> dict[str, Group]:
        """The open ones of these groups with the completions so far, as pending groups."""

    async def get_status(self, group_ids: Collection[str]) -> PendingGroupStatus: ...

    async def claim_due(self, limit: int) -> list[Group]:
        """Closes groups past their deadline and claims closed groups without a live scorer. The caller scores them."""

    async def hand_over(self, group_ids: Collection[str]) -> None:
        """Lets other replicas take up at once those of these groups that are pending. A single one does so at its
        start."""

    async def delete_old(self, seconds: float) -> int:
        """Deletes some finished entries older than `seconds` and returns how many. The stored groups stay."""


class ScoringStore(Protocol):
    """New scorings of stored groups. They never change a group, its scores or its statistics."""

    async def find(self, scoring_ids: Sequence[str]) -> dict[str, Scoring]:
        """Without their judgements."""

    async def put(self, scoring: Scoring) -> Scoring:
        """Stores a scoring with the judgements made since it was last written; durable on return. Of an existing
        scoring only unscored completions are updated. Returns it as stored, without judgements. NotFound without its
        group."""


class RunStore(Protocol):
    async def get(self, name: str) -> Run | None: ...

    async def create(self, run: Run) -> Run:
        """Creates the run, or returns the existing one of this name."""

    async def pin(self, name: str, pin: Pin) -> Run:
        """Adds the pin unless the run already has one for the environment."""

    async def list(self, limit: int, after: str | None) -> list[Run]: ...

    async def get_activity(self, name: str) -> tuple[RunActivity, ...]: ...

    async def set_lag_limit(self, name: str, change: LagLimitChange) -> Run:
        """NotFound when there is no such run, InvalidRequest for a change that does not fit what is stored by now."""

    async def set_budget(self, name: str, budget_usd: float | None) -> Run:
        """NotFound when there is no such run."""

    async def set_health(self, name: str, options: HealthOptions) -> Run: ...
    async def set_min_agreement(self, name: str, min_agreement: float | None) -> Run:
        """NotFound when there is no such run."""

    async def set_keep(self, name: str, keep: KeepRule | None) -> Run:
        """NotFound when there is no such run."""

    async def get_ledger(self, name: str) -> RunLedger:
        """What judging the run has cost so far, and what is reserved."""

    async def reserve_cost(
        self, name: str, environment: str, group_id: str, estimate_usd: float, seconds: float
    ) -> BudgetAnswer:
        """Atomically reserves what judging this group is expected to cost, if the run's budget allows: the mean of
        the run's groups in this environment, at first the estimate. It is free again once judgements of the group are
        stored, or after `seconds`. Durable on return."""

    async def settle_cost(self, group_id: str, usd: float) -> None:
        """What is reserved for the group is what it cost, until its judgements are stored."""


class EpisodeStore(Protocol):
    """Episodes by the name of their session; kept for a day after their last change. Writes are durable on return."""

    async def find(self, session: str) -> KeptEpisode | None: ...

    async def begin(self, session: str, episode: KeptEpisode) -> KeptEpisode:
        """The episode that has this name already, or else this one."""

    async def change(self, session: str, before: KeptEpisode, after: KeptEpisode) -> bool:
        """False if it has changed since `before`."""


class HealthCheck(Protocol):
    async def check(self) -> None:
        """Writes and reads a probe; StoreUnavailable when that fails."""
