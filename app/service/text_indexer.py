"""Keeps the index of texts behind what is stored, in small batches with pauses, by one replica at a time."""

import asyncio
import logging
import math
import secrets
import time
from typing import Final

from app.ports.retention import RetentionStore
from app.ports.text_index import GroupSnapshot, TextIndexStore
from app.service.job_turns import work_in_turn

log = logging.getLogger(__name__)

GROUPS_AT_ONCE: Final = 16
PAUSES: Final = 2.0
"""A pause is so many times as long as the batch before it took."""
BUSY_PAUSES: Final = 9.0
"""The same while the process is busy."""
BUSY: Final = 0.5
"""Seconds of processor time in a second of a pause, with which a process is busy."""
LOOK_SECONDS: Final = 5.0
"""How often a replica looks whether there is something to take in."""
FAILED_SECONDS: Final = 60.0
SETTLING_SECONDS: Final = 1.0
"""How often a replica looks whether what others were storing is there."""
PATIENCE_SECONDS: Final = 60.0
"""How long others may be storing groups before a warning says which transactions are still open."""
_INDEXING: Final = "index_texts"


class TextIndexer:
    def __init__(
        self, texts: TextIndexStore, turns: RetentionStore, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._texts = texts
        self._turns = turns
        self._patience = patience_seconds

    async def run(self) -> None:
        """For ever. One that dies is followed by another."""
        holder = secrets.token_hex(8)
        while True:
            wait = LOOK_SECONDS
            try:
                if await self._texts.is_behind():
                    await work_in_turn(self._turns, _INDEXING, holder, self.catch_up, every_seconds=0)
            except Exception:
                log.exception("texts could not be indexed; this is tried again")
                wait = FAILED_SECONDS
            await asyncio.sleep(wait)

    async def catch_up(self) -> int:
        """Takes in what is stored now. It may be cancelled at any time. Returns how many groups it were."""
        snapshot = await self._texts.take_snapshot()
        await self._await_writers(snapshot)
        indexed = 0
        while True:
            began = time.monotonic()
            batch = await self._texts.index_texts(snapshot.newest, GROUPS_AT_ONCE)
            indexed += batch.indexed
            if batch.is_last:
                return indexed
            await _pause(time.monotonic() - began)

    async def _await_writers(self, snapshot: GroupSnapshot) -> None:
        warn_at = time.monotonic() + self._patience
        while still := await self._texts.find_open_writers(snapshot):  # other processes wake nobody
            if time.monotonic() >= warn_at:
                warn_at = math.inf
                log.warning(
                    "the index of texts takes in no newer groups, because a transaction that writes to `groups` has "
                    "been open for over %g s: %s",
                    self._patience,
                    ", ".join(sorted(still)),
                )
            await asyncio.sleep(SETTLING_SECONDS)


async def _pause(taken: float) -> None:
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(PAUSES * taken)
    await asyncio.sleep(compute_rest(taken, time.process_time() - used, time.monotonic() - began))


def compute_rest(taken: float, used: float, passed: float) -> float:
    """Of a pause after a batch that took so long: `passed` seconds of it used so much processor time."""
    return max(0.0, BUSY_PAUSES * taken - passed) if used > BUSY * passed else 0.0
