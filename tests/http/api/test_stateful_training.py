"""A model of what trainers and labellers may rely on, and two replicas that are asked in any order whether it holds.

Each example is a run of its own: tasks are leased, answered, answered again, answered too late and in pieces, replies
are labelled, time passes, replicas stop and start. At its end the store is compared with everything that was told."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.support.playground import WAIT, World, gateway
from tests.support.tiers import examples, is_thorough

T = TypeVar("T")

TASKS = 4
"""Of the environment's train split, which is endless: epoch follows epoch."""
GATHER_SECONDS = 60.0
"""After its first piece a group is scored without those that are missing."""
LABELLERS = ("ada", "bob")
NUMBERS = st.lists(st.sampled_from((0.0, 0.25, 0.5, 1.0)), min_size=1, max_size=3)
PLACES = st.integers(0, 1_000)
"""Which of what there is, modulo how many there are."""


class Replica:
    """A gateway that lives in a task of its own, so that it starts and stops whenever it is told to."""

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._url = url
        self._stopping = asyncio.Event()
        self._started: asyncio.Future[httpx.AsyncClient] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())

    async def client(self) -> httpx.AsyncClient:
        await asyncio.wait((self._task, self._started), return_when=asyncio.FIRST_COMPLETED)
        return self._started.result() if self._started.done() else self._task.result()  # type: ignore[return-value]

    async def stop(self) -> None:
        self._stopping.set()
        await self._task

    async def _live(self) -> None:
        async with gateway(self._world, self._url) as client:
            self._started.set_result(client)
            await self._stopping.wait()


@dataclass
class Service:
    """Replicas on one database, and the present that they share."""

    url: str
    count: int
    world: World = field(default_factory=lambda: World(broken=False))
    runs: "itertools.count[int]" = field(default_factory=itertools.count)
    replicas: list[Replica] = field(default_factory=list)

    async def start(self) -> None:
        self.replicas = [Replica(self.world, self.url) for _ in range(self.count)]

    async def stop(self) -> None:
        for replica in self.replicas:
            await replica.stop()

    async def restart(self, place: int) -> None:
        await self.replicas[place % self.count].stop()
        self.replicas[place % self.count] = Replica(self.world, self.url)

    async def post(self, place: int, path: str, body: object) -> Any:
        return json.loads(await self.ask(place, "POST", path, json=body))

    async def get(self, place: int, path: str, **query: Any) -> Any:
        return json.loads(await self.ask(place, "GET", path, params=query))

    async def export(self, place: int, **query: Any) -> list[Any]:
        return [json.loads(line) for line in (await self.ask(place, "GET", "/export", params=query)).splitlines()]

    async def ask(self, place: int, method: str, path: str, **request: Any) -> str:
        """Through one of the replicas."""
        client = await self.replicas[place % self.count].client()
        reply = await client.request(method, path, timeout=WAIT, **request)
        assert reply.is_success, f"{reply.status_code} {reply.text}"
        return reply.text


@dataclass
class HeldLease:
    task_id: str
    lease_id: str
    expires: datetime
    answered: bool = False


@dataclass(frozen=True)
class Answered:
    """A request for one group, and what it was told."""

    body: Mapping[str, Any]
    told: Mapping[str, Any]


@dataclass
class Gathering:
    """A group whose pieces, of one completion each, are under way."""

    lease: HeldLease
    key: str
    texts: Sequence[str]
    opened: datetime | None = None
    sent: dict[int, str] = field(default_factory=dict)
    """Group ids, by piece."""
    closed: bool = False
    """Its time was over before it was whole."""

    def is_over(self, now: datetime) -> bool:
        if self.opened is None or self.closed or len(self.sent) == len(self.texts):
            return False
        return now >= self.opened + timedelta(seconds=GATHER_SECONDS)


class Training(RuleBasedStateMachine):
    runner: ClassVar[asyncio.Runner]
    service: ClassVar[Service]

    def __init__(self) -> None:
        super().__init__()
        self.run = ""
        self.leases: list[HeldLease] = []
        self.answered: list[Answered] = []
        self.gathering: list[Gathering] = []
        self.rewards: dict[str, list[float]] = {}
        """Of every group that was told as scored."""
        self.items: dict[str, Mapping[str, Any]] = {}
        self.labels: dict[str, str] = {}
        """The reply that each label chose."""
        self.texts = itertools.count()

    @initialize()
    def begin(self) -> None:
        self.run = f"run-{next(self.service.runs)}"
        self._do(self.service.ask(0, "PUT", f"/runs/{self.run}", json={}))

    @rule(place=PLACES, count=st.integers(1, 3), seconds=st.sampled_from((30, 90)))
    def lease(self, place: int, count: int, seconds: int) -> None:
        """A task that somebody holds goes to nobody else; what is free is handed out."""
        held = {one.task_id for one in self.leases if self._is_live(one)}
        body = {"run": self.run, "batch_size": count, "lease_seconds": seconds}
        tasks = self._do(self.service.post(place, "/envs/toy/next-batch", body))["tasks"]
        ids = [task["task_id"] for task in tasks]
        assert (len(ids), len(set(ids)), held & set(ids)) == (min(count, TASKS - len(held)), len(ids), set())
        for task in tasks:
            expires = datetime.fromisoformat(task["lease_expires_at"])
            assert expires == self._now + timedelta(seconds=seconds)
            self.leases.append(HeldLease(task["task_id"], task["lease_id"], expires))

    @precondition(lambda self: self.leases)
    @rule(place=PLACES, which=PLACES, numbers=NUMBERS)
    def answer(self, place: int, which: int, numbers: list[float]) -> None:
        """Late is what was answered before, or whose time is over; it is scored all the same."""
        lease = self.leases[which % len(self.leases)]
        texts = [self._word(number) for number in numbers]
        group = {"task_id": lease.task_id, "lease_id": lease.lease_id, "completions": [{"text": one} for one in texts]}
        body = {"run": self.run, "groups": [group]}
        (told,) = self._do(self.service.post(place, "/envs/toy/score", body))["groups"]
        flags = [] if self._is_live(lease) else ["late"]
        assert (told["outcome"], told["rewards"], told["flags"]) == ("scored", numbers, flags)
        lease.answered = True
        self._remember(told)
        self.answered.append(Answered(body, told))

    @precondition(lambda self: self.answered)
    @rule(place=PLACES, which=PLACES)
    def answer_again(self, place: int, which: int) -> None:
        before = self.answered[which % len(self.answered)]
        (told,) = self._do(self.service.post(place, "/envs/toy/score", before.body))["groups"]
        assert told == before.told

    @precondition(lambda self: any(map(self._is_live, self.leases)))
    @rule(which=PLACES, numbers=st.lists(st.sampled_from((0.0, 0.5, 1.0)), min_size=2, max_size=3))
    def begin_pieces(self, which: int, numbers: list[float]) -> None:
        live = [one for one in self.leases if self._is_live(one)]
        texts = [self._word(number) for number in numbers]
        self.gathering.append(Gathering(live[which % len(live)], f"key-{next(self.texts)}", texts))

    @precondition(lambda self: self.gathering)
    @rule(place=PLACES, which=PLACES, piece=PLACES)
    def send_piece(self, place: int, which: int, piece: int) -> None:
        """A first or a repeated one. Pieces that came in time are one group; the last of them is told its reward."""
        whole = self.gathering[which % len(self.gathering)]
        index = piece % len(whole.texts)
        if whole.closed:
            return
        whole.opened = whole.opened or self._now
        told = self._send(place, whole, index)
        assert set(whole.sent.values()) <= {told["group_id"]}
        whole.sent[index] = told["group_id"]
        if len(whole.sent) == len(whole.texts):
            self._finish(place, whole)

    @rule(seconds=st.sampled_from((1, 20, 61, -15)))
    def move_clock(self, seconds: int) -> None:
        """Also back, as a clock that is set right does. A group whose time is over is scored before anything else is
        asked: what its lease is worth afterwards would be a race otherwise."""
        self.service.world.moment += timedelta(seconds=seconds)
        self._close_pieces()

    @rule(place=PLACES)
    def restart(self, place: int) -> None:
        self._do(self.service.restart(place))

    @rule(place=PLACES, numbers=st.tuples(*[st.sampled_from((0.1, 0.4, 0.8))] * 2))
    def score_judged(self, place: int, numbers: tuple[float, float]) -> None:
        """Without a lease, for people to label."""
        look = self._do(self.service.post(place, "/envs/arena/next-batch", {"batch_size": 1, "cursor": 0}))
        texts = [self._word(number) for number in numbers]
        group = {"task_id": look["tasks"][0]["task_id"], "completions": [{"text": one} for one in texts]}
        body = {"run": self.run, "groups": [group]}
        (told,) = self._do(self.service.post(place, "/envs/arena/score", body))["groups"]
        assert (told["outcome"], len(told["rewards"])) == ("scored", 2)
        self._remember(told)

    @precondition(lambda self: self.rewards)
    @rule(place=PLACES, labeller=st.sampled_from(LABELLERS))
    def hold_item(self, place: int, labeller: str) -> None:
        """What a labeller holds comes again; it is nobody else's meanwhile."""
        body = {"labeller": labeller, "run": self.run, "lease_seconds": 86_400}
        item = self._do(self.service.post(place, "/labels/next", body))["item"]
        before = self.items.get(labeller)
        assert before is None or item == {**before, "expires_at": item["expires_at"]}
        others = {one["lease_id"] for name, one in self.items.items() if name != labeller}
        assert item is None or item["lease_id"] not in others
        if item is not None:
            self.items[labeller] = item

    @rule(place=PLACES, labeller=st.sampled_from(LABELLERS))
    def label(self, place: int, labeller: str) -> None:
        """Sent twice, it is one label. What the queue drew is chance, so no precondition may depend on it."""
        if (item := self.items.pop(labeller, None)) is None:
            return
        better, worse = (reply["rollout_id"] for reply in item["replies"])
        body = {"labeller": labeller, "lease_id": item["lease_id"], "pair": {"better": better, "worse": worse}}
        path = f"/groups/{item['group_id']}/labels"
        told = [self._do(self.service.post(place + more, path, body)) for more in range(2)]
        assert told[0]["label_id"] == told[1]["label_id"]
        self.labels[told[0]["label_id"]] = better

    def teardown(self) -> None:
        """Every replica has exactly what was told, and counts it as that."""
        if not self.run:
            return
        self.service.world.moment += timedelta(hours=1)  # more than clocks were set back
        self._close_pieces()
        for place in range(self.service.count):
            listed = self._do(self.service.get(place, "/groups", run=self.run, limit=500))["groups"]
            stored = {group["group_id"]: group["rewards"] for group in listed}
            assert (stored, len(listed)) == (self.rewards, len(self.rewards))
            pairs = self._do(self.service.export(place, shape="labels", run=self.run))
            assert {one["label_id"]: one["chosen_id"] for one in pairs} == self.labels
            assert len(pairs) == len(self.labels)

    def _close_pieces(self) -> None:
        """What was begun and is not whole is scored as it is once its time is over."""
        for whole in self.gathering:
            if whole.is_over(self._now):
                self._finish(0, whole)
                whole.closed = True

    def _finish(self, place: int, whole: Gathering) -> None:
        (group_id,) = set(whole.sent.values())
        read = self.service.get(place, "/groups", id=group_id, wait=WAIT)
        (told,) = self._do(read)["groups"]
        rewards = [float(whole.texts[index].split()[0]) for index in sorted(whole.sent)]
        partial = ["partial_group"] if len(whole.sent) < len(whole.texts) else []
        assert (told["outcome"], told["rewards"], set(told["flags"]) - {"late"}) == ("scored", rewards, set(partial))
        if "late" not in told["flags"]:
            whole.lease.answered = True
        self._remember(told)

    def _send(self, place: int, whole: Gathering, index: int) -> Any:
        group = {
            "task_id": whole.lease.task_id,
            "lease_id": whole.lease.lease_id,
            "completions": [{"text": whole.texts[index]}],
            "part": {"key": whole.key, "index": index, "size": len(whole.texts)},
        }
        body = {"run": self.run, "groups": [group], "wait_seconds": 0}
        (told,) = self._do(self.service.post(place, "/envs/toy/score", body))["groups"]
        return told

    def _remember(self, told: Mapping[str, Any]) -> None:
        """What was told once is never told otherwise."""
        assert self.rewards.setdefault(told["group_id"], told["rewards"]) == told["rewards"]

    def _word(self, number: float) -> str:
        """No two texts are equal."""
        return f"{number}" + " " * next(self.texts)

    def _is_live(self, lease: HeldLease) -> bool:
        return not lease.answered and lease.expires > self._now

    @property
    def _now(self) -> datetime:
        return self.service.world.moment

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)


@contextlib.contextmanager
def replicas(url: str) -> Iterator[type[Training]]:
    """The model against so many replicas as the database takes."""
    with asyncio.Runner() as runner:
        service = Service(url, 1 if url.startswith("sqlite") else 2)
        runner.run(service.start())
        try:
            yield type("Training", (Training,), {"runner": runner, "service": service})
        finally:
            runner.run(service.stop())


@pytest.mark.slow
def test_whatever_trainers_and_labellers_do_holds_what_they_were_told(store_url: str) -> None:
    phases = (Phase.generate, Phase.shrink) if is_thorough() else (Phase.generate,)  # to shrink takes minutes
    few = settings(max_examples=examples(60, fewest=10), stateful_step_count=40, deadline=None, phases=phases)
    with replicas(store_url) as machine:
        run_state_machine_as_test(machine, settings=settings(few, suppress_health_check=list(HealthCheck)))
