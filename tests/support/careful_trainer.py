"""A trainer that remembers what was acknowledged, and tries again what may be tried again."""

from dataclasses import dataclass, field

import httpx

Rewards = list[float | None]


@dataclass
class CarefulTrainer:
    """Leases and scores one task after the other. Whatever is no answer and may not be tried again raises."""

    url: str
    run: str
    text: str = ""
    """What its completions say beside a number."""
    acknowledged: dict[str, Rewards] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    """Events of a world that were acknowledged."""
    refused: set[int] = field(default_factory=set)

    def score(self, times: int, environment: str = "gsm8k") -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            for _ in range(times):
                ask = {"run": self.run, "batch_size": 1, "lease_seconds": 600}
                if batch := self._accept(client.post(f"/envs/{environment}/next-batch", json=ask)):
                    self._answer(client, environment, batch.json()["tasks"])

    def tell(self, world: str, text: str) -> None:
        """An event of a game."""
        number = len(self.told)
        event = {"id": f"e{number}", "time": "1312-04-03T09:15:00Z", "text": text}
        if self._accept(httpx.post(f"{self.url}/worlds/{world}/events", json={"events": [event]}, timeout=60)):
            self.told.add(f"e{number}")

    def read_scored(self, url: str) -> dict[str, Rewards]:
        """What the service there has of what was acknowledged."""
        ids = list(self.acknowledged)
        pages = [ids[first : first + 20] for first in range(0, len(ids), 20)]
        told = [httpx.get(f"{url}/groups", params={"id": page}).raise_for_status().json() for page in pages]
        return {group["group_id"]: group["rewards"] for page in told for group in page["groups"]}

    def read_told(self, url: str, world: str) -> set[str]:
        listed = httpx.get(f"{url}/worlds/{world}/events", params={"limit": 500}).raise_for_status().json()
        return {event["id"] for event in listed["events"]}

    def _answer(self, client: httpx.Client, environment: str, tasks: list[dict[str, str]]) -> None:
        groups = [
            {
                "task_id": task["task_id"],
                "lease_id": task["lease_id"],
                "completions": [{"text": f"#### {place} {self.text}"} for place in range(4)],
            }
            for task in tasks
        ]
        if reply := self._accept(client.post(f"/envs/{environment}/score", json={"groups": groups, "run": self.run})):
            self.acknowledged |= {group["group_id"]: group["rewards"] for group in reply.json()["groups"]}

    def _accept(self, reply: httpx.Response) -> httpx.Response | None:
        """None for what may be tried again."""
        if reply.status_code == 503:
            self.refused.add(503)
            return None
        return reply.raise_for_status()
