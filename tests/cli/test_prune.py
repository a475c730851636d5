"""`atropos-envs prune` on a store that a service has open: what goes, what stays, and what the service says after."""

from pathlib import Path

import httpx
import pytest

from tests.support.commands import ended
from tests.support.serving import serving


def test_old_groups_go_beside_a_service_and_their_tasks_are_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, timeout=30) as client:
        monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", f"sqlite:///{served.database}")
        tasks = client.post("/envs/gsm8k/next-batch", json={"batch_size": 3, "cursor": 0}).json()["tasks"]
        groups = [{"task_id": task["task_id"], "completions": [{"text": "4"}, {"text": "5"}]} for task in tasks]
        first = client.post("/envs/gsm8k/score", json={"run": "r", "groups": groups}).json()["groups"]
        before = client.get("/stats?run=r").json()
        refused = ended("prune", "--older-than", -1)
        looked = ended("prune", "--older-than", 0, "--dry-run")
        asked = ended("prune", "--older-than", 0)
        kept = len(client.get("/groups?run=r").json()["groups"])
        removed = ended("prune", "--older-than", 0, "--run", "r", "--yes", "--pause", 0)
        after = client.get("/stats?run=r").json()
        again = client.post("/envs/gsm8k/score", json={"run": "s", "groups": groups}).json()["groups"]
        gone = client.get(f"/groups/{first[0]['group_id']}")
    plan = "3 groups with 6 rollouts"
    assert (refused.returncode, plan in looked.stdout, asked.returncode, kept) == (2, True, 1, 3)
    assert (removed.returncode, "removed 3 groups" in removed.stdout, after == before) == (0, True, True)
    assert [one["outcome"] for one in again] == ["scored"] * 3
    assert (gone.status_code, gone.json()["code"]) == (410, "gone")
