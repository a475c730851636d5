"""The whole service over PostgreSQL: what it was told is there after a restart, and a second replica sees it."""

from pathlib import Path

import httpx
import pytest

from tests.support.databases import Postgres
from tests.support.serving import ROOT, serving
from tests.support.shell_blocks import run_shell_blocks

pytestmark = pytest.mark.slow

OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _trained(url: str) -> tuple[dict[str, list[float | None]], list[str]]:
    """Rewards by group of one leased batch of each environment, and the tasks that were handed out."""
    rewards: dict[str, list[float | None]] = {}
    tasks: list[str] = []
    for name in ("gsm8k", "npc_arena"):
        ask = {"run": "trained", "batch_size": 4}
        batch = httpx.post(f"{url}/envs/{name}/next-batch", json=ask).raise_for_status().json()
        groups = [
            {
                "task_id": task["task_id"],
                "lease_id": task["lease_id"],
                "completions": [{"text": "#### 7"}, {"text": "I am\u0000 tired, friend."}],
            }
            for task in batch["tasks"]
        ]
        body = {"groups": groups, "run": "trained", "policy": {"model": "m", "step": 1}}
        reply = httpx.post(f"{url}/envs/{name}/score", json=body, timeout=60).raise_for_status().json()
        rewards |= {group["group_id"]: group["rewards"] for group in reply["groups"]}
        tasks += [task["task_id"] for task in batch["tasks"]]
    return rewards, tasks


def test_two_replicas_share_one_database_and_a_restart_forgets_nothing(tmp_path: Path, postgres: Postgres) -> None:
    settings = {"ATROPOS_ENVS_DATABASE_URL": postgres.empty()}
    section = OPERATING.split("**Run two replicas on one database.**")[1].split("\n**")[0]
    with (
        serving(_folder(tmp_path / "one"), settings=settings) as one,
        serving(_folder(tmp_path / "two"), settings=settings) as two,
    ):
        rewards, first = _trained(one.url)
        more, second = _trained(two.url)
        (printed,) = run_shell_blocks(section, tmp_path, one.url, two.url)
    with serving(_folder(tmp_path / "three"), settings=settings) as again:
        ids = {"id": list(rewards | more)}
        told = httpx.get(f"{again.url}/groups", params=ids).raise_for_status().json()["groups"]
        page = httpx.get(f"{again.url}/view/groups").raise_for_status().text
    assert {group["group_id"]: group["rewards"] for group in told} == rewards | more
    assert (len(set(first) | set(second)), page.count("/view/groups/group_")) == (16, 17)
    assert [said for said in ('"handed_out":1,"outstanding":0', '"scored":2') if said not in printed] == []
    assert '`"handed_out":1,"outstanding":0` and `"scored":2`' in section
