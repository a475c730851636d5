"""Which of a few tasks comes next when a run wants tasks of a certain difficulty for its policy.

A place of such a stream stands for a window of the ordinary one. Of its tasks the one is handed out whose pass rate is
expected nearest to the target; the others of the window come again in the next epoch. Now and then the first of a
window is taken whatever it promises, so that what became easier or harder is noticed.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.domain.pass_rates import PassRates, nearest
from app.domain.runs import Slot, Stream
from app.ports import Locate, Outcomes
from app.prompts import canonical_json

WINDOW: Final = 8
EXPLORED: Final = 16
"""One place in so many takes the first task of its window."""

READ_AT_ONCE: Final = 5_000
MOST_KEPT: Final = 64
"""Streams of runs whose pass rates stay in memory; others are counted anew when they come again."""

Label = Callable[[int], str | None]
"""Pure: the label of the task at an index."""


@dataclass(slots=True)
class _Counted:
    """What is known up to `sequence`, and the groups beyond it that are counted already: one before them is pending."""

    rates: PassRates = field(default_factory=PassRates)
    sequence: int = 0
    beyond: set[int] = field(default_factory=set)


class Difficulty:
    """How hard tasks are for the policies of runs, as far as their groups tell. Every replica counts for itself."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._counted: OrderedDict[str, _Counted] = OrderedDict()

    async def rates(self, stream: Stream) -> PassRates:
        """With all groups of the stream's run that are stored by now, whichever of its streams handed them out."""
        key = canonical_json([stream.run, stream.environment, stream.split, stream.params])
        counted = self._counted.setdefault(key, _Counted())
        self._counted.move_to_end(key)
        while len(self._counted) > MOST_KEPT:
            self._counted.popitem(last=False)
        while await self._read_on(counted, stream):
            pass
        return counted.rates

    async def _read_on(self, counted: _Counted, stream: Stream) -> bool:
        """Whether there may be more."""
        found = await self._outcomes.since(stream, counted.sequence, READ_AT_ONCE + len(counted.beyond))
        settled = True
        for outcome in found:
            settled = settled and not outcome.pending
            if outcome.sequence <= counted.sequence:
                continue  # another hand-out read it meanwhile
            if not outcome.pending and outcome.sequence not in counted.beyond:
                counted.rates.count(outcome)
                counted.beyond.add(outcome.sequence)
            if settled:
                counted.sequence = outcome.sequence
                counted.beyond.discard(outcome.sequence)
        return settled and len(found) >= READ_AT_ONCE


def targeted(locate: Locate, target: float, rates: PassRates, label: Label) -> Locate:
    """`locate` over windows of places. What it answers for a place depends on what is known when it is first asked; the
    lease keeps the answer."""

    def chosen(position: int) -> Slot | None:
        window = [slot for place in range(WINDOW) if (slot := locate(position * WINDOW + place)) is not None]
        if not window:
            return None
        if position % EXPLORED == 0:
            best = window[0]
        else:
            expected = {place: rates.expected(slot.index, label(slot.index)) for place, slot in enumerate(window)}
            best = window[nearest(target, expected)]
        return best.model_copy(update={"position": position})

    return chosen
