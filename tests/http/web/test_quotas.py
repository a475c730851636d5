"""Quotas over HTTP: they stop the handing out of tasks, say which and until when, and never stop scoring."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx2 import Response
from starlette.testclient import TestClient

from app.main.application import create_app
from app.settings import Settings
from tests.faults.test_judge_restart import COST, Counting, count_more
from tests.support.chat_server import Received, Reply, serving
from tests.support.nemo_gym import build_response, build_row, say
from tests.support.openenv import Talk
from tests.support.talking import speaks

SECRET = "gw_of-the-settings"
PRICES = {"input_price_per_million": 2.0, "output_price_per_million": 10.0, "max_output_tokens": 512}
Ask = Callable[..., Response]
WIRES = {"openrlhf": 429, "slime": 429, "nemo_gym": 429, "openenv": 429, "ors": 200, "ors_group": 200}
"""Status of a sample that the key's quota refuses. The streams of the Open Reward Standard have begun, and end with an
error."""
ARENA, SUMS = "/envs/npc_arena", "/envs/gsm8k"


@dataclass
class HeldJudge(Counting):
    """Answers nothing while it is held."""

    going: threading.Event = field(default_factory=threading.Event)

    def __call__(self, number: int, received: Received) -> Reply:
        self.going.wait()
        return super().__call__(number, received)


@dataclass
class Service:
    admin: TestClient
    judge: HeldJudge

    def sign_in(self, name: str, **quotas: float) -> dict[str, str]:
        """The headers of a new key."""
        body = {"name": name, "scopes": ["read", "train", "talk", "author"], "quotas": quotas}
        secret = self.admin.post("/admin/keys", json=body).raise_for_status().json()["secret"]
        return {"Authorization": f"Bearer {secret}"}

    def make_key(self, name: str, **quotas: float) -> Ask:
        """Asks for things with a key of this name."""
        headers = self.sign_in(name, **quotas)

        def ask(method: str, path: str, session: str = "", **sent: Any) -> Response:
            more = {"X-Session-ID": session} if session else {}
            return self.admin.request(method, path, headers=headers | more, **sent)

        return ask

    def limit(self, name: str, **quotas: float) -> None:
        self.admin.put(f"/admin/keys/{name}/quotas", json=quotas).raise_for_status()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = Path(tmp_path_factory.mktemp("quotas")) / "store.db"
    counting = HeldJudge()
    counting.going.set()
    with serving(counting) as judge, serving(speaks()) as policy:
        settings = Settings.model_validate(
            {
                "database_url": f"sqlite:///{path}",
                "api_key": SECRET,
                "policies": {"warm": {"base_url": policy.url, "model": "warm-model"}},
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


def spend(service: Service, ask: Ask) -> None:
    """Scores one group of a run from a file."""
    (task,) = service.admin.post(f"{ARENA}/next-batch", json={"batch_size": 1, "cursor": 9}).json()["tasks"]
    ask("POST", f"{ARENA}/score", json={"run": "spends", **answer([task], "One.", "Two.")}).raise_for_status()


def test_a_group_that_no_lease_pays_for_is_refused_alone_and_the_others_are_scored(service: Service) -> None:
    ask = service.make_key("fay", judge_usd_per_day=0.5)
    first, second = ask("POST", f"{ARENA}/next-batch", json={"run": "fay-1", "batch_size": 2}).json()["tasks"]
    begun = ask("POST", f"{ARENA}/score", json=answer([first], "Two bells.", "Nine bells."))
    service.limit("fay", judge_usd_per_day=0.001)
    again = ask("POST", f"{ARENA}/score", json=answer([first], "Two bells.", "Nine bells."))
    replayed = ask("POST", f"{ARENA}/score", json=answer([first], "Six bells.", "Seven bells."))
    both = answer([first, second], "Ten bells.", "Eleven bells.")
    mixed = ask("POST", f"{ARENA}/score", json=both).json()
    assert again.json()["groups"] == begun.json()["groups"]
    assert summarise(replayed) == (429, "judge_usd_per_day", True)
    assert [one.get("code", one.get("outcome")) for one in mixed["groups"]] == ["quota_exceeded", "scored"]
    assert [(", 0 free" in one, " over, " in one) for one in mixed["warnings"]] == [(True, True)]


def test_a_refused_rescoring_says_what_room_the_key_has_and_a_stored_one_needs_none(service: Service) -> None:
    ask = service.make_key("hal", judge_usd_per_day=0.5)
    (task,) = ask("POST", f"{ARENA}/next-batch", json={"run": "hal-1", "batch_size": 1}).json()["tasks"]
    scored = ask("POST", f"{ARENA}/score", json=answer([task], "Five.", "Six.")).json()["groups"][0]
    path, pairs = f"/groups/{scored['group_id']}/rescore", {"mode": "pairwise"}
    used = ask("GET", "/quotas").json()["usage"]["judge_usd"]
    service.limit("hal", judge_usd_per_day=used + 0.005)
    refused = ask("POST", path, json=pairs)
    service.limit("hal", judge_usd_per_day=0.5)
    carried_out = ask("POST", path, json=pairs)
    service.limit("hal", judge_usd_per_day=1e-6)
    stored = ask("POST", path, json=pairs)
    other = ask("POST", path, json={"mode": "pointwise"})
    room = re.sub(r"0\.0\d+", "#", refused.json()["detail"].partition("quota: ")[2]).partition(", until")[0]
    assert (refused.status_code, room) == (429, "judge_usd_per_day is #: # used, # free, # asked for")
    assert (carried_out.status_code, stored.json()["calls"], other.status_code) == (200, 0, 429)


def test_a_rescoring_keeps_its_room_until_it_is_judged_also_when_nobody_waits(service: Service) -> None:
    ask = service.make_key("kim", judge_usd_per_day=0.5, hard=True)
    (task,) = ask("POST", f"{ARENA}/next-batch", json={"run": "kim-1", "batch_size": 1}).json()["tasks"]
    scored = ask("POST", f"{ARENA}/score", json=answer([task], "Three.", "Eight.")).json()["groups"][0]

    def rescore(wait: float) -> tuple[str, float]:
        """The outcome, and what is reserved then."""
        body = {"mode": "pairwise", "wait_seconds": wait}
        reply = ask("POST", f"/groups/{scored['group_id']}/rescore", json=body).json()
        return reply["scoring"]["outcome"], ask("GET", "/quotas").json()["usage"]["held_usd"]

    service.judge.going.clear()
    try:
        begun, again = rescore(0.01), rescore(0.01)
    finally:
        service.judge.going.set()
    done, _ = rescore(60.0)
    while ask("GET", "/quotas").json()["usage"]["held_usd"]:
        time.sleep(0.01)
    assert (begun[0], begun[1] > 0, again, done) == ("pending", True, begun, "scored")


def test_what_characters_say_and_judges_of_it_count(service: Service) -> None:
    ask = service.make_key("ida", requests_per_day=2, judge_usd_per_day=0.5)
    body = {"model": "hob_tarrant", "messages": [{"role": "user", "content": "Is the water high?"}]}
    turn = ask("POST", "/play/v1/chat/completions", json=body).json()["play"]["turn"]
    judged = ask("POST", f"/play/v1/turns/{turn}/judge")
    usage = ask("GET", "/quotas").json()["usage"]
    talked, again = ask("POST", "/play/v1/chat/completions", json=body), ask("POST", f"/play/v1/turns/{turn}/judge")
    page = ask("POST", "/view/talk/say", data={"character": "hob_tarrant", "line": "Hello?"})
    assert (judged.status_code, usage["requests"], usage["judge_usd"] > 0, usage["held_usd"]) == (200, 2, True, 0.0)
    assert [summarise(one) for one in (again, talked)] == [
        (429, "requests_per_day", True),
        (429, "requests_per_day", True),
    ]
    assert (page.status_code, "requests_per_day" in page.text) == (503, True)
    service.limit("ida", requests_per_day=100, judge_usd_per_day=1e-6)
    refused = ask("POST", f"/play/v1/turns/{turn}/judge")
    assert summarise(refused) == (429, "judge_usd_per_day", True)


def test_a_kept_draft_counts_as_what_it_says(service: Service) -> None:
    """Its text is read before the judges' room is."""
    ask = service.make_key("lea", judge_tokens_per_day=150_000)
    text = ask("GET", "/view/characters/hob_tarrant/edit?format=json").json()["text"]
    long = [{"player": f"Well {number}?", "reply": "Nine bells, stranger. " * 150} for number in range(40)]
    sheet = yaml.safe_load(text)
    sheet["voice"]["examples"] = long
    form = {"do": "save", "stamp": "0.", "text": yaml.safe_dump(sheet)}
    saved = ask("POST", "/view/characters/hob_tarrant/edit", data=form, follow_redirects=False)
    body = {"draft": {"character": "hob_tarrant", "line": "Well?"}, "completions": [{"text": "Nine bells."}]}
    tried = [ask("POST", f"{ARENA}/try", json={**body, "own_draft": own}) for own in (False, True)]
    assert (saved.status_code, *map(summarise, tried)) == (303, (200, "", False), (429, "judge_tokens_per_day", True))


def answer_wire(ask: Ask, name: str, task: str, capped: Callable[[], None]) -> tuple[int, str]:
    """Status and body of what a trainer is answered for a sample of this task, whose quota is `capped` meanwhile."""
    sample = {"query": "qOx.", "prompts": "q", "labels": task}
    if name == "openrlhf":
        capped()
        answered = ask("POST", "/compat/openrlhf/npc_arena/get_reward?run=wires", json=sample)
    elif name == "slime":
        capped()
        answered = ask(
            "POST", "/compat/slime/npc_arena?run=wires", json={"prompt": "q", "response": "Ox.", "label": task}
        )
    elif name == "nemo_gym":
        capped()
        row = build_row(task, 0, 0) | {"response": build_response(say("Ox."))}
        answered = ask("POST", "/compat/nemo_gym/npc_arena/verify?run=wires", json=row)
    elif name == "openenv":
        begun = ask("POST", "/compat/openenv/npc_arena/reset", json={"index": 3}).json()
        capped()
        action = {"action": {"text": "Ox."}, "task_id": begun["observation"]["task_id"]}
        answered = ask("POST", "/compat/openenv/npc_arena/step", json=action)
    else:
        ask("POST", "/compat/ors/npc_arena/create?run=wires", session="one", json={"split": "train", "index": 3})
        capped()
        said = {"role": "assistant", "blocks": [{"type": "text", "text": "Ox."}]}
        path, body = {
            "ors": ("call", {"name": "reply", "input": {"text": "Ox."}}),
            "ors_group": ("score_group", {"candidates": [{"messages": [said]}, {"messages": [said]}]}),
        }[name]
        answered = ask("POST", f"/compat/ors/npc_arena/{path}?run=wires", session="one", json=body)
    return answered.status_code, answered.text


@pytest.mark.parametrize("name", WIRES)
def test_no_wire_turns_a_quota_into_a_reward(service: Service, name: str) -> None:
    ask = service.make_key(f"wire-{name.replace('_', '-')}", judge_usd_per_day=0.5)
    spend(service, ask)
    (task,) = service.admin.post(f"{ARENA}/next-batch", json={"batch_size": 1, "cursor": 7}).json()["tasks"]

    def cap() -> None:
        service.limit(f"wire-{name.replace('_', '-')}", judge_usd_per_day=0.001, hard=True)

    status, text = answer_wire(ask, name, task["task_id"], cap)
    assert (status, "has no room in a quota" in text, re.findall(r'"(?:reward|rewards|score)":\s*[0-9\[]', text)) == (
        WIRES[name],
        True,
        [],
    ), text


def test_a_quota_ends_no_episode_of_a_web_socket(service: Service) -> None:
    headers = service.sign_in("web-socket", judge_usd_per_day=1e-6, hard=True)
    with service.admin.websocket_connect("/compat/openenv/npc_arena/ws", headers=headers) as socket:
        talk = Talk(socket.send_text, socket.receive_text)
        talk.told("reset", index=3)
        refused = [talk.refused("step", text="Ox.") for _ in range(2)]
        state = talk.told("state")
    assert [(code, "has no room in a quota" in words) for code, words in refused] == [("EXECUTION_ERROR", True)] * 2
    assert state["step_count"] == 0


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
