"""SIGKILL while Atropos' environments post and a trainer polls: nothing acknowledged is lost, nothing comes twice but
the batch that nobody had confirmed."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.support.atropos import TRAINER, group, numbers
from tests.support.serving import Served, free_port, serving
from tests.support.tiers import is_quick

KILLS = 2 if is_quick() else 8
POSTERS = 4
AT_ONCE = 2
"""Groups of a batch."""
FEWEST_BATCHES = 2
"""That arrive in one life: all but its last are confirmed."""
MOST_SECONDS = 120
"""Of a life: only a gateway that hangs takes so long."""


@dataclass
class Seen:
    """What was acknowledged, and the batches that arrived, in the lives of the gateway in which they did."""

    acknowledged: set[int] = field(default_factory=set)
    lives: list[list[list[int]]] = field(default_factory=list)
    next_number: int = 0
    wanted: int = 0
    """Groups acknowledged in all when this life has lasted long enough."""
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    def begin_life(self, groups: int) -> None:
        self.lives.append([])
        self.wanted, self.enough = len(self.acknowledged) + groups, asyncio.Event()

    def check_life(self) -> None:
        if len(self.acknowledged) >= self.wanted and len(self.lives[-1]) >= FEWEST_BATCHES:
            self.enough.set()


async def _post(client: httpx.AsyncClient, seen: Seen) -> None:
    while True:
        seen.next_number += 1
        number = seen.next_number
        (await client.post("/scored_data", json=group(number, tokens=64))).raise_for_status()
        seen.acknowledged.add(number)
        seen.check_life()


async def _poll(client: httpx.AsyncClient, seen: Seen) -> None:
    while True:
        batch = (await client.get("/batch")).raise_for_status().json()
        if batch["batch"]:
            seen.lives[-1].append(numbers(batch))
            seen.check_life()
        else:
            await asyncio.sleep(0.01)


async def _kill_after(gateway: Served, seen: Seen, seconds: float) -> None:
    """The further seconds are for a death anywhere in what the gateway does, and not just after an answer."""
    await seen.enough.wait()
    await asyncio.sleep(seconds)
    gateway.kill()


async def _until_dead(gateway: Served, url: str, seen: Seen, seconds: float) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        (await client.post("/register", json=TRAINER)).raise_for_status()
        work = [_poll(client, seen), *(_post(client, seen) for _ in range(POSTERS))]
        async with asyncio.timeout(MOST_SECONDS):
            death, *ends = await asyncio.gather(_kill_after(gateway, seen, seconds), *work, return_exceptions=True)
    assert death is None
    assert [end for end in ends if not isinstance(end, httpx.TransportError)] == []


def _rest(url: str) -> list[list[int]]:
    """Every batch that is left."""
    batches: list[list[int]] = []
    with httpx.Client(base_url=url) as client:
        while batch := numbers(client.get("/batch").json()):
            batches.append(batch)
    return batches


@pytest.mark.deep
def test_every_acknowledged_group_arrives_and_only_an_unconfirmed_batch_comes_again(tmp_path: Path) -> None:
    chance = random.Random(4)
    port = free_port()
    settings = {"ATROPOS_ENVS_ATROPOS_PORT": str(free_port())}
    url = f"http://127.0.0.1:{settings['ATROPOS_ENVS_ATROPOS_PORT']}"
    seen = Seen()
    for _ in range(KILLS):
        with serving(tmp_path, port=port, settings=settings) as gateway:
            seen.begin_life(chance.randint(21, 80))
            asyncio.run(_until_dead(gateway, url, seen, chance.uniform(0, 0.05)))
    with serving(tmp_path, port=port, settings=settings):
        seen.lives.append(_rest(url))
    arrived = [number for life in seen.lives for batch in life for number in batch]
    followed = [number for life in seen.lives for batch in life[:-1] for number in batch]
    repeated = {number for number, times in Counter(arrived).items() if times > 1}
    unconfirmed = {number for life in seen.lives if life for number in life[-1]}
    lost = seen.acknowledged - set(arrived)
    assert len(lost) < AT_ONCE, "all but a last group that filled no batch"
    assert (repeated - unconfirmed, max(Counter(followed).values())) == (set(), 1)
