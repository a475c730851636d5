"""Trainers of several wires at once, over replicas that come and go. Each remembers what it was told, and asks again as
the real ones do; what is neither an answer nor to be asked again is kept as a refusal."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.support.atropos import TRAINER, group, numbers
from tests.support.preferring import FEWER

RUN = "mixed"
JUDGED_RUN = "judged"
WORLD = "mixed"
RANKS = 4
AGAIN = (429, 502, 503, 504)
LEASE_SECONDS = 15
ATROPOS = "/compat/atropos/mixed"
SAMPLE = "sample"
"""With what the answers begin that are asked for one by one."""
PATIENCE = 90.0
"""Seconds a client asks again for one answer before it is a refusal."""

Rewards = list[float | None]


@dataclass
class Replicas:
    """Where they listen, as a load balancer knows it: a replica that is gone is still asked now and then."""

    urls: Sequence[str]
    chance: random.Random = field(default_factory=lambda: random.Random(20))
    again: int = 0
    """Attempts that had no answer."""
    refusals: list[str] = field(default_factory=list)

    async def ask(self, client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Any:
        """The answer, after as many attempts as it takes."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while True:
            said = await self._try(client, method, path, body)
            if said is not None and said.is_success:
                return said.json()
            self.again += 1
            if said is not None and said.status_code not in AGAIN:
                return self._refuse(f"{method} {path}: {said.status_code} {said.text[:300]}")
            if asyncio.get_running_loop().time() > end:
                return self._refuse(f"{method} {path}: no answer in {PATIENCE:.0f} s")
            await asyncio.sleep(0.2 + 0.3 * self.chance.random())

    async def try_once(self, client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Any:
        """The answer; None where there was none, which need not mean that nothing was done."""
        said = await self._try(client, method, path, body)
        return said.json() if said is not None and said.is_success else None

    async def _try(self, client: httpx.AsyncClient, method: str, path: str, body: object) -> httpx.Response | None:
        try:
            return await client.request(method, self.chance.choice(self.urls) + path, json=body)
        except httpx.TransportError:
            return None

    def _refuse(self, what: str) -> Any:
        self.refusals.append(what)
        raise Refused(what)


class Refused(Exception):
    pass


@dataclass
class Told:
    """What trainers know when the load ends."""

    rewards: dict[str, Rewards] = field(default_factory=dict)
    """Of each acknowledged group, by its id."""
    changed: list[str] = field(default_factory=list)
    """Groups that were told twice, and not the same."""
    unscored: dict[str, int] = field(default_factory=dict)
    """By reason."""
    samples: int = 0
    """Rewarded by the wires that say no group id."""
    leases: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """Who holds each task, and until when."""
    held_twice: list[str] = field(default_factory=list)
    posted: set[int] = field(default_factory=set)
    """Groups of Atropos that were acknowledged."""
    arrived: list[int] = field(default_factory=list)
    events: set[str] = field(default_factory=set)

    def remember(self, said: dict[str, Any]) -> None:
        for score in said["scores"]:
            if score["outcome"] != "scored":
                reason = str(score.get("reason"))
                self.unscored[reason] = self.unscored.get(reason, 0) + 1
        before = self.rewards.setdefault(said["group_id"], said["rewards"])
        if any(was is not None and was != now for was, now in zip(before, said["rewards"], strict=True)):
            self.changed.append(said["group_id"])
        self.rewards[said["group_id"]] = said["rewards"]


class MixedLoad:
    """Works until it is stopped; every loop then ends with the answer it waits for."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.told = Told()
        self._numbers = itertools.count()
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Errors of a client end it, and are raised at the end."""
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client, asyncio.TaskGroup() as tasks:
            loops: list[tuple[Callable[[httpx.AsyncClient], Awaitable[None]], int]] = [
                (self._train, 3),
                (self._train_judged, 3),
                (self._send_pieces, 2),
                (self._ask_samples, 2),
                (self._ask_rewards, 2),
                (self._post_groups, 1),
                (self._poll_batches, 1),
                (self._tell_events, 1),
            ]
            for work, times in loops:
                for _ in range(times):
                    tasks.create_task(self._repeat(work, client))
            try:
                yield
            finally:
                self._stopping = True

    async def _repeat(self, work: Callable[[httpx.AsyncClient], Awaitable[None]], client: httpx.AsyncClient) -> None:
        while not self._stopping:
            try:
                await work(client)
            except Refused:
                await asyncio.sleep(1)

    async def _train(self, client: httpx.AsyncClient) -> None:
        """Leases, and answers what it leased."""
        ask = {"run": RUN, "batch_size": 3, "lease_seconds": LEASE_SECONDS}
        tasks = (await self.replicas.ask(client, "POST", "/envs/gsm8k/next-batch", ask))["tasks"]
        self._hold(tasks)
        body = {"run": RUN, "groups": [self._answer(task, lease_id=task["lease_id"]) for task in tasks]}
        if tasks:
            for task in tasks:
                self.told.leases.pop(task["task_id"], None)  # from here on it may be stored
            for said in (await self.replicas.ask(client, "POST", "/envs/gsm8k/score", body))["groups"]:
                self.told.remember(said)

    async def _train_judged(self, client: httpx.AsyncClient) -> None:
        ask = {"run": JUDGED_RUN, "batch_size": 1, "lease_seconds": 600, "params": {"preference": FEWER}}
        tasks = (await self.replicas.ask(client, "POST", "/envs/rlaif/next-batch", ask))["tasks"]
        for task in tasks:
            number = next(self._numbers)
            said = [{"text": f"Yes {number}."}, {"text": f"Yes, of course, number {number}."}]
            whole = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": said}
            body = {"run": JUDGED_RUN, "groups": [whole]}
            self.told.remember((await self.replicas.ask(client, "POST", "/envs/rlaif/score", body))["groups"][0])

    async def _send_pieces(self, client: httpx.AsyncClient) -> None:
        """Ranks that hold a piece each send it to whichever replica, and are told of it."""
        task = await self._look(client)
        key = f"piece-{next(self._numbers)}"

        async def send(rank: int) -> Any:
            part = {"key": key, "index": rank, "size": RANKS}
            whole = {"task_id": task, "completions": [{"text": f"{key} #### {rank}"}], "part": part}
            body = {"run": RUN, "groups": [whole]}
            return (await self.replicas.ask(client, "POST", "/envs/gsm8k/score", body))["groups"][0]

        said = await asyncio.gather(*map(send, range(RANKS)))
        groups = {one["group_id"] for one in said}
        if len(groups) == 1 and not any(one["flags"] for one in said):
            rewards = [one["rewards"][0] for one in said]
            if self.told.rewards.setdefault(groups.pop(), rewards) != rewards:
                self.told.changed.append(key)

    async def _ask_samples(self, client: httpx.AsyncClient) -> None:
        """As slime does: each answer of a group in a request of its own."""
        task = await self._look(client)
        path = f"/compat/slime/gsm8k?run={RUN}&group_size=2&gather_seconds=8&reply=object"
        number = next(self._numbers)

        async def ask(place: int) -> None:
            body = {"prompt": "", "response": f"{SAMPLE} {number} #### {place}", "label": {"task_id": task}}
            await self.replicas.ask(client, "POST", path, body)
            self.told.samples += 1

        await asyncio.gather(*map(ask, range(2)))

    async def _ask_rewards(self, client: httpx.AsyncClient) -> None:
        """As OpenRLHF does."""
        task = await self._look(client)
        path = f"/compat/openrlhf/gsm8k/get_reward?run={RUN}&group_size=2&gather_seconds=8"
        number = next(self._numbers)

        async def ask(place: int) -> None:
            body = {"query": [f"prompt {SAMPLE} {number} #### {place}"], "prompts": ["prompt"], "labels": [task]}
            await self.replicas.ask(client, "POST", path, body)
            self.told.samples += 1

        await asyncio.gather(*map(ask, range(2)))

    async def _post_groups(self, client: httpx.AsyncClient) -> None:
        """An environment of Atropos never posts again what may have come."""
        number = next(self._numbers)
        body = group(number, size=4, tokens=16)
        if await self.replicas.try_once(client, "POST", f"{ATROPOS}/scored_data", body) is not None:
            self.told.posted.add(number)
        await asyncio.sleep(0.05)

    async def _poll_batches(self, client: httpx.AsyncClient) -> None:
        batch = await self.replicas.try_once(client, "GET", f"{ATROPOS}/batch")
        found = [] if batch is None or not batch["batch"] else numbers(batch)
        self.told.arrived += found
        await asyncio.sleep(0.02 if found else 0.3)

    async def _tell_events(self, client: httpx.AsyncClient) -> None:
        name = f"e{len(self.told.events)}"
        event = {"id": name, "time": "1312-04-03T09:15:00Z", "text": f"Number {name} was drawn."}
        await self.replicas.ask(client, "POST", f"/worlds/{WORLD}/events", {"events": [event]})
        self.told.events.add(name)
        await asyncio.sleep(0.1)

    async def _look(self, client: httpx.AsyncClient) -> str:
        """Some task, without a lease."""
        ask = {"batch_size": 1, "cursor": self.replicas.chance.randrange(500)}
        task: str = (await self.replicas.ask(client, "POST", "/envs/gsm8k/next-batch", ask))["tasks"][0]["task_id"]
        return task

    def _hold(self, tasks: Sequence[dict[str, Any]]) -> None:
        for task in tasks:
            before = self.told.leases.get(task["task_id"])
            if before is not None and before[1] > datetime.now(UTC):
                self.told.held_twice.append(task["task_id"])
            until = datetime.fromisoformat(task["lease_expires_at"])
            self.told.leases[task["task_id"]] = (task["lease_id"], until)

    def _answer(self, task: dict[str, Any], **more: Any) -> dict[str, Any]:
        number = next(self._numbers)
        completions = [{"text": f"{number} #### {place}"} for place in range(4)]
        return {"task_id": task["task_id"], "completions": completions, **more}


async def prepare(url: str, budget_usd: float) -> None:
    """The runs of the load, of which one has a budget, and its trainer of Atropos."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        (await client.put(f"/runs/{JUDGED_RUN}", json={"budget_usd": budget_usd})).raise_for_status()
        (await client.put(f"/runs/{RUN}", json={})).raise_for_status()
        (await client.post(f"{ATROPOS}/register", json=TRAINER)).raise_for_status()


async def collect_batches(url: str, told: Told) -> None:
    """What the trainer of Atropos was still to get."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        while found := numbers((await client.get(f"{ATROPOS}/batch")).raise_for_status().json()):
            told.arrived += found
