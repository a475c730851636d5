"""What removing nine tenths of the stored rollouts does to scoring: `python -m benchmarks.pruning [ROLLOUTS]`.

A store is filled by raw inserts and served. Groups of `gsm8k` are scored one after the other, first alone, then while
`atropos-envs prune` runs beside the service. Statistics must be the same before, after, and after a rebuild."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import httpx
from sqlalchemy import update

from app.store.database import open_writer
from app.store.rows import to_micros
from app.store.tables import groups
from benchmarks.statistics_routes import GROUP_SIZE, prepare
from tests.support.databases import read_migrated_store
from tests.support.serving import serving

SHARE: Final = 0.9
SECONDS_ALONE: Final = 20.0
FIGURES: Final = ("/stats?env=npc_arena", "/stats?env=npc_arena&by=character", "/runs/run-0")


def measure_scoring(client: httpx.Client, is_over: Callable[[], bool]) -> list[float]:
    """Seconds of each request that scores a group of eight."""
    tasks = client.post("/envs/gsm8k/next-batch", json={"batch_size": 64, "cursor": 0}).raise_for_status().json()
    seconds, number = list[float](), 0
    while not is_over():
        number += 1
        completions = [{"text": f"{time.time_ns()} {place}: the answer is {number}"} for place in range(GROUP_SIZE)]
        body = {"groups": [{"task_id": tasks["tasks"][number % 64]["task_id"], "completions": completions}]}
        began = time.perf_counter()
        client.post("/envs/gsm8k/score", json=body).raise_for_status()
        seconds.append(time.perf_counter() - began)
    return seconds


def compute_p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[-1]


def read_figures(client: httpx.Client) -> list[Any]:
    found = [client.get(route).raise_for_status().json() for route in FIGURES]
    found[-1].pop("judging", None)  # a rate of the last hours
    return found


def main() -> None:
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "gateway.db"
        file.write_bytes(read_migrated_store())
        url = f"sqlite:///{file}"
        count = rollouts // GROUP_SIZE
        asyncio.run(prepare(url, count))
        make_young(url, int(SHARE * count))
        print(f"{rollouts:,} rollouts in {file.stat().st_size / 2**20:,.0f} MB", flush=True)
        with serving(folder, python=sys.executable) as served, httpx.Client(base_url=served.url, timeout=60) as client:
            before = read_figures(client)
            ends = time.monotonic() + SECONDS_ALONE
            alone = measure_scoring(client, lambda: time.monotonic() > ends)
            began = time.monotonic()
            program = [sys.executable, "-m", "app.cli", "prune", "--older-than", "7", "--yes"]
            pruning = subprocess.Popen(program, env=os.environ | {"ATROPOS_ENVS_DATABASE_URL": url})
            beside = measure_scoring(client, lambda: pruning.poll() is not None)
            seconds = time.monotonic() - began
            after = read_figures(client)
        rebuilding = [sys.executable, "-m", "app.cli", "db", "rebuild-statistics"]
        subprocess.run(rebuilding, env=os.environ | {"ATROPOS_ENVS_DATABASE_URL": url}, check=True)
        with serving(folder, python=sys.executable) as served, httpx.Client(base_url=served.url, timeout=60) as client:
            rebuilt = read_figures(client)
    print(f"pruned in {seconds:.0f} s, exit code {pruning.returncode}")
    print(f"score alone:  p50 {1e3 * quantiles(alone, n=2)[0]:.2f}, p95 {1e3 * compute_p95(alone):.2f} ms")
    print(f"score beside: p50 {1e3 * quantiles(beside, n=2)[0]:.2f}, p95 {1e3 * compute_p95(beside):.2f} ms")
    print(f"ratio of p95: {compute_p95(beside) / compute_p95(alone):.2f}")
    print(f"statistics the same after pruning: {before == after}, after a rebuild: {before == rebuilt}")
    if before != after or before != rebuilt:
        print(json.dumps([before, after, rebuilt])[:4000])


def make_young(url: str, first: int) -> None:
    """The groups from here on were created just now, the others long ago."""
    engine = open_writer(url)
    now = datetime.now(UTC)
    with engine.begin() as connection:
        old = {"created_at": to_micros(now - timedelta(days=30))}
        connection.execute(update(groups).values(old))
        connection.execute(update(groups).where(groups.c.sequence > first).values(created_at=to_micros(now)))
    engine.dispose()


if __name__ == "__main__":
    main()
