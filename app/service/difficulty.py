"""Selects tasks near a target pass rate (curriculum by difficulty).

Each position of such a stream covers a window of the ordinary stream. The task whose expected pass rate is closest to
the target is handed out; the others of the window come again in the next epoch. Every few positions the first task of
the window is taken regardless (exploration), so that changes in difficulty are noticed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.digests import canonical_json
from app.domain.pass_rates import PassRates, TaskOutcome, find_nearest
from app.domain.runs import Slot, Stream
from app.ports.store import OutcomeStore, SlotLocator
from app.service.task_selection import LabelLookup

WINDOW_SIZE: Final = 16
EXPLORATION_INTERVAL: Final = 32
"""Every this many positions the first task of the window is taken (exploration)."""

MAX_GROUPS_READ: Final = 20_000
"""Maximum number of a run's groups read at once, newest first; older ones are from an earlier policy."""

MAX_PENDING: Final = 1_000
REREAD_GROUPS: Final = 256
"""How many sequence numbers are read again each time. Replicas write concurrently, so a group may become visible
after one with a larger number."""

MAX_CACHED_RUNS: Final = 16
"""Maximum number of streams whose pass rates are kept in memory; others are recomputed on use."""


@dataclass(slots=True)
class _RunOutcomes:
    """Pass rates from groups up to `sequence`."""

    rates: PassRates = field(default_factory=PassRates)
    sequence: int = 0
    lately: set[int] = field(default_factory=set)
    """Counted sequence numbers in the range that is read again."""
    waiting: set[int] = field(default_factory=set)
    """Sequence numbers of groups that were pending when read."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add_outcomes(self, found: Sequence[TaskOutcome]) -> None:
        for outcome in found:
            if outcome.pending:
                self.waiting.add(outcome.sequence)
            elif outcome.sequence not in self.lately:
                self.rates.add_outcome(outcome)
                self.lately.add(outcome.sequence)
                self.waiting.discard(outcome.sequence)
        self.sequence = max([self.sequence, *(outcome.sequence for outcome in found)])
        self.lately = {place for place in self.lately if place > self.sequence - REREAD_GROUPS}
        self.waiting = set(sorted(self.waiting)[-MAX_PENDING:])


class DifficultyEstimator:
    """Estimates task difficulty for each run from its groups. Each replica computes its own estimates."""

    def __init__(self, outcomes: OutcomeStore) -> None:
        self._outcomes = outcomes
        self._counted: OrderedDict[str, _RunOutcomes] = OrderedDict()

    async def estimate_rates(self, stream: Stream) -> PassRates:
        """Pass rates from all scored groups of the stream's run, from any of its streams."""
        key = canonical_json([stream.run, stream.environment, stream.split, stream.params])
        counted = self._counted.setdefault(key, _RunOutcomes())
        self._counted.move_to_end(key)
        while len(self._counted) > MAX_CACHED_RUNS:
            self._counted.popitem(last=False)
        async with counted.reading:
            after = max(0, counted.sequence - REREAD_GROUPS)
            found = await self._outcomes.list_since(stream, after, MAX_GROUPS_READ, sorted(counted.waiting))
            await asyncio.to_thread(counted.add_outcomes, found)
        return counted.rates


def choose_nearest_to_pass_rate(
    locate: SlotLocator, target: float, rates: PassRates, label: LabelLookup, passed_over: set[int]
) -> SlotLocator:
    """Wraps `locate` to choose the best task of each window. Tasks in `passed_over` are chosen only if the window has
    no others; chosen tasks are added to it. Not pure: the result depends on the current estimates."""

    def locate_nearest(position: int) -> Slot | None:
        places = range(position * WINDOW_SIZE, (position + 1) * WINDOW_SIZE)
        window = [slot for place in places if (slot := locate(place)) is not None]
        window = [slot for slot in window if slot.index not in passed_over] or window
        if not window:
            return None
        expected = {place: rates.estimate(slot.index, label(slot.index)) for place, slot in enumerate(window)}
        best = window[0 if (position + 1) % EXPLORATION_INTERVAL == 0 else find_nearest(target, expected)]
        passed_over.add(best.index)
        return replace(best, position=position)

    return locate_nearest


def memoise_slots(locate: SlotLocator, first: int, count: int) -> SlotLocator:
    """Wraps `locate` with a cache, filled now for `count` positions."""
    known: dict[int, Slot | None] = {}

    def locate_once(position: int) -> Slot | None:
        if position not in known:
            known[position] = locate(position)
        return known[position]

    for position in range(first, first + count):
        locate_once(position)
    return locate_once
