"""Replicas are replaced and taken away while trainers ask for rewards with the requests that they make: OpenRLHF's,
slime's and Atropos' as `tests/support` states them, and TRL's by the page that users copy. Nobody notices."""

import asyncio
import contextlib
import itertools
import logging
import os
import runpy
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest

from tests.support.atropos import ENVIRONMENT, TRAINER, group, numbers
from tests.support.chat_server import ChatServer
from tests.support.chat_server import serving as judge_serving
from tests.support.databases import Postgres
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judge, OpenRlhf, Slime, write_judge
from tests.support.serving import ROOT, Served, serving

PIECE = 64 * 1024


class Balancer:
    """Each new connection goes to the next port. One that is left out keeps the connections that it has."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.failed = 0
        """Connections that the chosen port refused or broke off; so are they to the client."""
        self.url = ""
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[Any]] = set()
        """A loop forgets a task whose two ends are both half closed."""

    def add(self, port: int) -> None:
        self._loop.call_soon_threadsafe(self.ports.append, port)

    def leave_out(self, port: int) -> None:
        self._loop.call_soon_threadsafe(self.ports.remove, port)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        server = self._run(asyncio.start_server(self._connect, "127.0.0.1", 0, limit=PIECE))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            self._run(self._end(server))
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        while self._connections:
            for task in self._connections:
                task.cancel()
            await asyncio.wait(self._connections)
        await asyncio.sleep(0.05)  # transports close in passes of their own

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.suppress(asyncio.CancelledError):
            try:
                self._next += 1
                port = self.ports[self._next % len(self.ports)]
                replica, to_replica = await asyncio.open_connection("127.0.0.1", port, limit=PIECE)
            except (OSError, ZeroDivisionError):  # of no ports at all
                self.failed += 1
                return to_client.transport.abort()
            try:
                await asyncio.gather(_pass_on(client, to_replica), _pass_on(replica, to_client))
            except OSError:
                self.failed += 1
            finally:
                to_client.transport.abort()
                to_replica.transport.abort()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        target.write(piece)
        await target.drain()
    target.write_eof()


@dataclass(frozen=True)
class Stop:
    """How a replica ended. Killed ones did not within the grace period."""

    seconds: float
    killed: bool


@dataclass
class Replicas:
    """One after another starts, gets ready and is balanced to; whoever leaves is left out by the balancer, goes on for
    `leaving_seconds` (preStop) and is told to stop, and is killed `grace_seconds` later. Several may be leaving."""

    balancer: Balancer
    folder: Path
    settings: Mapping[str, str]
    leaving_seconds: float
    grace_seconds: float
    stops: list[Stop] = field(default_factory=list)
    _running: list[tuple[Served, contextlib.ExitStack]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _stopping: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    @property
    def urls(self) -> list[str]:
        return [served.url for served, _ in self._running]

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            folder = self.folder / f"replica-{next(self._numbers)}"
            folder.mkdir()
            stack = contextlib.ExitStack()
            served = stack.enter_context(serving(folder, settings=self.settings))
            self._running.append((served, stack))
            self.balancer.add(_port_of(served))

    def stop_oldest(self) -> None:
        """Begins it."""
        served, stack = self._running.pop(0)
        self.balancer.leave_out(_port_of(served))
        self._stopping.submit(self._stop, served, stack)

    def close(self) -> None:
        """Waits for those that are leaving, and ends the others."""
        self._stopping.shutdown()
        for _, stack in self._running:
            stack.close()

    def _stop(self, served: Served, stack: contextlib.ExitStack) -> None:
        time.sleep(self.leaving_seconds)
        began = time.monotonic()
        served.process.terminate()
        try:
            served.process.wait(self.grace_seconds)
            killed = False
        except subprocess.TimeoutExpired:
            served.kill()
            killed = True
        self.stops.append(Stop(time.monotonic() - began, killed))
        stack.close()


def _port_of(served: Served) -> int:
    return urlsplit(served.url).port or 0


@contextlib.contextmanager
def rolling(
    folder: Path, settings: Mapping[str, str], count: int, *, leaving_seconds: float, grace_seconds: float
) -> Iterator[Replicas]:
    balancer = Balancer()
    with balancer.running():
        replicas = Replicas(balancer, folder, settings, leaving_seconds, grace_seconds)
        try:
            replicas.start(count)
            yield replicas
        finally:
            replicas.close()


class Training:
    """A trainer in a thread of its own: one step after the other until it is told to end."""

    def __init__(self, name: str, step: Callable[[int], Any]) -> None:
        self.name = name
        self.steps: list[Any] = []
        self.error: BaseException | None = None
        self._step = step
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._train, name=name)

    def start(self) -> None:
        self._thread.start()

    def go_on(self, steps: int, seconds: float) -> None:
        """Waits until so many more are done. TimeoutError when they are not."""
        until, end = len(self.steps) + steps, time.monotonic() + seconds
        while len(self.steps) < until and self.error is None:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} made no {steps} steps within {seconds} s")
            time.sleep(0.02)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _train(self) -> None:
        try:
            while not self._ending.is_set():
                self.steps.append(self._step(len(self.steps)))
        except BaseException as error:
            self.error = error


@contextlib.contextmanager
def training(*trainings: Training) -> Iterator[None]:
    for one in trainings:
        one.start()
    try:
        yield
    finally:
        with ThreadPoolExecutor(len(trainings)) as ends:
            list(ends.map(Training.end, trainings))


pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

JUDGE_SECONDS = float(os.environ.get("ROLLING_JUDGE_SECONDS", "3"))
SHUTDOWN_SECONDS = 175
LEAVING_SECONDS = min(10.0, JUDGE_SECONDS / 2)
PATIENCE_SECONDS = 120 + 10 * JUDGE_SECONDS
REPLICAS = 4
GROUPS_A_STEP = 2
PROMPT = "<|im_start|>user\nMay I?<|im_end|>\n<|im_start|>assistant\n"
ANSWERS = ("yes.", "yes, of course.", "yes, of course, why not?", "yes, of course, why not, if you like it so much?")

Told = dict[tuple[str, str], float | None]
"""Rewards by task and text."""
Change = Callable[[Replicas, Sequence[Training]], None]


def tasks_of(url: str, count: int = 256) -> list[str]:
    ask = {"batch_size": count, "cursor": 0, "params": {"preference": FEWER}}
    batch = httpx.post(f"{url}/envs/rlaif/next-batch", json=ask, timeout=60).raise_for_status().json()
    return [task["task_id"] for task in batch["tasks"]]


def samples_of(name: str, tasks: Sequence[str], step: int) -> list[tuple[str, str]]:
    """Tasks with texts. No two trainers say the same, so that no judgement is known already."""
    own = tasks[step * GROUPS_A_STEP : (step + 1) * GROUPS_A_STEP]
    return [(task, f"{name}: {answer}") for task in own for answer in ANSWERS]


class OpenRlhfSteps:
    """Its rollouts end one after the other, and each asks for itself."""

    def __init__(self, url: str, tasks: Sequence[str]) -> None:
        self._client = OpenRlhf(f"{url}/compat/openrlhf/rlaif/get_reward?run=openrlhf&group_size={len(ANSWERS)}")
        self._tasks = tasks
        self.failures = self._client.failures

    def __call__(self, step: int) -> Told:
        samples = samples_of("openrlhf", self._tasks, step)

        async def ask(place: int, task: str, text: str) -> Any:
            await asyncio.sleep(place * JUDGE_SECONDS / 10)
            return await self._client.rewards([PROMPT + text], [PROMPT], [task])

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*(ask(place, *sample) for place, sample in enumerate(samples)))

        return dict(zip(samples, (one["rewards"][0] for one in asyncio.run(ask_all())), strict=True))


class SlimeSteps:
    """One pool of connections for as long as it trains."""

    def __init__(self, url: str, tasks: Sequence[str]) -> None:
        self._client = Slime(f"{url}/compat/slime/rlaif?run=slime&group_size={len(ANSWERS)}")
        self._tasks = tasks
        self.failures = self._client.failures
        self._runner = asyncio.Runner()
        self._session = self._runner.run(self._open())

    async def _open(self) -> aiohttp.ClientSession:
        return self._client.session()

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.close()

    def __call__(self, step: int) -> Told:
        samples = samples_of("slime", self._tasks, step)
        asked = self._client.ask(self._session, [(text, {"task_id": task}) for task, text in samples])
        return dict(zip(samples, self._runner.run(asked), strict=True))


class TrlSteps:
    """The page's reward function. What else the trainer does reaches no gateway."""

    def __init__(self, url: str, tasks: Sequence[str], page: dict[str, Any]) -> None:
        self.failures: list[str] = []
        self._tasks = tasks
        self.gateway: httpx.Client = page["connect"](url)
        self.gateway.event_hooks = {"request": [self._note_request], "response": [self._note_response]}
        self._reward = page["gateway_reward"](self.gateway, "rlaif", "trl", "policy")

    def _note_request(self, _: httpx.Request) -> None:
        self.failures.append("no answer")

    def _note_response(self, response: httpx.Response) -> None:
        self.failures[-1:] = [] if response.status_code == 200 else [str(response.status_code)]

    def __call__(self, step: int) -> Told:
        samples = samples_of("trl", self._tasks, step)
        rewards = self._reward(
            completions=[text for _, text in samples],
            completion_ids=[[] for _ in samples],
            task_id=[task for task, _ in samples],
            purpose=["train"] * len(samples),
            trainer_state=SimpleNamespace(global_step=step),
            log_extra=lambda name, values: None,
            log_metric=lambda name, value: None,
        )
        return dict(zip(samples, rewards, strict=True))


class AtroposSteps:
    """An environment and a trainer of Atropos 0.4.0: a connection for each request, and at least three tries."""

    def __init__(self, url: str) -> None:
        self.failures: list[str] = []
        self._url = f"{url}/compat/atropos/rolled"
        self._ask("POST", "/register", TRAINER)
        self._ask("GET", "/batch")
        self._env_id = self._ask("POST", "/register-env", ENVIRONMENT)["env_id"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        while True:
            try:
                return httpx.request(method, self._url + path, json=body, timeout=10).raise_for_status().json()
            except httpx.HTTPError as error:
                self.failures.append(type(error).__name__)
                if len(self.failures) == 3:
                    raise

    def __call__(self, step: int) -> list[int]:
        """The groups of the step's batch."""
        for number in (2 * step + 1, 2 * step + 2):
            self._ask("POST", "/scored_data", group(number, env_id=self._env_id))
            self._ask("GET", "/status-env", {"env_id": self._env_id})
        while not (batch := numbers(self._ask("GET", "/batch"))):
            time.sleep(0.1)
        time.sleep(JUDGE_SECONDS / 10)
        return batch


@contextmanager
def asking(url: str, page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    tasks = tasks_of(url)
    slime, trl = SlimeSteps(url, tasks), TrlSteps(url, tasks, page)
    try:
        yield {"openrlhf": OpenRlhfSteps(url, tasks), "slime": slime, "trl": trl, "atropos": AtroposSteps(url)}
    finally:
        slime.close()
        trl.gateway.close()


@contextmanager
def judged_slowly(
    folder: Path, postgres: Postgres, shutdown_seconds: int, count: int
) -> Iterator[tuple[Replicas, ChatServer]]:
    with judge_serving(Judge(seconds=JUDGE_SECONDS)) as server:
        settings = {
            "ATROPOS_ENVS_DATABASE_URL": postgres.migrated(),
            "ATROPOS_ENVS_SHUTDOWN_SECONDS": str(shutdown_seconds),
            "ATROPOS_ENVS_SETTINGS": str(write_judge(folder, server.url, deadline_seconds=4 * JUDGE_SECONDS + 20)),
        }
        grace = shutdown_seconds + 15.0
        with rolling(folder, settings, count, leaving_seconds=LEAVING_SECONDS, grace_seconds=grace) as replicas:
            yield replicas, server


def score_still(folder: Path, told: Told) -> Told:
    """What one service pays whose judge answers at once and that nobody stops."""
    samples: dict[str, list[str]] = {}
    for task, text in told:
        samples.setdefault(f"{text.partition(':')[0]} {task}", []).append(text)
    with judge_serving(Judge()) as server:
        settings = {"ATROPOS_ENVS_SETTINGS": str(write_judge(folder, server.url))}
        with serving(folder, settings=settings) as gateway:
            tasks_of(gateway.url)
            groups: list[dict[str, Any]] = [
                {"task_id": name.partition(" ")[2], "completions": [{"text": text} for text in texts]}
                for name, texts in samples.items()
            ]
            asked = {"groups": groups, "run": "still"}
            reply = httpx.post(f"{gateway.url}/score", json=asked, timeout=300).raise_for_status().json()
    rewards = [reward for scored in reply["groups"] for reward in scored["rewards"]]
    ids = [(one["task_id"], sample["text"]) for one in groups for sample in one["completions"]]
    return dict(zip(ids, rewards, strict=True))


TRAINING = {
    "torch": (),
    "transformers": ("AutoTokenizer",),
    "trl": ("GRPOConfig", "GRPOTrainer", "ModelConfig", "get_peft_config"),
}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The example for TRL without what it trains with, which does not ask for rewards."""
    for name, parts in TRAINING.items():
        module = ModuleType(name)
        vars(module).update(dict.fromkeys(parts, object))
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(ROOT / "examples" / "trl_grpo.py"))


def replace_one(replicas: Replicas, trainings: Sequence[Training]) -> None:
    replicas.start()
    replicas.stop_oldest()
    for one in trainings:
        one.go_on(1, PATIENCE_SECONDS)


def roll(replicas: Replicas, trainings: Sequence[Training]) -> None:
    for _ in range(REPLICAS):
        replace_one(replicas, trainings)


def scale_in(replicas: Replicas, trainings: Sequence[Training]) -> None:
    for leaving in (2, 1):
        for _ in range(leaving):
            replicas.stop_oldest()
        for one in trainings:
            one.go_on(2, PATIENCE_SECONDS)


@dataclass(frozen=True)
class Seen:
    errors: list[BaseException | None]
    retries: dict[str, Counter[str]]
    """By trainer."""
    told: Told
    batches: list[list[int]]
    """Of Atropos' trainer."""
    stored: Counter[tuple[str, tuple[str, ...], int]]
    asked: int
    """How often the judge was."""
    killed: list[bool]
    """Of each replica that was stopped, whether its grace was over."""

    @property
    def groups(self) -> int:
        return len(self.told) // len(ANSWERS)


def watch(
    change: Change, folder: Path, postgres: Postgres, page: dict[str, Any], shutdown_seconds: int, count: int
) -> Seen:
    """Trainers ask while the replicas change."""
    with (
        judged_slowly(folder, postgres, shutdown_seconds, count) as (replicas, judge),
        asking(replicas.balancer.url, page) as trainers,
    ):
        trainings = [Training(name, step) for name, step in trainers.items()]
        with training(*trainings):
            for one in trainings:
                one.go_on(1, PATIENCE_SECONDS)
            change(replicas, trainings)
        stored = read_groups(replicas.urls[0])
    *rewarding, atropos = trainings
    retries = {name: Counter(trainer.failures) for name, trainer in trainers.items()}
    steps = {one.name: len(one.steps) for one in trainings}
    log.info("judge %s s, steps %s, retries %s, stops %s", JUDGE_SECONDS, steps, retries, replicas.stops)
    return Seen(
        errors=[one.error for one in trainings],
        retries=retries,
        told={sample: reward for one in rewarding for step in one.steps for sample, reward in step.items()},
        batches=atropos.steps,
        stored=stored,
        asked=len(judge.received),
        killed=[stop.killed for stop in replicas.stops],
    )


@pytest.mark.faults
@pytest.mark.parametrize("change", [roll, scale_in])
def test_no_trainer_notices_that_replicas_leave(
    change: Change, tmp_path: Path, postgres: Postgres, page: dict[str, Any]
) -> None:
    seen = watch(change, tmp_path, postgres, page, SHUTDOWN_SECONDS, REPLICAS)
    assert (set(seen.errors), set(seen.killed)) == ({None}, {False})
    assert seen.told == score_still(tmp_path, seen.told)
    assert [number for batch in seen.batches for number in batch] == [*range(1, 2 * len(seen.batches) + 1)]
    assert (seen.stored, seen.asked) == (Counter({("scored", (), len(ANSWERS)): seen.groups}), 2 * seen.groups)


def test_requests_that_a_stop_breaks_off_are_tried_again_and_earn_the_same(
    tmp_path: Path, postgres: Postgres, page: dict[str, Any]
) -> None:
    """Where `shutdown_seconds` is shorter than the judge takes."""
    seen = watch(replace_one, tmp_path, postgres, page, 1, 2)
    assert (set(seen.errors), set(seen.killed)) == ({None}, {False})
    assert seen.told == score_still(tmp_path, seen.told)
    assert seen.stored == Counter({("scored", (), len(ANSWERS)): seen.groups})
    assert sum(retries.total() for retries in seen.retries.values()) > 0


def test_what_a_stopped_replica_promised_is_scored_by_another(tmp_path: Path, postgres: Postgres) -> None:
    """Nobody waits at the one that stops, so it does not wait for the judge."""
    with judged_slowly(tmp_path, postgres, SHUTDOWN_SECONDS, 2) as (replicas, _):
        leaving, other, *_ = replicas.urls
        task, *_ = tasks_of(leaving, 1)
        group = {"task_id": task, "completions": [{"text": text} for text in ANSWERS]}
        body = {"groups": [group], "run": "promised", "wait_seconds": 0}
        told = httpx.post(f"{leaving}/score", json=body, timeout=60).raise_for_status().json()["groups"][0]
        replicas.stop_oldest()
        wanted = {"id": told["group_id"], "wait": PATIENCE_SECONDS / 6}
        found = httpx.get(f"{other}/groups", params=wanted, timeout=PATIENCE_SECONDS).raise_for_status().json()
    assert (told["outcome"], [one["outcome"] for one in found["groups"]]) == ("pending", ["scored"])


def read_groups(url: str) -> Counter[tuple[str, tuple[str, ...], int]]:
    """How many are stored of each outcome, flags and size."""
    listed = httpx.get(f"{url}/groups", params={"limit": 500}, timeout=60).raise_for_status().json()["groups"]
    return Counter((one["outcome"], tuple(one["flags"]), len(one["rewards"])) for one in listed)
