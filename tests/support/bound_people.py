"""People with a key each, and what they do with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

SECRET = "gw_of-the-settings"
ADMIN = {"Authorization": f"Bearer {SECRET}"}
WORD = "zanzibar"
"""Only in what ada stored."""
SCOPES = ["read", "train", "label", "talk", "play", "author"]


@dataclass
class Person:
    """A key with all that was stored with it."""

    name: str
    client: TestClient
    names: dict[str, str] = field(default_factory=dict)
    """Values of path parameters."""
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    queries: dict[str, dict[str, str]] = field(default_factory=dict)
    forms: dict[str, dict[str, str]] = field(default_factory=dict)

    def ask(self, method: str, path: str, **sent: Any) -> Any:
        return self.client.request(method, path, **sent)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()


def make_person(app: Any, name: str, is_bound: bool = True) -> Person:
    admin = TestClient(app, base_url="http://localhost", headers=ADMIN)
    bounds = {"bounds": {"runs": [f"{name}-*"]}} if is_bound else {}
    made = admin.post("/admin/keys", json={"name": name, "scopes": SCOPES, **bounds})
    headers = {"Authorization": f"Bearer {made.json()['secret']}"}
    client = TestClient(app, base_url="http://localhost", headers=headers, raise_server_exceptions=False)
    client.portal = app.state.portal  # the loop to which connections with the policy belong
    return Person(name, client)


def score(person: Person, environment: str, run: str, **params: str) -> tuple[dict[str, Any], dict[str, Any]]:
    asked_for = {"batch_size": 1, "run": run, "params": params}
    handed = person.post(f"/envs/{environment}/next-batch", asked_for)["tasks"][0]
    said = [{"text": f"It is {WORD}, says {person.name}: {place}"} for place in range(2)]
    asked = {"task_id": handed["task_id"], "lease_id": handed["lease_id"], "completions": said}
    return handed, person.post(f"/envs/{environment}/score", {"groups": [asked], "run": run})["groups"][0]


def talk(person: Person, world: str, said: str = "Who rows?") -> tuple[str, str]:
    """Ids of a turn and of the reply to it."""
    asked = {"model": f"hob_tarrant/{world}@warm", "messages": [{"role": "user", "content": said}]}
    told = person.post("/play/v1/chat/completions", asked)["play"]
    return told["turn"], told["replies"][0]["id"]


def use_turn(person: Person, turn: str, reply: str) -> tuple[list[int], int]:
    """Statuses of what reads and uses a turn, and how many are removed at last."""
    path = f"/play/v1/turns/{turn}"
    bodies: dict[str, dict[str, str]] = {"better": {"reply": reply}, "judge": {}, "keep": {}}
    used = [person.ask("POST", f"{path}/{act}", json=body).status_code for act, body in bodies.items()]
    return [person.ask("GET", path).status_code, *used], person.ask("DELETE", path).json()["removed"]
