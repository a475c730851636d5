"""A trainer whose episodes run on the scripted server of `tests.support.openenv_server`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

SAID = ("a", "bb", "a longer word")
"""Of an episode of all three steps."""
LOST = "replay_diverged: the session was lost, and this environment cannot be played again"


class Client(Protocol):
    def post(self, url: str, /, *, json: Any) -> Any: ...


@dataclass(frozen=True)
class Trainer:
    """Plays and scores, and asks once more for a step that has no answer."""

    client: Client
    run: str = "run"
    environment: str = "words"

    def lease(self, **more: Any) -> Any:
        reply = self.client.post(
            f"/envs/{self.environment}/next-batch", json={"batch_size": 1, "run": self.run, **more}
        )
        return reply.json()["tasks"][0] if reply.is_success else (reply.status_code, reply.json()["code"])

    def step(self, task: dict[str, Any], messages: list[dict[str, Any]], tries: int = 2) -> Any:
        reply = self.client.post(
            f"/envs/{self.environment}/step", json={"task_id": task["task_id"], "messages": messages}
        )
        if reply.status_code == 503 and tries > 1:
            return self.step(task, messages, tries - 1)
        return reply.json()

    def play(self, task: dict[str, Any], words: Sequence[str]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        for word in words:
            messages.append({"role": "assistant", "content": word})
            turn = self.step(task, messages)
            if turn["done"]:
                break
            messages += turn["messages"]
        return messages

    def score(self, task: dict[str, Any], *episodes: list[dict[str, Any]]) -> list[float | str]:
        """Rewards, and in place of one that is not there the reason."""
        group = {"task_id": task["task_id"], "lease_id": task["lease_id"]}
        body = {"run": self.run, "groups": [{**group, "completions": [{"messages": one} for one in episodes]}]}
        (scored,) = self.client.post(f"/envs/{self.environment}/score", json=body).json()["groups"]
        whys = [f"{one['reason']}: {one['rationale']}" for one in scored["scores"]]
        return [why if reward is None else reward for reward, why in zip(scored["rewards"], whys, strict=True)]


def seed_of(task: dict[str, Any]) -> int:
    return int(task["messages"][0]["content"].split()[1].rstrip(":"))
