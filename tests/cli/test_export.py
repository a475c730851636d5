"""Exports from a gateway in a process of its own: the command, the file as `datasets` reads it, and what it takes."""

import json
import sqlite3
import sys
import time
from pathlib import Path

import datasets
import httpx
import pytest

from app.domain.scores import Score
from app.main.store import Store
from app.store.group_rows import GroupToStore
from tests.support.commands import Ended, ended
from tests.support.gateways import Gateways
from tests.support.serving import Served, serving
from tests.support.store_cases import group, record, using
from tests.support.tables import read_table

TABLE = read_table(__file__, "export.yaml", tuple[tuple[tuple[str, ...], str], ...])

MEGABYTE = 1024 * 1024
RUN = "exported"
GROUPS = 12_500
"""Of eight rollouts."""


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    """With three scored groups of a run: one of them for an evaluation."""
    served = gateways.of()
    for cursor, purpose, split in ((0, "train", "train"), (1, "train", "train"), (0, "eval", "test")):
        asked = {"batch_size": 1, "cursor": cursor, "purpose": purpose, "split": split}
        (task,) = httpx.post(f"{served.url}/envs/countdown/next-batch", json=asked).json()["tasks"]
        replies = [{"text": f"<answer>{answer}</answer>"} for answer in ("1", "2 + 3")]
        groups = [{"task_id": task["task_id"], "completions": replies}]
        body = {"groups": groups, "purpose": purpose, "run": RUN}
        httpx.post(f"{served.url}/score", json=body).raise_for_status()
    return served


def command(*arguments: str, url: str) -> Ended:
    return ended("export", *arguments, "--url", url)


@pytest.mark.parametrize(("shape", "suffix"), [("rollouts", "parquet"), ("sft", "jsonl"), ("kto", "parquet")])
def test_a_file_loads_as_a_data_set(gateway: Served, tmp_path: Path, suffix: str, shape: str) -> None:
    file = tmp_path / f"rows.{suffix}"
    options = ("--run", RUN, "--since", "2001-01-01", "--shape", shape, "--threshold", "0")
    done = command(str(file), *options, url=gateway.url)
    later = command(str(tmp_path / "later.jsonl"), "--run", RUN, "--since", "2999-01-01", "--json", url=gateway.url)
    kind = "json" if suffix == "jsonl" else "parquet"
    loaded = datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    told = " ".join(done.stderr.split())
    assert (done.returncode, told.endswith(f"{file.stat().st_size:,} bytes")) == (0, True), told
    assert [row["completion"][0]["content"] for row in loaded] == ["<answer>1</answer>", "<answer>2 + 3</answer>"] * 2
    assert (json.loads(later.stdout)["rows"], [*tmp_path.glob("*.part")]) == (0, [])


@pytest.mark.parametrize(("arguments", "said"), TABLE)
def test_what_cannot_be_exported_is_said(
    gateway: Served, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = command(str(tmp_path / arguments[0]), *arguments[1:], url=gateway.url)
    assert (done.returncode, said in done.stderr, [*tmp_path.iterdir()]) == (1, True, []), done.stderr


def test_a_file_is_replaced_only_by_force(gateway: Served, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    codes = [command(str(file), "--run", RUN, *force, url=gateway.url).returncode for force in ((), (), ("--force",))]
    assert codes == [0, 1, 0]


def _alter(database: Path, statement: str) -> None:
    with sqlite3.connect(database, timeout=30) as connection:
        connection.execute(statement)


def test_what_breaks_off_is_no_file(tmp_path: Path) -> None:
    (folder := tmp_path / "served").mkdir()
    using(f"sqlite:///{folder / 'gateway.db'}", _two_pages)
    _alter(folder / "gateway.db", "UPDATE groups SET flags = '{' WHERE sequence = 100")
    with serving(folder) as served:
        done = [command(str(tmp_path / f"rows.{suffix}"), url=served.url) for suffix in ("jsonl", "parquet")]
        _alter(served.database, "ALTER TABLE groups RENAME TO lost")
        away = httpx.get(f"{served.url}/export")
    assert [(one.returncode, "failed after" in one.stderr) for one in done] == [(1, True)] * 2
    assert [*tmp_path.iterdir()] == [folder]
    assert (away.status_code, away.json()["code"]) == (503, "store_unavailable")


async def _two_pages(store: Store) -> None:
    await store.tasks.put([record(number) for number in range(100)])
    await store.groups.add([_group(number, [Score.exact(True)]) for number in range(100)])


async def _filled(store: Store) -> None:
    await store.tasks.put([record(number, "Count to ten. " * 40) for number in range(100)])
    scores = [Score.exact(place % 2 == 0, rationale="as counted") for place in range(8)]
    for first in range(0, GROUPS, 500):
        await store.groups.add([_group(number, scores) for number in range(first, first + 500)])


def _group(number: int, scores: list[Score]) -> GroupToStore:
    made = group(f"g{number}", scores, task_id=f"task_{number % 100}")
    said = [
        one.model_copy(update={"completion": one.completion.model_copy(update={"text": f"{one.rollout_id} " * 40})})
        for one in made.group.rollouts
    ]
    return GroupToStore(made.group.model_copy(update={"rollouts": tuple(said)}))


def _settled_memory(served: Served) -> int:
    """What the gateway takes once it has opened all that it opens behind its first requests, in bytes."""
    httpx.get(f"{served.url}/readyz").raise_for_status()
    taken = [_memory(served)]
    while len(taken) < 5 or taken[-1] - taken[-5] > MEGABYTE // 4:
        time.sleep(0.5)
        taken.append(_memory(served))
    return taken[-1]


def _memory(served: Served) -> int:
    """Without the pages of libraries: how many of Arrow's are counted depends on what the system has in its cache."""
    status = Path(f"/proc/{served.process.pid}/status").read_text(encoding="ascii")
    return int(next(row for row in status.splitlines() if row.startswith("RssAnon")).split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads a process's memory as Linux tells it")
def test_a_hundred_thousand_rollouts_take_little_memory(tmp_path: Path) -> None:
    """In each shape, and in all of them one after the other: the most that was taken after any piece so far."""
    told = []
    using(f"sqlite:///{tmp_path / 'gateway.db'}", _filled)
    with serving(tmp_path, python=sys.executable) as served:
        most = before = _settled_memory(served)
        for wanted in ({"format": "jsonl"}, {"format": "parquet"}, {"shape": "sft"}):
            size = 0
            with httpx.stream("GET", f"{served.url}/export", params=wanted, timeout=300) as reply:
                for piece in reply.iter_bytes():
                    size += len(piece)
                    most = max(most, _memory(served))
            told.append((size / MEGABYTE, (most - before) / MEGABYTE))
    assert [(size > 1, grown < 75) for size, grown in told] == [(True, True)] * 3, told
