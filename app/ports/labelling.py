"""Storage of people's labels, and of the queue that asks for them. Writes are durable on return."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.labels import Arm, ArmCounts, ItemCandidate, Label, LabelLease, LabelledGroupRecord, QueueStratum


class LabelQueue(Protocol):
    """Items that people hold, have labelled or have skipped."""

    async def list_strata(self, environments: Sequence[str], run: str | None, labeller: str) -> list[QueueStratum]:
        """The runs of these environments with scored groups; only this run, if one is given."""

    async def draw_candidates(self, stratum: QueueStratum, labeller: str, most: int) -> list[ItemCandidate]:
        """At most so many of the groups that are left, each with the same chance."""

    async def find_held(self, labeller: str, environments: Sequence[str], run: str | None) -> LabelLease | None:
        """The oldest item that the labeller holds."""

    async def find_awaiting_second(
        self, labeller: str, environments: Sequence[str], run: str | None
    ) -> LabelLease | None:
        """The first lease of an item that waits for the label of a second person, who may be this one."""

    async def claim(self, lease: LabelLease, seconds: float) -> LabelLease | None:
        """None when somebody else has taken the item."""

    async def renew(self, lease: LabelLease, seconds: float) -> LabelLease | None:
        """None when its time is over: somebody else may have taken the item."""

    async def find_lease(self, lease_id: str) -> LabelLease | None: ...

    async def skip(self, lease_id: str, labeller: str) -> LabelLease:
        """Conflict when somebody else holds the item or it has its label."""

    async def count_arms(self, environments: Sequence[str], run: str | None) -> dict[Arm, ArmCounts]: ...


class LabelStore(Protocol):
    """Labels with their history, and choices that were made elsewhere."""

    async def put(self, label: Label, lease_id: str | None, *, merge: bool, show_judge: bool) -> Label:
        """Stores a label in place of the labeller's earlier one; `merge` keeps what the new one does not say. A label
        that says the same again is not stored again. Conflict when the lease is somebody else's or over, and when the
        labeller has seen the scores. `saw_judge` of the result says whether the scores may be shown: not while the item
        waits for others."""

    async def withdraw(self, label_id: str, labeller: str, seconds: float) -> Label:
        """The labeller holds the item again for so many seconds."""

    async def find(self, label_id: str) -> Label | None: ...

    async def add_imported(self, imported: Sequence[Label]) -> list[str]:
        """The ids of those that were not stored before."""

    async def replace_choice(self, labeller: str, chat: str, choice: Label | None) -> None:
        """Stores this choice of a pair in place of all others that the labeller made in the chat, in one step. None
        only withdraws them."""

    async def list_labels(
        self, environment: str | None, run: str | None, after: int, limit: int
    ) -> list[tuple[int, Label]]:
        """Live labels with their sequences, in order."""

    async def list_of_group(self, group_id: str, limit: int) -> list[Label]:
        """Live labels, newest first."""

    async def count_labels(self) -> dict[str, int]:
        """By kind."""

    async def find_mark(self, environment: str) -> tuple[int, int]:
        """Changes with every label of the environment that is stored, replaced or withdrawn."""

    async def list_labelled(
        self, judge: str, environments: Sequence[str], run: str | None
    ) -> list[LabelledGroupRecord]:
        """Groups with labels from the queue that this judge has scored, in the order of their first labels."""
