"""Quotas over HTTP: they stop the handing out of tasks, say which and until when, and never stop scoring."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from app.main.application import create_app
from app.settings import Settings
from tests.faults.test_judge_restart import COST, Counting, count_more
from tests.support.chat_server import serving

SECRET = "gw_of-the-settings"
PRICES = {"input_price_per_million": 2.0, "output_price_per_million": 10.0, "max_output_tokens": 512}
ARENA, SUMS = "/envs/npc_arena", "/envs/gsm8k"


@dataclass
class Service:
    admin: TestClient
    judge: Counting

    def make_key(self, name: str, **quotas: float) -> Callable[..., Response]:
        """Asks for things with a key of this name."""
        body = {"name": name, "scopes": ["read", "train", "author"], "quotas": quotas}
        secret = self.admin.post("/admin/keys", json=body).raise_for_status().json()["secret"]
        headers = {"Authorization": f"Bearer {secret}"}

        def ask(method: str, path: str, **sent: Any) -> Response:
            return self.admin.request(method, path, headers=headers, **sent)

        return ask

    def limit(self, name: str, **quotas: float) -> None:
        self.admin.put(f"/admin/keys/{name}/quotas", json=quotas).raise_for_status()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = Path(tmp_path_factory.mktemp("quotas")) / "store.db"
    counting = Counting()
    with serving(counting) as judge:
        settings = Settings.model_validate(
            {
                "database_url": f"sqlite:///{path}",
                "api_key": SECRET,
                "judges": {"counting": {"base_url": judge.url, "model": "counting", **PRICES}},
                "environments": {"npc_arena": {"judges": ["counting"]}},
            }
        )
        headers = {"Authorization": f"Bearer {SECRET}"}
        with TestClient(create_app(settings), base_url="http://localhost", headers=headers) as admin:
            while admin.get("/readyz").status_code != 200:
                time.sleep(0.05)
            yield Service(admin, counting)


def answer(tasks: list[dict[str, Any]], *texts: str) -> dict[str, Any]:
    completions = [{"text": text} for text in texts]
    groups = [
        {"task_id": one["task_id"], "lease_id": one["lease_id"], "completions": completions}
        if one["lease_id"]
        else {"task_id": one["task_id"], "completions": completions}
        for one in tasks
    ]
    return {"groups": groups}


def summarise(answered: Response) -> tuple[int, str, bool]:
    """Status, the quota that a refusal names, and whether it says when to come back."""
    body = answered.json()
    quota = body["detail"].partition("quota: ")[2].partition(" is ")[0] if answered.status_code == 429 else ""
    return answered.status_code, quota, "retry-after" in answered.headers


def test_judge_money_is_put_aside_at_hand_out_and_what_was_handed_out_is_scored(service: Service) -> None:
    ask = service.make_key("ada", judge_usd_per_day=0.5)
    handed = ask("POST", f"{ARENA}/next-batch", json={"run": "ada-1", "batch_size": 2}).json()["tasks"]
    held = ask("GET", "/quotas").json()["usage"]
    too_many = ask("POST", f"{ARENA}/next-batch", json={"run": "ada-1", "batch_size": 12})
    service.limit("ada", judge_usd_per_day=0.001)
    refused = ask("POST", f"{ARENA}/next-batch", json={"run": "ada-1", "batch_size": 1})
    scored = ask("POST", f"{ARENA}/score", json=answer(handed, "Two bells.", "Nine bells, stranger."))
    after = ask("GET", "/quotas").json()
    assert [summarise(one) for one in (too_many, refused)] == [(429, "judge_usd_per_day", True)] * 2
    assert [group["outcome"] for group in scored.json()["groups"]] == ["scored"] * 2
    calls = round(after["usage"]["judge_usd"] / COST)
    assert (held["leases"], held["held_usd"] > 8 * COST, held["judge_usd"]) == (2, True, 0.0)
    assert after["usage"] | {"day_ends_at": None} == {
        "requests": 0,
        "judge_tokens": sum((1220 + 4 * count_more(one)) * count for one, count in service.judge.asked.items()),
        "judge_usd": pytest.approx(COST * calls),
        "held_tokens": 0,
        "held_usd": 0.0,
        "leases": 0,
        "day_ends_at": None,
        "next_lease_ends_at": None,
    }
    assert calls >= 4


def test_a_file_of_prompts_is_admitted_by_run_and_day(service: Service) -> None:
    """The tasks were handed out long ago, to another key."""
    tasks = service.admin.post(f"{ARENA}/next-batch", json={"batch_size": 3, "cursor": 5}).json()["tasks"]
    ask = service.make_key("bea", judge_usd_per_day=0.001)

    def score(place: int, run: str | None) -> Response:
        return ask("POST", f"{ARENA}/score", json={"run": run, **answer(tasks[place : place + 1], "One.", "Two.")})

    begun, more, other, unnamed = score(0, "bea-1"), score(1, "bea-1"), score(2, "bea-2"), score(2, None)
    wire = ask("POST", "/compat/slime/npc_arena", json={"prompt": "q", "response": "4", "label": tasks[2]["task_id"]})
    late = ask("POST", f"/groups/{begun.json()['groups'][0]['group_id']}/rescore", json={})
    statuses = [one.status_code for one in (begun, more, other, unnamed, wire, late)]
    stored = service.admin.get("/groups?run=bea-2").json()["groups"]
    assert (statuses, stored) == ([200, 200, 429, 429, 429, 429], [])


def test_four_fifths_of_a_quota_come_with_a_warning(service: Service) -> None:
    ask = service.make_key("dan", requests_per_day=5)
    body = {"batch_size": 1, "cursor": 0}
    replies = [ask("POST", f"{SUMS}/next-batch", json=body) for _ in range(6)]
    scored = ask("POST", f"{SUMS}/score", json=answer(replies[0].json()["tasks"], "4"))
    warned = [len(one.json().get("warnings", ())) for one in replies[:5]]
    assert (warned, summarise(replies[5])) == ([0, 0, 0, 0, 1], (429, "requests_per_day", True))
    assert (scored.status_code, ask("GET", "/quotas").json()["quotas"][0]["used"]) == (200, 6.0)


def test_an_episode_of_openenv_is_a_hand_out_too(service: Service) -> None:
    ask = service.make_key("eve", leases=1)
    path = "/compat/openenv/gsm8k/reset"
    statuses = [ask("POST", path, json={"run": "eve-1"}).status_code for _ in range(2)]
    assert statuses == [200, 429]


def test_quotas_that_make_no_sense_are_refused_by_field(service: Service) -> None:
    wrong = [{"leases": 0}, {"judge_usd_per_day": -1}, {"requests_per_day": 1.5}, {"tokens": 3}]
    found = [service.admin.put("/admin/keys/ada/quotas", json=one) for one in wrong]
    fields = [one.json()["errors"][0]["field"] for one in found]
    assert fields == ["body.leases", "body.judge_usd_per_day", "body.requests_per_day", "body.tokens"]
    assert {one.status_code for one in found} == {422}
