"""Which of a few tasks comes next when a run wants tasks of a certain difficulty for its policy.

A place of such a stream stands for a window of the ordinary one. Of its tasks the one is handed out whose pass rate is
expected nearest to the target; the others of the window come again in the next epoch. Now and then the first of a
window is taken whatever it promises, so that what became easier or harder is noticed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from app.domain.digests import canonical_json
from app.domain.pass_rates import PassRates, TaskOutcome, nearest
from app.domain.runs import Slot, Stream
from app.ports.store import Locate, Outcomes
from app.service.choosing import Label

WINDOW: Final = 16
EXPLORED: Final = 32
"""The last of so many places takes the first task of its window."""

MOST_READ: Final = 20_000
"""Groups of a run that are read at once: of a longer run the newest, since before them the policy was another."""

MOST_WAITING: Final = 1_000
LOOK_BACK: Final = 256
"""Places among all groups that are read again. Replicas write at the same time, so that a group may come to be seen
after one with a later place."""

MOST_KEPT: Final = 16
"""Streams of runs whose pass rates stay in memory; others are counted anew when they come again."""


@dataclass(slots=True)
class _Counted:
    """What is known up to `sequence`."""

    rates: PassRates = field(default_factory=PassRates)
    sequence: int = 0
    lately: set[int] = field(default_factory=set)
    """Of the places that are read again, those that are counted."""
    waiting: set[int] = field(default_factory=set)
    """Places of groups that were pending when they were read."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, found: Sequence[TaskOutcome]) -> None:
        for outcome in found:
            if outcome.pending:
                self.waiting.add(outcome.sequence)
            elif outcome.sequence not in self.lately:
                self.rates.count(outcome)
                self.lately.add(outcome.sequence)
                self.waiting.discard(outcome.sequence)
        self.sequence = max([self.sequence, *(outcome.sequence for outcome in found)])
        self.lately = {place for place in self.lately if place > self.sequence - LOOK_BACK}
        self.waiting = set(sorted(self.waiting)[-MOST_WAITING:])


class Difficulty:
    """How hard tasks are for the policies of runs, as far as their groups tell. Every replica counts for itself."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._counted: OrderedDict[str, _Counted] = OrderedDict()

    async def rates(self, stream: Stream) -> PassRates:
        """With all groups of the stream's run that are scored by now, whichever of its streams handed them out."""
        key = canonical_json([stream.run, stream.environment, stream.split, stream.params])
        counted = self._counted.setdefault(key, _Counted())
        self._counted.move_to_end(key)
        while len(self._counted) > MOST_KEPT:
            self._counted.popitem(last=False)
        async with counted.reading:
            after = max(0, counted.sequence - LOOK_BACK)
            found = await self._outcomes.since(stream, after, MOST_READ, sorted(counted.waiting))
            await asyncio.to_thread(counted.add, found)
        return counted.rates


def targeted(locate: Locate, target: float, rates: PassRates, label: Label, passed_over: set[int]) -> Locate:
    """`locate` over windows of places. Tasks to pass over, to which it adds the ones that it chooses, are chosen only
    where there is no other in the window. It is not pure: what it answers hangs on what is known when it is asked."""

    def chosen(position: int) -> Slot | None:
        places = range(position * WINDOW, (position + 1) * WINDOW)
        window = [slot for place in places if (slot := locate(place)) is not None]
        window = [slot for slot in window if slot.index not in passed_over] or window
        if not window:
            return None
        expected = {place: rates.expected(slot.index, label(slot.index)) for place, slot in enumerate(window)}
        best = window[0 if (position + 1) % EXPLORED == 0 else nearest(target, expected)]
        passed_over.add(best.index)
        return best.model_copy(update={"position": position})

    return chosen


def settled(locate: Locate, first: int, count: int) -> Locate:
    """`locate`, asked once for each place, and now already for `count` of them."""
    known: dict[int, Slot | None] = {}

    def remembered(position: int) -> Slot | None:
        if position not in known:
            known[position] = locate(position)
        return known[position]

    for position in range(first, first + count):
        remembered(position)
    return remembered
