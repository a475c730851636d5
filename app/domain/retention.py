"""Retention: which stored groups may go, which are kept, and what goes with them.

Pruning removes groups and leaves their sums in the statistics; reducing removes parts of groups (`app.domain.keeping`).
Both begin with a plan that counts what would go, and why the rest is kept.
"""

from datetime import datetime
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from app.domain.keeping import KeepLevel, KeptPart
from app.domain.runs import Purpose
from app.domain.values import Frozen

RunPattern = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}\*?$|^\*$")]
"""A run's name, or the beginning of names with `*` after it."""

_KeptReason = Literal["purpose", "pending", "unscored", "uncounted", "labelled", "anchor", "in_pieces"]

KEPT_BECAUSE: Final[dict[_KeptReason, str]] = {
    "purpose": "of another purpose, such as evaluations",
    "pending": "not scored yet",
    "unscored": "without some score, which may be asked for again",
    "uncounted": "not in the statistics yet",
    "labelled": "labelled by people, or about to be",
    "anchor": "anchors of run health",
    "in_pieces": "still gathering pieces",
}

LeftoverKind = Literal["leases", "idempotency_keys", "judge_cache", "player_lines", "hosted_steps"]
"""What is stored beside groups and is of no use after a time: leases that ended, keys of requests, cached answers of
judges, lines of players in episodes that were never scored, answers of others' servers to tasks without a group."""


class PruneRule(Frozen):
    """What may go. Each field narrows it. What belongs to no run goes by age alone."""

    before: datetime | None = None
    """Only what was stored earlier."""
    runs: tuple[RunPattern, ...] = ()
    purposes: tuple[Purpose, ...] = ("train",)
    keep_bytes: Annotated[int, Field(ge=0)] | None = None
    """Groups go, the oldest first, until those that are left come to about so much."""

    @property
    def leftovers(self) -> tuple[LeftoverKind, ...]:
        if self.before is None:
            return ()
        return ("leases",) if self.runs else get_args(LeftoverKind)


def describe_pruned(group_id: str) -> str:
    return f"group {group_id} was pruned: it is in the statistics, but its completions and scores are no longer stored"


class GroupsOfRun(Frozen):
    """Groups of one run, environment and purpose. `bytes` is an estimate by some of them."""

    run: str | None
    environment: str
    purpose: Purpose
    groups: int
    rollouts: int
    bytes: int

    def __add__(self, other: "GroupsOfRun") -> "GroupsOfRun":
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("groups", "rollouts", "bytes")}
        return self.model_copy(update=sums)


class KeptGroups(Frozen):
    because: _KeptReason
    groups: int


class PrunePlan(Frozen):
    """What pruning by the rule would remove. `last` is the newest group's place in the store; what comes later stays.
    With `excess_bytes` only the oldest of them go, until so many bytes have."""

    rule: PruneRule
    removable: tuple[GroupsOfRun, ...] = ()
    kept: tuple[KeptGroups, ...] = ()
    last: int = 0
    excess_bytes: int | None = None

    @property
    def groups(self) -> int:
        return sum(each.groups for each in self.removable)

    @property
    def rollouts(self) -> int:
        return sum(each.rollouts for each in self.removable)

    @property
    def bytes(self) -> int:
        """About so many go."""
        removable = sum(each.bytes for each in self.removable)
        return removable if self.excess_bytes is None else min(removable, self.excess_bytes)


class ReduceRule(Frozen):
    """Which scored training groups are reduced to what `keep` says, or what their run says in place of it."""

    before: datetime
    """Only what was stored earlier."""
    keep: KeepLevel = "all"
    runs: tuple[RunPattern, ...] = ()


class ReducePlan(Frozen):
    """What reducing by the rule would do. `last` is the newest group's place in the store."""

    rule: ReduceRule
    of_runs: dict[str, KeepLevel] = {}
    """The choices of runs that have one."""
    reducible: tuple[GroupsOfRun, ...] = ()
    """With the bytes that they would lose."""
    parts: dict[KeptPart, int] = {}
    """The same bytes by part."""
    kept: tuple[KeptGroups, ...] = ()
    last: int = 0

    @property
    def groups(self) -> int:
        return sum(each.groups for each in self.reducible)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.reducible)

    def find_level(self, run: str | None) -> KeepLevel:
        return self.rule.keep if run is None else self.of_runs.get(run, self.rule.keep)


class Reduced(Frozen):
    """What has been reduced."""

    groups: int = 0
    rollouts: int = 0
    prompts: int = 0
    bytes: int = 0

    def __add__(self, other: "Reduced") -> "Reduced":
        mine, theirs = self.model_dump(), other.model_dump()
        return Reduced(**{name: mine[name] + theirs[name] for name in mine})


def describe_missing_text_of(group_id: str) -> str:
    return f"group {group_id} is reduced: its scores are stored, but no longer what its completions said"


class Pruned(Frozen):
    """What has been removed."""

    groups: int = 0
    rollouts: int = 0
    prompts: int = 0
    bytes: int = 0
    """About so many, before compression or padding by the database."""
    leases: int = 0
    idempotency_keys: int = 0
    judge_cache: int = 0
    player_lines: int = 0
    hosted_steps: int = 0

    def __add__(self, other: "Pruned") -> "Pruned":
        mine, theirs = self.model_dump(), other.model_dump()
        return Pruned(**{name: mine[name] + theirs[name] for name in mine})
