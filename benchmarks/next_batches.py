"""How long trainers wait for 64 tasks of the environments that take longest: `python -m benchmarks.next_batches`.

Eight trainers, each with a run of its own, ask one server with SQLite; each waits for its tasks and asks again
`--seconds` after it asked before. A short run by default; `--minutes 10` is the whole one."""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from tests.support.serving import serving

ENVIRONMENTS: Final = ("instruction_following", "text_to_sql")
TRAINERS: Final = 8
BATCH_SIZE: Final = 64
WANTED_MS: Final = 100


def measure(url: str, environment: str, minutes: float, seconds: float) -> list[float]:
    """Seconds that each request took, the first of every trainer aside: a first one can't have been prepared."""
    return asyncio.run(_ask_in_parallel(url, environment, time.monotonic() + 60 * minutes, seconds))


async def _ask_in_parallel(url: str, environment: str, until: float, seconds: float) -> list[float]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        trainers = [_train(client, environment, f"trainer-{number}", until, seconds) for number in range(TRAINERS)]
        return [taken for waits in await asyncio.gather(*trainers) for taken in waits[1:]]


async def _train(client: httpx.AsyncClient, environment: str, run: str, until: float, seconds: float) -> list[float]:
    await asyncio.sleep(random.Random(run).uniform(0, seconds))  # a start of its own
    waits: list[float] = []
    while time.monotonic() < until:
        began = time.monotonic()
        body = {"batch_size": BATCH_SIZE, "run": f"{environment}-{run}"}
        answer = await client.post(f"/envs/{environment}/next-batch", json=body)
        answer.raise_for_status()
        if len(answer.json()["tasks"]) != BATCH_SIZE:
            raise RuntimeError("a batch is not whole")
        waits.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, seconds - waits[-1]))
    return waits


def report(environment: str, waits: list[float], seconds: float) -> str:
    ordered = sorted(waits)
    p50, p95, p99 = (ordered[int(share * (len(ordered) - 1))] * 1e3 for share in (0.5, 0.95, 0.99))
    asked = TRAINERS * BATCH_SIZE / seconds
    return (
        f"{environment:24} {len(ordered):5} requests, {asked:.0f} tasks/s asked for: "
        f"p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms   (at most {WANTED_MS} ms is wanted)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.5, help="of each environment")
    parser.add_argument("--seconds", type=float, default=5.0, help="between two requests of a trainer")
    chosen = parser.parse_args()
    for environment in ENVIRONMENTS:
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as gateway:
            waits = measure(gateway.url, environment, chosen.minutes, chosen.seconds)
        print(report(environment, waits, chosen.seconds), flush=True)


if __name__ == "__main__":
    main()
