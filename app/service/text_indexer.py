"""Keeps the index of texts behind what is stored, in small batches with pauses, by one replica at a time."""

import asyncio
import logging
import secrets
import time
from typing import Final

from app.ports.retention import RetentionStore
from app.ports.text_index import TextIndexStore
from app.service.job_turns import work_in_turn

log = logging.getLogger(__name__)

GROUPS_AT_ONCE: Final = 16
PAUSES: Final = 2.0
"""A pause is so many times as long as the batch before it took."""
LOOK_SECONDS: Final = 5.0
"""How often a replica looks whether there is something to take in."""
FAILED_SECONDS: Final = 60.0
SETTLED_SECONDS: Final = 10.0
"""Replicas may store a group before another that has a lower number: what is newer than this waits."""
_INDEXING: Final = "index_texts"


class TextIndexer:
    def __init__(
        self, texts: TextIndexStore, turns: RetentionStore, *, settled_seconds: float = SETTLED_SECONDS
    ) -> None:
        self._texts = texts
        self._turns = turns
        self._settled_seconds = settled_seconds
        self._pauses = PAUSES

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
        newest = await self._texts.get_newest()
        await asyncio.sleep(self._settled_seconds)
        indexed = 0
        while True:
            began = time.monotonic()
            batch = await self._texts.index_texts(newest, GROUPS_AT_ONCE)
            indexed += batch.indexed
            if batch.is_last:
                return indexed
            await asyncio.sleep(self._pauses * (time.monotonic() - began))
