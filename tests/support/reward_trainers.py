"""Clients that ask for rewards as OpenRLHF and slime do, a gateway for them, and a judge that can refuse to judge."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx

from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as judge_serving
from tests.support.preferring import FEWER, preferring
from tests.support.serving import Served, serving


@dataclass
class OpenRlhf:
    """openrlhf 0.11.2: a session for each attempt, every failure tried again after a second, then an error. Seconds
    may be made shorter."""

    url: str
    total: float = 180.0
    tries: int = 5
    pause: float = 1.0
    failures: list[str] = field(default_factory=list)

    async def rewards(self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> Any:
        body = {"query": list(queries), "prompts": list(prompts), "labels": list(labels)}
        for _ in range(self.tries):
            try:
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.total)) as session,
                    session.post(self.url, json=body) as response,
                ):
                    response.raise_for_status()
                    return await response.json()
            except Exception as error:
                self.failures.append(type(error).__name__)
            await asyncio.sleep(self.pause)
        raise RuntimeError("no answer")


@dataclass
class Slime:
    """slime 624b824: one pool of connections, ten attempts, pauses that double up to half a minute. `pace` makes
    seconds of them."""

    url: str
    total: float = 120.0
    tries: int = 10
    pace: float = 1.0
    failures: list[str] = field(default_factory=list)

    async def rewards(self, samples: Sequence[tuple[str, Any]], prompt: str = "prompt") -> list[Any]:
        """Of samples that are all under way at once."""
        async with self.session() as session:
            return await self.ask(session, samples, prompt)

    def session(self) -> aiohttp.ClientSession:
        """The trainer has one for as long as it trains."""
        timeout = aiohttp.ClientTimeout(total=self.total)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64), timeout=timeout)

    async def ask(
        self, session: aiohttp.ClientSession, samples: Sequence[tuple[str, Any]], prompt: str = "prompt"
    ) -> list[Any]:
        return await asyncio.gather(*(self._reward(session, prompt, *sample) for sample in samples))

    async def _reward(self, session: aiohttp.ClientSession, prompt: str, response: str, label: Any) -> Any:
        body = {"prompt": prompt, "response": response, "label": label}
        for attempt in range(self.tries):
            try:
                async with session.post(self.url, json=body) as reply:
                    reply.raise_for_status()
                    return await reply.json()
            except Exception as error:
                self.failures.append(type(error).__name__)
                if attempt + 1 == self.tries:
                    raise
                await asyncio.sleep(self.pace * (min(2**attempt, 30) + random.random()))


@dataclass
class Judge:
    """Prefers fewer words."""

    refusals: float = 0
    """So many requests it still refuses."""
    seconds: float = 0.0

    def __call__(self, number: int, received: Received) -> Reply:
        if self.refusals > 0:
            self.refusals -= 1
            return Reply(b"{}", status=400)
        fair = preferring(number, received)
        return Reply(fair.body, seconds=self.seconds)


@dataclass(frozen=True)
class Judged:
    """A gateway whose `rlaif` is judged by `judge`."""

    gateway: Served
    judge: Judge

    def tasks(self, environment: str, count: int, **asked: Any) -> list[dict[str, Any]]:
        asked = {"batch_size": count, "cursor": 0, **asked}
        reply = httpx.post(f"{self.gateway.url}/envs/{environment}/next-batch", json=asked, timeout=60)
        tasks: list[dict[str, Any]] = reply.raise_for_status().json()["tasks"]
        return tasks

    def step(self, environment: str, task_id: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the native door says to these messages."""
        asked = {"task_id": task_id, "messages": messages}
        reply = httpx.post(f"{self.gateway.url}/envs/{environment}/step", json=asked, timeout=60)
        told: list[dict[str, Any]] = reply.raise_for_status().json()["messages"]
        return told

    def preferring(self, place: int = 0) -> str:
        """The id of a task whose answers are compared by length."""
        name: str = self.tasks("rlaif", 1, params={"preference": FEWER}, cursor=place)[0]["task_id"]
        return name

    def native(self, task_id: str, texts: Sequence[str], run: str = "native") -> list[float]:
        """What the native door pays for one group."""
        group = {"task_id": task_id, "completions": [{"text": text} for text in texts]}
        rewards: list[float] = self.scored("rlaif", {"groups": [group], "run": run})["rewards"]
        return rewards

    def scored(self, environment: str, body: object) -> dict[str, Any]:
        """The only group of a native request."""
        reply = httpx.post(f"{self.gateway.url}/envs/{environment}/score", json=body, timeout=60)
        group: dict[str, Any] = reply.raise_for_status().json()["groups"][0]
        return group

    def groups(self, run: str) -> list[dict[str, Any]]:
        """Stored ones, oldest first, in full."""
        found = httpx.get(f"{self.gateway.url}/groups", params={"run": run}, timeout=60).raise_for_status().json()
        names = [one["group_id"] for one in reversed(found["groups"])]
        return [httpx.get(f"{self.gateway.url}/groups/{name}", timeout=60).json()["group"] for name in names]

    def counts(self, run: str) -> dict[str, int]:
        """What statistics count of its groups and rollouts."""
        (row,) = httpx.get(f"{self.gateway.url}/stats", params={"run": run}, timeout=60).json()["rows"]
        return {name: row[name] for name in ("groups", "scored")}

    def stored(self, run: str) -> list[list[str]]:
        """The texts of each group in order of length."""
        return [
            sorted((one["completion"]["text"] for one in group["rollouts"]), key=lambda text: (len(text), text))
            for group in self.groups(run)
        ]

    def untold(self) -> dict[str, float]:
        """What the metrics count of answers without a score, by labels. On a slow machine some samples are told first
        that they are still being scored; these come again, and are not counted here."""
        lines = httpx.get(f"{self.gateway.url}/metrics", timeout=60).text.splitlines()
        name = "atropos_envs_compat_unscored_total"
        found = (line.removeprefix(name).rsplit(" ", 1) for line in lines if line.startswith(name))
        return {labels: float(count) for labels, count in found if 'reason="pending"' not in labels}


@contextmanager
def judged_gateway(folder: Path, **settings: str) -> Iterator[Judged]:
    judge = Judge()
    with judge_serving(judge) as server:
        write_judge(folder, server.url)
        with serving(folder, settings=settings) as gateway:
            yield Judged(gateway, judge)


def write_judge(folder: Path, url: str, deadline_seconds: float = 20) -> Path:
    """A settings file by which the judge there scores `rlaif`."""
    judge = {
        "base_url": url,
        "model": "counter",
        "deadline_seconds": deadline_seconds,
        "breaker_failures": 1000,
        "input_price_per_million": 1.0,
        "output_price_per_million": 2.0,
    }
    config = {"judges": {"counting": judge}, "environments": {"rlaif": {"judges": ["counting"]}}}
    path = folder / "gateway.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
