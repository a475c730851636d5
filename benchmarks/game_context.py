"""The prompt of a moment in a game, over HTTP, in a world of 100,000 events with a lorebook, on both databases: alone,
and while 500 events a second are told. `python -m benchmarks.game_context [events]`
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import httpx

from app.domain.worlds import Lorebook, LoreEntry
from app.features.worlds.store import SqlEventStore
from app.features.worlds.store_worlds import SqlLorebookStore
from app.main.store import Store
from benchmarks.chronicles import Chronicle
from benchmarks.results import read_arguments
from benchmarks.retrieval import BATCH, EVENTS, TOLD_A_SECOND, percentile
from tests.support.databases import MIGRATIONS, Postgres, running_postgres
from tests.support.serving import serving

MOMENTS = 400
WANTED_MILLISECONDS = 50
WORLD: Final = "town"
ENTRIES: Final = 300
"""Of the world's lorebook, with three keys each."""


@dataclass(frozen=True)
class Measured:
    """Seconds of each request. `told` are events a second while `busy` was measured."""

    alone: Sequence[float]
    busy: Sequence[float]
    told: float
    passages: float
    """In a prompt, on average."""


def measure(url: str, folder: Path, events: int = EVENTS) -> Measured:
    asyncio.run(fill(url, events))
    with serving(folder, python=sys.executable, settings={"ATROPOS_ENVS_DATABASE_URL": url}) as gateway:
        return asyncio.run(_measure(gateway.url))


async def fill(url: str, events: int) -> None:
    chronicle = Chronicle(1)
    store = await asyncio.to_thread(Store.open, url, MIGRATIONS)
    try:
        for _ in range(events // BATCH):
            await store.part(SqlEventStore).add_events(WORLD, [chronicle.event() for _ in range(BATCH)])
        entries = tuple(
            LoreEntry(id=f"l{number}", keys=tuple(chronicle.words(3)), content=" ".join(chronicle.words(30)))
            for number in range(ENTRIES)
        )
        await store.part(SqlLorebookStore).put(WORLD, "town", Lorebook(entries=entries))
    finally:
        await store.close()


async def _measure(url: str) -> Measured:
    chronicle = Chronicle(2)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        listed = (await client.get("/characters")).raise_for_status().json()
        characters = [one["id"] for one in listed["characters"]]
        moments = [build_moment(chronicle, characters, number) for number in range(MOMENTS)]
        await _ask(client, moments[:50])
        alone, passages = await _ask(client, moments)
        telling = asyncio.create_task(_tell_steadily(url))
        busy, _ = await _ask(client, moments)
        telling.cancel()
        return Measured(alone, busy, await telling, passages / len(moments))


def build_moment(chronicle: Chronicle, characters: Sequence[str], number: int) -> dict[str, object]:
    """Three lines of talk, at any time of the world's year."""
    said = [{"role": role, "content": " ".join(chronicle.words(20))} for role in ("user", "assistant", "user")]
    at: datetime = chronicle.moment()
    return {"character": characters[number % len(characters)], "conversation": said, "as_of": at.isoformat()}


async def _ask(client: httpx.AsyncClient, moments: Sequence[dict[str, object]]) -> tuple[list[float], int]:
    seconds, passages = [], 0
    for moment in moments:
        began = time.perf_counter()
        reply = await client.post(f"/worlds/{WORLD}/context", json=moment)
        seconds.append(time.perf_counter() - began)
        passages += len(reply.raise_for_status().json()["passages"])
        await asyncio.sleep(0.01)
    return seconds, passages


async def _tell_steadily(url: str) -> float:
    """Until it is cancelled; events a second."""
    chronicle = Chronicle(random.SystemRandom().getrandbits(32))
    began, told, batch = time.perf_counter(), 0, BATCH // 2
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        try:
            while True:
                events = [chronicle.event().model_dump(mode="json") for _ in range(batch)]
                (await client.post(f"/worlds/{WORLD}/events", json={"events": events})).raise_for_status()
                told += batch
                await asyncio.sleep(max(0.0, told / TOLD_A_SECOND - (time.perf_counter() - began)))
        except asyncio.CancelledError:
            return told / (time.perf_counter() - began)


def report(database: str, found: Measured) -> None:
    print(f"{database}: {found.passages:.1f} passages a prompt   (p95 of at most {WANTED_MILLISECONDS} ms is wanted)")
    for name, seconds in (("nothing else", found.alone), (f"{found.told:.0f} told a second", found.busy)):
        p50, p95, p99 = (percentile(seconds, share) * 1e3 for share in (0.5, 0.95, 0.99))
        print(f"  context, {name:20} p50 / p95 / p99   {p50:.1f} / {p95:.1f} / {p99:.1f} ms")


def main(events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report("SQLite", measure(f"sqlite:///{folder}/store.db", Path(folder), events))
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:
        report("PostgreSQL", measure(Postgres(server).migrated(), Path(folder), events))


if __name__ == "__main__":
    main(int(next(iter(read_arguments()), EVENTS)))
