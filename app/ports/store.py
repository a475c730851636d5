"""Storage of tasks, leases, groups, runs and scorings."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from app.domain.access import AccessKey, AdminAction, SignIn, StoredKey
from app.domain.budgets import Amount, BudgetAnswer, KeyQuotas, KeyUsage, QuotaUse, RunLedger
from app.domain.groups import (
    FoundGroups,
    Group,
    GroupDetail,
    GroupFilter,
    GroupSummary,
    RunActivity,
    Scoring,
    StatisticsBreakdown,
    StatisticsRow,
    StoredScores,
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
from app.domain.retention import (
    GroupsOfRun,
    LeftoverKind,
    Pruned,
    PrunePlan,
    PruneRule,
    Reduced,
    ReducePlan,
    ReduceRule,
)
from app.domain.rollups import Rollup, RollupFilter, TaskOutcome
from app.domain.runs import HealthOptions, HeldLease, LagLimitChange, Lease, Pin, Run, Slot, Stream
from app.domain.tasks import Completion, Context, KeptEpisode, TaskKey
from app.domain.values import Frozen

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


# Views of what is stored: pages, statistics, exports.


@dataclass(frozen=True, slots=True)
class GroupOutline:
    """Of a group what is known without its task and its completions, which take longest to read."""

    sequence: int
    task_id: str
    scored: int
    """Completions with a score."""
    created_at: datetime


@dataclass(frozen=True)
class FoundOutlines:
    """As `FoundGroups`."""

    outlines: tuple[GroupOutline, ...]
    next_before: int | None
    looked_at: int


class GroupViews(Protocol):
    """Read models for pages and dashboards."""

    async def find_groups(self, where: GroupFilter) -> FoundGroups:
        """Newest first, unless another order is asked for. Where a filter has no index, at most a number of the newest
        groups are looked at."""

    async def find_outlines(self, where: GroupFilter) -> FoundOutlines:
        """What `find_groups` finds."""

    async def load_summaries(self, sequences: Sequence[int]) -> list[GroupSummary]:
        """Of those of these groups that are stored. A few hundred at most."""

    async def get_group(self, group_id: str) -> GroupDetail | None:
        """Gone when it was pruned."""

    async def load_scores(self, group_ids: Sequence[str]) -> Mapping[str, StoredScores]:
        """Of those of these groups that are stored. A few hundred at most."""

    async def get_statistics(
        self,
        environment: str | None,
        run: str | None,
        *,
        by: StatisticsBreakdown | None = None,
        judge: str | None = None,
    ) -> list[StatisticsRow]:
        """Statistics of training rollouts; `eval` is left out. `by` also breaks them down and leaves out groups without
        a label or judge. `judge` asks for groups that this judge scored, without `by` or with `by="judge"`."""

    async def list_rollups(self, where: RollupFilter) -> list[Rollup]:
        """What statistics are made of, ordered by step and by bucket."""

    async def count_uncounted(self) -> int:
        """How many stored groups no statistics include yet: those from before an upgrade, until they are counted."""


class StatisticsStore(Protocol):
    """Counts stored groups into the statistics. Groups count when they are stored; these are for all others."""

    async def count_groups(self, limit: int) -> int:
        """Counts the oldest groups that no statistics include yet, and returns how many they were; 0 when all are
        counted. It may be interrupted at any time, and replicas share the work."""

    async def forget_all(self) -> int:
        """Empties the statistics and returns the number of groups to count again."""


# Storage of keys, of what was done to them, and of what they use.

ChangeKey = Callable[[StoredKey | None], tuple[StoredKey, AdminAction] | None]
"""From a key as it is stored: what it becomes, with the entry of the audit; None leaves it. It may raise."""


@dataclass(frozen=True)
class KnownKeys:
    """All keys of the store: those with names, and digests of the unnamed ones that services made for themselves."""

    named: tuple[StoredKey, ...] = ()
    generated: tuple[str, ...] = ()
    sign_ins: tuple[SignIn, ...] = ()


class KeyStore(Protocol):
    async def load(self) -> KnownKeys: ...

    async def change(self, name: str, change: ChangeKey) -> StoredKey | None:
        """Changes one key and records it, in one transaction; durable on return. Conflict for a secret that another
        key has."""

    async def add_sign_in(self, sign_in: SignIn, most: int) -> None:
        """Durable on return. Those that are over are removed. Conflict where the key has `most` already."""

    async def remove_sign_in(self, digest: str) -> None: ...

    async def list_actions(self, before: int | None, limit: int) -> list[tuple[int, AdminAction]]:
        """Newest first, with their sequences."""


@dataclass(frozen=True)
class HandOutPart:
    """Tasks of one environment that a batch is to have."""

    environment: str
    count: int
    bound: Amount | None = None
    """What judging one group takes at most; None without judges."""


@dataclass(frozen=True)
class HandOut:
    """A batch of tasks that a key asks for."""

    key: str
    quotas: KeyQuotas
    run: str | None
    is_leased: bool
    parts: tuple[HandOutPart, ...]


@dataclass(frozen=True)
class HandOutGrant:
    """`exceeded` is the quota that does not allow the batch: nothing is reserved then."""

    exceeded: QuotaUse | None
    uses: tuple[QuotaUse, ...]
    hold: str = ""
    expected: Mapping[str, Amount] = field(default_factory=dict)
    """By environment, what judging one group is expected to take."""


class QuotaStore(Protocol):
    """Counts what keys use. Changes are atomic over all processes on the database, and durable on return."""

    async def reserve(self, asked: HandOut) -> HandOutGrant:
        """Counts the request where requests are limited. If all quotas allow it, reserves what the batch may take and
        admits its run for a day."""

    async def confirm(self, key: str, hold: str, leases: Mapping[str, Amount]) -> None:
        """What was reserved for the batch is reserved for each of its leases instead."""

    async def admit_runs(self, key: str, quotas: KeyQuotas, runs: Collection[str]) -> QuotaUse | None:
        """Counts a request for scores where requests are limited, and admits the runs until the day ends; or the quota
        that does not allow one that was not admitted before."""

    async def load_usage(self, key: str) -> KeyUsage: ...


class KeySource(Protocol):
    """What a service checks secrets against."""

    async def load(self) -> KnownKeys: ...


def show_keys(known: KnownKeys) -> tuple[AccessKey, ...]:
    """By name, without digests."""
    return tuple(key.without_digests for key in sorted(known.named, key=lambda one: one.name))


# How large a store is, what fills it, and how fast it grows.


class TableSize(Frozen):
    """`bytes` includes indexes. `dead_rows` are PostgreSQL's, which a vacuum makes free."""

    table: str
    rows: int
    bytes: int
    dead_rows: int = 0


class RunGrowth(Frozen):
    """Stored groups of a run, and how many bytes a day they have lately become more."""

    stored: GroupsOfRun
    last_at: datetime
    """Of its newest group."""
    bytes_per_day: int


class DatabaseSize(Frozen):
    """`measured_by` says where the bytes of tables are from: `pages` are counted, an `estimate` is by some rows."""

    database: str
    bytes: int
    free_bytes: int
    """Within it: it is filled before the database grows."""
    measured_by: str
    tables: tuple[TableSize, ...]
    runs: tuple[RunGrowth, ...]
    recent_days: float
    """From so many days comes what is said of growth."""
    bytes_per_day: int
    forecast_bytes: int
    """The database in 30 days, if it goes on as lately."""
    advice: tuple[str, ...] = ()


# Storage of people's labels, and of the queue that asks for them. Writes are durable on return.


# Removing what is stored, a little at a time.


@dataclass(frozen=True)
class PrunedBatch:
    """`after` is where the next batch begins; None at the end."""

    pruned: Pruned
    after: int | None


@dataclass(frozen=True)
class ReducedBatch:
    reduced: Reduced
    after: int | None


@dataclass(frozen=True)
class SweptBatch:
    removed: int
    after: str | None


class RetentionStore(Protocol):
    """Each batch is complete by itself, so that pruning may stop after any and begin anew."""

    async def plan(self, rule: PruneRule) -> PrunePlan:
        """What would go, and what is kept although it is old enough."""

    async def prune_groups(self, plan: PrunePlan, after: int, limit: int) -> PrunedBatch:
        """Removes the oldest groups of the plan behind `after`, with their judgements and prompts that nothing else
        uses. What they had added to the statistics stays. Groups that have changed meanwhile stay too."""

    async def sweep(self, rule: PruneRule, kind: LeftoverKind, after: str, limit: int) -> SweptBatch:
        """Removes leftovers behind the key `after`."""

    async def has_keep_rules(self) -> bool:
        """Whether a run says what stays of its groups."""

    async def plan_reduction(self, rule: ReduceRule) -> ReducePlan:
        """Which groups would lose which parts. A run's own choice goes before the rule's."""

    async def reduce_groups(self, plan: ReducePlan, after: int, limit: int) -> ReducedBatch:
        """Reduces the oldest groups of the plan behind `after`. Groups that have changed meanwhile stay as they are."""

    async def take_turn(self, job: str, holder: str, *, every_seconds: float, seconds: float) -> bool:
        """Whether it is time for the job, and nobody else has it. The holder has it for `seconds`; asking again
        prolongs that."""

    async def end_turn(self, job: str, holder: str) -> None:
        """The job is done until it is time again."""


# The index of texts, which is written behind everything else.


@dataclass(frozen=True)
class IndexedBatch:
    """`indexed` groups were taken in. `is_last` where none was left to be taken in."""

    indexed: int
    is_last: bool


@dataclass(frozen=True)
class GroupSnapshot:
    """`newest` is the sequence of the newest group that is stored; 0 without any. `writers` name the transactions that
    may still store one of a lower sequence, as an operator finds them in the database."""

    newest: int
    writers: frozenset[str] = frozenset()


class TextIndexStore(Protocol):
    async def take_snapshot(self) -> GroupSnapshot: ...

    async def find_open_writers(self, snapshot: GroupSnapshot) -> frozenset[str]:
        """Those of its writers that have not ended. Without any, all groups up to its newest are there that ever will
        be."""

    async def is_behind(self) -> bool:
        """Whether a group is stored that the index could take in."""

    async def index_texts(self, up_to: int, limit: int) -> IndexedBatch:
        """Takes in the oldest groups up to this sequence that the index does not have. Those without scores are passed
        over, and taken in once they have some."""
