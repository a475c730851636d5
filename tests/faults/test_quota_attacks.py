"""A trainer's key tries to spend more than its quota, over HTTP at two replicas of one database at once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from pydantic import JsonValue

from tests.faults.test_judge_restart import Counting, settings
from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as judge_serving
from tests.support.databases import Postgres
from tests.support.preferring import complete
from tests.support.serving import serving

SECRET: Final = "gw_of-the-settings"
ARENA: Final = "/envs/npc_arena"
GROUPS: Final = 4
"""That the quota of each attempt has room for, by what one may take at most."""
TRIES: Final = 6
ROUNDS: Final = 4
SLIP: Final = 1.5
"""Of a quota that is no cap, so much may be spent: a group may cost more than the mean of those before it."""
WORDS: Final = (
    *("the", "stranger", "rang", "saw", "carried", "bell", "boat", "lantern", "river", "door", "wind", "slowly"),
)
GARBLED: Final = "garble this"


class Judge(Counting):
    """Gives no usable answer about some texts, so that it is asked again."""

    def __call__(self, number: int, received: Received) -> Reply:
        if GARBLED in received.messages[1]["content"]:
            return complete("No.", 1000 + number % 90, 220)
        return super().__call__(number, received)


@dataclass
class Attacker:
    """One key, which asks each replica in turn."""

    clients: tuple[httpx.AsyncClient, ...]
    name: str
    headers: Mapping[str, str]
    asked: int = 0
    texts: int = 0

    def __post_init__(self) -> None:
        self.statuses: Counter[int] = Counter()

    async def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        self.asked += 1
        client = self.clients[self.asked % len(self.clients)]
        answered = await client.request(method, path, headers=dict(self.headers), **sent)
        self.statuses[answered.status_code] += 1
        return answered

    async def lease(self, seconds: float = 600.0, run: str | None = None) -> list[dict[str, Any]]:
        """All tasks that the quota gives it, one after the other."""
        tasks: list[dict[str, Any]] = []
        while len(tasks) < 3 * GROUPS:
            body = {"run": run or self.name, "batch_size": 1, "lease_seconds": seconds}
            answered = await self.ask("POST", f"{ARENA}/next-batch", json=body)
            if answered.status_code != 200:
                break
            tasks += answered.json()["tasks"]
        return tasks

    def say(self, count: int = 2, more: str = "") -> list[dict[str, str]]:
        """Completions that nobody sent before, so that no cache answers for the judge."""
        self.texts += 1
        return [{"text": f"{more}{self.name} {self.texts} rang {n} bells."} for n in range(count)]

    async def score(
        self, task: Mapping[str, Any], completions: list[dict[str, str]] | None = None, **group: JsonValue
    ) -> httpx.Response:
        sent = {"task_id": task["task_id"], "completions": completions or self.say(), **group}
        return await self.ask("POST", f"{ARENA}/score", json={"groups": [sent], "run": self.name})


Attack = Callable[[Attacker, Attacker], Awaitable[object]]
"""By a key, with another that has no quota."""


async def replay(one: Attacker, _other: Attacker) -> None:
    tasks = await one.lease()
    await asyncio.gather(*(one.score(task, lease_id=task["lease_id"]) for task in tasks for _ in range(TRIES)))


async def repeat(one: Attacker, _other: Attacker) -> None:
    sent = [(task, one.say()) for task in await one.lease()] * TRIES
    await asyncio.gather(*(one.score(task, said, lease_id=task["lease_id"]) for task, said in sent))


async def send_pieces(one: Attacker, _other: Attacker) -> None:
    """Each piece twice, some under keys of their own, and some that close the group at once."""
    kinds: dict[str, dict[str, JsonValue]] = {"a": {}, "b": {}, "c": {"deadline_seconds": 0}}
    sent: list[tuple[dict[str, Any], list[dict[str, str]], dict[str, JsonValue]]] = [
        (task, one.say(1), {"key": key, "index": place, "size": 8, **more})
        for task in await one.lease()
        for key, more in kinds.items()
        for place in range(8)
    ]
    parts = [one.score(task, said, lease_id=task["lease_id"], part=part) for task, said, part in sent * 2]
    await asyncio.gather(*parts)


async def send_single_samples(one: Attacker, _other: Attacker) -> None:
    tasks = await one.lease()
    sent = [one.score(task, one.say(1), lease_id=task["lease_id"]) for task in tasks for _ in range(TRIES)]
    await asyncio.gather(*sent)


async def use_foreign_leases(one: Attacker, other: Attacker) -> None:
    tasks = await other.lease(run=one.name)
    await asyncio.gather(*(one.score(task, lease_id=task["lease_id"]) for task in tasks for _ in range(TRIES)))


async def answer_late(one: Attacker, _other: Attacker) -> None:
    """Leases that end give their room to others, and are answered all at last."""
    tasks = []
    for _ in range(3):
        tasks += await one.lease(seconds=1.0)
        await asyncio.sleep(1.1)
    await asyncio.gather(*(one.score(task, lease_id=task["lease_id"]) for task in tasks))


async def rescore(one: Attacker, _other: Attacker) -> None:
    scored = [await one.score(task, lease_id=task["lease_id"]) for task in await one.lease()]
    groups = [group["group_id"] for answered in scored for group in answered.json().get("groups", ())]
    asked = [{"relative_weight": n / 20, "mode": mode} for n in range(TRIES) for mode in ("pairwise", "pointwise")]
    sent = [one.ask("POST", f"/groups/{name}/rescore", json=body) for name in groups for body in asked]
    await asyncio.gather(*sent)


async def try_drafts(one: Attacker, _other: Attacker) -> None:
    draft = {"character": "hob_tarrant", "line": "Good morning! Is the water high today?"}
    bodies = [{"draft": draft, "completions": one.say()} for _ in range(GROUPS * TRIES)]
    await asyncio.gather(*(one.ask("POST", f"{ARENA}/try", json=body) for body in bodies))


async def fail_judges(one: Attacker, _other: Attacker) -> None:
    sent = [(task, one.say(more=GARBLED)) for task in await one.lease()]
    for _ in range(TRIES):
        await asyncio.gather(*(one.score(task, said, lease_id=task["lease_id"]) for task, said in sent))


async def send_large_groups(one: Attacker, _other: Attacker) -> None:
    chance = random.Random(one.name)
    long = " ".join(chance.choice(WORDS) for _ in range(120))
    sent = [(task, one.say(32, more=f"{long} ")) for task in await one.lease()]
    await asyncio.gather(*(one.score(task, said, lease_id=task["lease_id"]) for task, said in sent))


async def name_no_lease(one: Attacker, other: Attacker) -> None:
    tasks = await other.lease(run=f"{one.name}-file")
    await asyncio.gather(*(one.score(task) for task in tasks for _ in range(TRIES)))


async def ask_for_rewards(one: Attacker, other: Attacker) -> None:
    """As slime does: one sample a request."""
    tasks = await other.lease(run=f"{one.name}-file")
    sent = []
    for task in tasks * TRIES:
        body = {"prompt": "q", "response": one.say(1)[0]["text"], "label": task["task_id"]}
        sent.append(one.ask("POST", f"/compat/slime/npc_arena?run={one.name}&group_size=2&gather_seconds=1", json=body))
    await asyncio.gather(*sent)


LEASED: Final[tuple[Attack, ...]] = (
    replay, repeat, send_pieces, send_single_samples, use_foreign_leases, answer_late, rescore, try_drafts,
    fail_judges, send_large_groups,
)  # fmt: skip
ADMITTED: Final[tuple[Attack, ...]] = (name_no_lease, ask_for_rewards)
"""Runs without leases, which are scored to the end of the day unless the quota is a cap."""


@dataclass(frozen=True)
class Outcome:
    attack: str
    hard: bool
    quota: float
    spent: float
    over: float
    """As `GET /quotas` shows it."""
    held: float
    statuses: Mapping[int, int]


@contextmanager
def serving_two(folder: Path, url: str, judge_url: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    shared = {**judge_url, "ATROPOS_ENVS_DATABASE_URL": url, "ATROPOS_ENVS_API_KEY": SECRET}
    folders = [folder / name for name in ("first", "second")]
    for one in folders:
        one.mkdir()
    with serving(folders[0], settings=shared) as first, serving(folders[1], settings=shared) as second:
        yield first.url, second.url


@asynccontextmanager
async def connecting(urls: tuple[str, ...]) -> AsyncIterator[tuple[httpx.AsyncClient, ...]]:
    limits = httpx.Limits(max_connections=200)
    clients = [httpx.AsyncClient(base_url=url, timeout=300, limits=limits) for url in urls]
    try:
        yield tuple(clients)
    finally:
        for client in clients:
            await client.aclose()


async def make_key(clients: tuple[httpx.AsyncClient, ...], name: str, **quotas: JsonValue) -> Attacker:
    body = {"name": name, "scopes": ["read", "train", "author"], "quotas": quotas}
    made = await clients[0].post("/admin/keys", json=body, headers={"Authorization": f"Bearer {SECRET}"})
    attacker = Attacker(clients, name, {"Authorization": f"Bearer {made.raise_for_status().json()['secret']}"})
    for client in clients:  # a replica knows a new key within a second
        while (await client.get("/quotas", headers=dict(attacker.headers))).status_code == 401:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return attacker


async def measure_bound(clients: tuple[httpx.AsyncClient, ...]) -> float:
    """What is reserved for a task of a new run."""
    attacker = await make_key(clients, "bound", judge_usd_per_day=1000.0)
    await attacker.ask("POST", f"{ARENA}/next-batch", json={"run": "bound", "batch_size": 1})
    held: float = (await attacker.ask("GET", "/quotas")).json()["usage"]["held_usd"]
    return held


async def carry_out(urls: tuple[str, ...]) -> list[Outcome]:
    outcomes = []
    async with connecting(urls) as clients:
        bound = await measure_bound(clients)
        for attack in (*LEASED, *ADMITTED):
            for hard in (False, True):
                name = f"{attack.__name__.replace('_', '-')}-{'hard' if hard else 'soft'}"
                quota = GROUPS * bound * (2 if hard else 1)
                one = await make_key(clients, name, judge_usd_per_day=quota, hard=hard)
                other = await make_key(clients, f"{name}-other")
                for _ in range(ROUNDS):
                    await attack(one, other)
                told = (await one.ask("GET", "/quotas")).json()
                usage, (line,) = told["usage"], told["quotas"]
                spent, held, over = usage["judge_usd"], usage["held_usd"], line.get("over", 0.0)
                outcomes.append(Outcome(attack.__name__, hard, quota, spent, over, held, dict(one.statuses)))
    return outcomes


def attack_all(folder: Path, url: str) -> list[Outcome]:
    with judge_serving(Judge()) as judge:
        # What is read costs nothing, so that a group takes much of what it may take at most.
        chosen = settings(folder, judge, max_concurrency=64, input_price_per_million=0.0)
        with serving_two(folder, url, chosen) as urls:
            return asyncio.run(carry_out(urls))


def show(outcomes: list[Outcome]) -> str:
    lines = [f"{'attempt':22} {'quota':9} {'USD':>7} {'spent':>7} {'share':>6} {'held':>7}  answers"]
    for one in outcomes:
        kind = "cap" if one.hard else "soft"
        told = ", ".join(f"{count} x {status}" for status, count in sorted(one.statuses.items()))
        share = f"{one.spent / one.quota:.0%}"
        lines.append(f"{one.attack:22} {kind:9} {one.quota:7.3f} {one.spent:7.3f} {share:>6} {one.held:7.3f}  {told}")
    return "\n".join(lines)


@pytest.mark.slow
def test_no_attempt_spends_more_than_a_cap_and_only_admitted_runs_more_than_a_quota(
    tmp_path: Path, postgres: Postgres
) -> None:
    outcomes = attack_all(tmp_path, postgres.migrated())
    known = {attack.__name__ for attack in (*ADMITTED, send_large_groups)}
    passed = {(one.attack, one.hard) for one in outcomes if one.spent > one.quota * (1 if one.hard else SLIP)}
    spent_something = {(one.attack, one.hard) for one in outcomes if one.spent > 0}
    assert passed <= {(name, False) for name in known}, show(outcomes)
    # A cap has no room for any group of many long replies.
    assert len(spent_something | {("send_large_groups", True)}) == len(outcomes), show(outcomes)
    assert passed <= {(one.attack, one.hard) for one in outcomes if one.over > 0}, show(outcomes)
    assert {(name.__name__, False) for name in ADMITTED} <= passed, show(outcomes)
