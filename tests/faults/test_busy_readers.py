"""Long queries over HTTP take the store's readers, not its readiness."""

import asyncio
import sqlite3
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.support.serving import serving

pytestmark = pytest.mark.slow

GROUPS = 10_000
READERS = 8
COPIED = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
INSERT INTO groups ({names}) SELECT {values} FROM groups, numbers WHERE sequence = (SELECT min(sequence) FROM groups)
"""


def _score_one(url: str) -> None:
    batch = httpx.post(f"{url}/envs/gsm8k/next-batch", json={"batch_size": 1}).raise_for_status().json()
    group = {"task_id": batch["tasks"][0]["task_id"], "completions": [{"text": "#### 1"}, {"text": "#### 2"}]}
    httpx.post(f"{url}/envs/gsm8k/score", json={"groups": [group], "run": "many"}).raise_for_status()


def _copy_group(database: Path) -> None:
    """Many rows of one group, in runs of their own."""
    with sqlite3.connect(database, timeout=30) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(groups)") if row[1] != "sequence"]
        other = {"group_id": "'group_' || n", "run": "'run_' || (n % 500)"}
        values = ", ".join(other.get(name, f'"{name}"') for name in columns)
        names = ", ".join(f'"{name}"' for name in columns)
        connection.execute(COPIED.format(count=GROUPS, names=names, values=values))
    connection.close()


async def _read_summary(client: httpx.AsyncClient) -> float:
    """Of all groups, which no rollup knows: one by one."""
    began = time.perf_counter()
    (await client.get("/export/summary")).raise_for_status()
    return time.perf_counter() - began


async def _ask_while_reading(url: str) -> tuple[list[float], Counter[int], float]:
    """How long each reading took, what readiness said meanwhile, and the longest that it took to say it."""
    said: Counter[int] = Counter()
    longest = 0.0
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        reading = asyncio.gather(*(_read_summary(client) for _ in range(READERS)))
        while not reading.done():
            began = time.perf_counter()
            said[(await client.get("/readyz")).status_code] += 1
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(0.05)
        return await reading, said, longest


def test_eight_parallel_summaries_leave_the_service_ready(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        _score_one(served.url)
        _copy_group(served.database)
        taken, said, longest = asyncio.run(_ask_while_reading(served.url))
    assert (set(said), longest < max(taken)) == ({200}, True)
