"""`evaluate` and `tournament`, killed at each step and started again: no judge is paid twice, no figure is another."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import yaml
from pydantic import JsonValue
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.chat_server import ChatServer, Received, Reply
from tests.support.chat_server import serving as chat_serving
from tests.support.interrupted_processing import Programs
from tests.support.lossy_gateway import relaying
from tests.support.policy_server import MODEL
from tests.support.preferring import said, write_verdict
from tests.support.serving import serving
from tests.support.shown_prompts import shown_to


@dataclass
class Hold:
    """A place where a command is held: `reached` once it is there, and left there until it is `freed`."""

    reached: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.reached.set()
        self.freed.wait(120)


@dataclass(frozen=True)
class Passing:
    """A request on its way, or its reply."""

    method: str
    path: str
    replied: bool
    scored: int
    """Replies to `POST /score` until now, this one included."""

    @property
    def scores(self) -> bool:
        return (self.method, self.path) == ("POST", "/score")

    @property
    def reads_group(self) -> bool:
        return self.method == "GET" and self.path.startswith("/groups/")


@contextmanager
def holding(gateway: str, hold: Hold, holds: Callable[[Passing], bool]) -> Iterator[str]:
    """The address. What is held has no reply; until it is freed, nothing else of its kind is held."""
    counts: Counter[str] = Counter()

    def breaks(method: str, path: str, replied: bool) -> int | None:
        counts[f"{method} {path}"] += replied
        if hold.reached.is_set() or not holds(Passing(method, path, replied, counts["POST /score"])):
            return None
        hold.wait()
        return 0

    with relaying(gateway, breaks) as url:
        yield url
        hold.freed.set()


TASKS, SAMPLES, AT_ONCE = 2, 2, 2
PIECES = TASKS * SAMPLES
"""Requests by which an evaluation sends its attempts. One more closes the group of each task."""
TIMES = ("twice", "thrice", "four times", "five times", "many times")
"""The more often, the better the judge finds it."""
BELLS = ("old", "low", "big", "new", "red", "wet", "dry", "far", "odd", "mad", "sad", "bad")
"""What each start under test speaks of, so that it asks the judge what none has asked before."""


@dataclass
class Judge:
    """Finds a reply the better the later it stands in TIMES, wherever it is shown, and may hold a question."""

    asked: Counter[str] = field(default_factory=Counter)
    """By model."""
    hold: Hold | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, number: int, received: Received) -> Reply:
        with self.lock:
            self.asked[str(received.body["model"])] += 1
            hold, self.hold = self.hold, None
        if hold is not None:
            hold.wait()
        shown = shown_to(received)
        marks = {
            name: float(next(place for place, times in enumerate(TIMES) if times in text))
            for name, text in shown.texts.items()
        }
        return said(write_verdict(shown, marks), received)


@dataclass(frozen=True)
class Bench:
    """A gateway whose replies two judges read: one those of policies, the other those of tournaments."""

    url: str
    judge: Judge
    bells: Iterator[str]

    def count_calls(self) -> int:
        return self.judge.asked.total()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder, judge = tmp_path_factory.mktemp("judged"), Judge()
    with chat_serving(judge) as server:
        prices = {"input_price_per_million": 2.0, "output_price_per_million": 10.0}
        judges = {name: {"base_url": server.url, "model": f"{name}-1", **prices} for name in ("critic", "stranger")}
        arena = {"judges": ["critic"], "calibration_share": 0.0}
        file = folder / "gateway.yaml"
        file.write_text(yaml.safe_dump({"judges": judges, "environments": {"npc_arena": arena}}))
        with serving(folder, settings={"ATROPOS_ENVS_SETTINGS": str(file)}) as gateway:
            yield Bench(gateway.url, judge, iter(BELLS))


def speak(bell: str, number: int) -> str:
    return f"Stranger, the {bell} bell rang {TIMES[number % len(TIMES)]}."


@dataclass
class Policy:
    """Says by the seed of a request what it says, and may hold the first one, which only asks whether it is there."""

    bell: str
    hold: Hold | None = None

    def __call__(self, number: int, received: Received) -> Reply:
        if self.hold is not None and number == 0:
            self.hold.wait()
        return said(speak(self.bell, int(str(received.body.get("seed", 0)))))


def count_attempts(server: ChatServer) -> int:
    """Without the question whether it is there."""
    return sum(one.messages[-1]["content"] != "Hello." for one in server.received)


Start = Callable[[str, str, Path], list[str]]
"""Arguments of a command by the gateway's address, the policy's, and a folder."""


def evaluation(bell: str) -> Start:
    def arguments(url: str, policy: str, out: Path) -> list[str]:
        ends = ["--url", url, "--policy", policy, "--model", MODEL, "--out", str(out), "--run", f"run-{bell}"]
        counts = ["--tasks", str(TASKS), "--samples", str(SAMPLES), "--concurrency", str(AT_ONCE)]
        return ["evaluate", "--env", "npc_arena", "--pass-at", "0.5", "--yes", *ends, *counts]

    return arguments


def tournament(bench: Bench, bell: str) -> Start:
    """Of two runs with stored replies."""
    for place, run in enumerate((f"one-{bell}", f"other-{bell}")):
        asked = {"run": run, "batch_size": TASKS, "cursor": 0}
        with httpx.Client(base_url=bench.url, timeout=120) as client:
            client.put(f"/runs/{run}", json={"seed": 1}).raise_for_status()
            tasks = client.post("/envs/npc_arena/next-batch", json=asked).raise_for_status().json()["tasks"]
            groups = [
                {"task_id": task["task_id"], "completions": [{"text": speak(bell, 2 * number + place)}]}
                for number, task in enumerate(tasks)
            ]
            body = {"run": run, "policy": {"model": "m", "step": 1}, "groups": groups}
            client.post("/score", json=body).raise_for_status()

    def arguments(url: str, policy: str, out: Path) -> list[str]:
        ends = ["--url", url, "--out", str(out), "--run", f"duels-{bell}", "--concurrency", "1", "--yes"]
        return ["tournament", f"one-{bell}", f"other-{bell}", "--judge", "stranger", *ends]

    return arguments


def finish(arguments: Sequence[str]) -> None:
    """In this process."""
    result = CliRunner().invoke(cli, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output


OWN = {"group_id", "groups", "gateway", "run", "seconds", "started_at", "finished_at"}
"""What each start under test has of its own."""


def read_figures(out: Path, bell: str) -> JsonValue:
    """What the files of a report say."""
    files = [path for name in ("report.json", "tournament.json", "attempts.jsonl") if (path := out / name).exists()]
    lines = [line for path in files for line in _read_lines(path)]
    return [
        _leave_out_own(json.loads(line.replace(f"the {bell} bell", "the bell").replace(f"-{bell}", "")))
        for line in lines
    ]


def _read_lines(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _leave_out_own(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [*map(_leave_out_own, value)]
    if isinstance(value, dict):
        return {name: _leave_out_own(one) for name, one in value.items() if name not in OWN}
    return value


@dataclass(frozen=True)
class Ended:
    calls: int
    """Of judges."""
    attempts: int
    """That the policy was asked for."""
    figures: JsonValue


def unbroken(bench: Bench, bell: str, start: Start, out: Path) -> Ended:
    before = bench.count_calls()
    with chat_serving(Policy(bell)) as policy:
        finish(start(bench.url, policy.url, out))
        return Ended(bench.count_calls() - before, count_attempts(policy), read_figures(out, bell))


@dataclass(frozen=True)
class Step:
    """Where a command is killed: at a request to the gateway or its reply, or while the policy or the judge works."""

    name: str
    holds: Callable[[Passing], bool] = lambda passing: False
    at_policy: bool = False
    at_judge: bool = False

    def __str__(self) -> str:
        return self.name


PLANNED = Step("planned", at_policy=True)
SAMPLED = Step("before a piece is sent", lambda passing: passing.scores and not passing.replied)
SENT = Step("a piece was sent", lambda passing: passing.scores and passing.replied and passing.scored == PIECES // 2)
JUDGING = Step("the judge works", at_judge=True)
SCORED = Step("before the report", lambda passing: passing.reads_group and passing.scored == PIECES + TASKS)
DUEL_PLANNED = Step("before a pair is sent", lambda passing: passing.scores and not passing.replied)
DUEL_SENT = Step("a pair was sent", lambda passing: passing.scores and passing.replied)
DUELS_SCORED = Step("before the report", lambda passing: passing.reads_group and passing.scored == TASKS)


def killed(bench: Bench, bell: str, start: Start, out: Path, step: Step) -> Ended:
    """Killed when it has come to this step, and started again."""
    before, hold = bench.count_calls(), Hold()
    policy, bench.judge.hold = Policy(bell, hold if step.at_policy else None), hold if step.at_judge else None
    with (
        chat_serving(policy) as server,
        holding(bench.url, hold, step.holds) as url,
        Programs(out.parent) as programs,
    ):
        first = programs.start("app.cli", *start(url, server.url, out))
        assert hold.reached.wait(120), programs.told
        first.kill()
        first.wait()
        hold.freed.set()
        policy.hold = None
        finish(start(bench.url, server.url, out))
        return Ended(bench.count_calls() - before, count_attempts(server), read_figures(out, bell))


@pytest.fixture(scope="module")
def calm_evaluation(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    bell = next(bench.bells)
    return unbroken(bench, bell, evaluation(bell), tmp_path_factory.mktemp("calm") / "out")


@pytest.fixture(scope="module")
def calm_tournament(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    bell = next(bench.bells)
    return unbroken(bench, bell, tournament(bench, bell), tmp_path_factory.mktemp("calm") / "out")


@pytest.mark.parametrize("step", [PLANNED, SAMPLED, SENT, JUDGING, SCORED], ids=str)
def test_an_evaluation_that_is_killed(bench: Bench, calm_evaluation: Ended, tmp_path: Path, step: Step) -> None:
    """At most so many attempts are made again as are made at once."""
    calm, bell = calm_evaluation, next(bench.bells)
    ended = killed(bench, bell, evaluation(bell), tmp_path / "out", step)
    lost = ended.attempts - calm.attempts
    assert (ended.calls, ended.figures, 0 <= lost <= AT_ONCE) == (calm.calls, calm.figures, True), lost


@pytest.mark.parametrize("step", [DUEL_PLANNED, DUEL_SENT, JUDGING, DUELS_SCORED], ids=str)
def test_a_tournament_that_is_killed(bench: Bench, calm_tournament: Ended, tmp_path: Path, step: Step) -> None:
    calm, bell = calm_tournament, next(bench.bells)
    ended = killed(bench, bell, tournament(bench, bell), tmp_path / "out", step)
    assert (ended.calls, ended.figures) == (calm.calls, calm.figures)
