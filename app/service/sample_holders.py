"""Who of this process holds a place in a group for a sample, is about to get one, or has just left."""

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from app.domain.parts import GroupSlot, PendingGroup
from app.domain.tasks import Completion

DISCONNECT_TURNS: Final = 16
"""Turns of the event loop within which a disconnect that has arrived is acted on. From the end of an HTTP connection to
the release of its sample it takes four."""

SampleKey = tuple[str, str]
"""Equal for a sample that is sent again, and for siblings that say the same."""


def build_sample_key(pending: PendingGroup, completion: Completion) -> SampleKey:
    return pending.scope, completion.answer


class SampleHolders:
    def __init__(self) -> None:
        self._slots: dict[GroupSlot, SampleKey] = {}
        self._present: Counter[SampleKey] = Counter()
        """Those that came and have not been released."""
        self._leaving: dict[SampleKey, set[asyncio.Future[Any]]] = {}
        """What still writes down that one has left."""

    @property
    def slots(self) -> Collection[GroupSlot]:
        return self._slots.keys()

    async def admit(self, sample: SampleKey) -> None:
        """Returns when those who said the same and have left before are written down as gone, so that this one takes
        over their place. A client that asks again as soon as it hangs up is read in the same turn of a busy event loop
        as its own disconnect, which takes more turns to be acted on."""
        others = self._present[sample]
        self._present[sample] += 1
        try:
            for _ in range(DISCONNECT_TURNS if others else 0):
                await asyncio.sleep(0)
            if leaving := self._leaving.get(sample):
                await asyncio.wait(leaving)
        except BaseException:
            self.dismiss(sample)
            raise

    def dismiss(self, sample: SampleKey) -> None:
        self._present[sample] -= 1
        if not self._present[sample]:
            del self._present[sample]

    def hold(self, slot: GroupSlot, sample: SampleKey) -> None:
        self._slots[slot] = sample

    def release(self, slot: GroupSlot) -> SampleKey | None:
        """The sample that held it, if one did."""
        sample = self._slots.pop(slot, None)
        if sample is not None:
            self.dismiss(sample)
        return sample

    def note_leaving(self, sample: SampleKey, writing: "asyncio.Future[Any]") -> None:
        self._leaving.setdefault(sample, set()).add(writing)
        writing.add_done_callback(lambda _: self._forget_leaving(sample, writing))

    def _forget_leaving(self, sample: SampleKey, writing: "asyncio.Future[Any]") -> None:
        left = self._leaving[sample]
        left.discard(writing)
        if not left:
            del self._leaving[sample]
