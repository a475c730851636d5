"""Whether memory flattens: a gateway with a judge under a constant mixed load, its resident memory each minute.

`python -m benchmarks.memory [MINUTES] [--record]` takes 40 minutes by default. It prints a line a minute, and fails
where a bound is missed: what the second half adds, where it ends, and, of three hours or more, what an hour adds.
"""

import contextlib
import itertools
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from benchmarks.growth_routes import POLICY, Side, list_calls
from benchmarks.judging import judge_server
from benchmarks.results import BenchmarkFigure, read_arguments, run, tell_progress
from benchmarks.seeded_stores import ARENA, build_group, seed
from tests.support.atropos import TRAINER, group
from tests.support.serving import serving

MINUTES: Final = 40.0
SAMPLE_SECONDS: Final = 60.0
SEEDED_STEPS: Final = 2
GROUP_SIZE: Final = 8
ATROPOS: Final = "/compat/atropos/memory"
WORLD: Final = "memory"
MOST_RISE: Final = 1.05
"""Of the second half: where it ends, over where it begins."""
MOST_MEGABYTES: Final = 500.0
MOST_AN_HOUR: Final = 1.0
"""Megabytes that an hour adds after the first, where there are three hours at least."""
WORDS: Final = (
    *("the old river road runs past our mill", "nobody in town will say who walked it last night", "with a lantern"),
    *("though three doors down somebody left bread", "on every sill before dawn broke", "so keep your voice low"),
    *("stranger", "my brother would know more", "of what the guild asks", "when the bells are done", "ask again"),
)
CHECKED: Final = ("gsm8k", "mcqa", "letter_counting", "date_arithmetic", "instruction_following", "regex_match")
"""Environments whose answers are checked by code, in turns."""


@dataclass(frozen=True)
class Sample:
    minutes: float
    megabytes: float
    requests: int
    """That were answered until then."""


@dataclass
class Author:
    """Writes texts that nobody has written before."""

    chance: random.Random

    def write(self, most_sentences: int = 60) -> str:
        """Mostly short, sometimes some pages."""
        length = 1 + int(most_sentences * self.chance.random() ** 3)
        return " ".join(self._write_sentence() for _ in range(length))

    def _write_sentence(self) -> str:
        said = self.chance.choices(WORDS, k=self.chance.randint(1, 4))
        said.insert(self.chance.randrange(len(said)), str(self.chance.randrange(10**6)))
        return " ".join(said).capitalize() + "."


@dataclass
class MixedLoad:
    """Lanes of requests at a constant pace, each in a thread."""

    side: Side
    stopping: threading.Event = field(default_factory=threading.Event)
    answered: int = 0
    errors: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.side.trainer.post(f"{ATROPOS}/register", TRAINER)
        lanes: list[tuple[Callable[[Author], Iterator[None]], float, int]] = [
            (self._read_everything, 0.1, 1),
            (self._train_checked, 0.4, 2),
            (self._train_judged, 0.4, 3),
            (self._send_samples, 0.3, 2),
            (self._post_atropos, 0.4, 1),
            (self._tell_worlds, 0.5, 1),
        ]
        threads = [
            threading.Thread(target=self._repeat, args=(work, Author(random.Random(f"{work} {number}")), pause))
            for work, pause, times in lanes
            for number in range(times)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()

    def _repeat(self, work: Callable[[Author], Iterator[None]], author: Author, pause: float) -> None:
        """A step of the work each `pause` seconds; what took longer is not made up for."""
        while not self.stopping.is_set():
            try:
                due = time.monotonic()
                for _ in work(author):
                    self.answered += 1
                    due = max(due + pause, time.monotonic())
                    if self.stopping.wait(due - time.monotonic()):
                        return
            except (httpx.HTTPError, RuntimeError, KeyError) as error:
                self.errors.append(f"{work.__name__}: {error!r}"[:300])
                self.stopping.wait(1)

    def _read_everything(self, author: Author) -> Iterator[None]:
        for call in list_calls():
            for _ in call(self.side):
                yield

    def _train_checked(self, author: Author) -> Iterator[None]:
        environment = author.chance.choice(CHECKED)
        run = f"checked-{environment}"
        for task in self.side.trainer.take(environment, run=run, batch_size=2):
            said = [{"text": f"{author.write()}\n#### {author.chance.randrange(100)}"} for _ in range(GROUP_SIZE)]
            self.side.trainer.score(environment, build_group(task, said), run, 1)
            yield

    def _train_judged(self, author: Author) -> Iterator[None]:
        run = f"judged-{ARENA}"
        for task in self.side.trainer.take(ARENA, run=run, batch_size=1):
            said = [{"text": author.write(30)} for _ in range(GROUP_SIZE)]
            self.side.trainer.score(ARENA, build_group(task, said), run, 1)
            yield

    def _send_samples(self, author: Author) -> Iterator[None]:
        """As slime and OpenRLHF do, one sample a request."""
        (taken,) = self.side.trainer.take("gsm8k", batch_size=1, cursor=author.chance.randrange(10_000))
        task = taken["task_id"]
        asked = "run=samples&group_size=1&gather_seconds=1"
        body: dict[str, Any] = {"prompt": "", "response": author.write(), "label": {"task_id": task}}
        self.side.trainer.post(f"/compat/slime/gsm8k?{asked}&reply=object", body)
        yield
        self.side.trainer.post(
            f"/compat/openrlhf/gsm8k/get_reward?{asked}",
            {"query": [f"prompt {author.write()}"], "prompts": ["prompt"], "labels": [task]},
        )
        yield

    def _post_atropos(self, author: Author) -> Iterator[None]:
        self.side.trainer.post(f"{ATROPOS}/scored_data", group(author.chance.randrange(10**9), size=4, tokens=256))
        yield
        self.side.client.get(f"{ATROPOS}/batch").raise_for_status()
        yield

    def _tell_worlds(self, author: Author) -> Iterator[None]:
        event = {"id": uuid4().hex, "time": "1312-04-03T09:15:00Z", "text": author.write(3)}
        self.side.trainer.post(f"/worlds/{WORLD}/events", {"events": [event]})
        yield
        asked = {"character": self.side.character, "conversation": [{"role": "user", "content": author.write(3)}]}
        self.side.trainer.post(f"/worlds/{WORLD}/context", asked)
        yield


def main() -> int:
    words = read_arguments()
    minutes = next((float(word) for word in words if not word.startswith("-")), MINUTES)
    result = run("memory", lambda: measure(minutes), words, "" if minutes == MINUTES else f"{minutes:g}")
    return int(any(one.is_missed for one in result.figures))


def measure(minutes: float) -> list[BenchmarkFigure]:
    return list(list_figures(list(sample_memory(minutes))))


def sample_memory(minutes: float) -> Iterator[Sample]:
    """One before the load and one each minute of it. RuntimeError where more than one request in a thousand fails."""
    with tempfile.TemporaryDirectory() as name, judge_server() as judge:
        folder = Path(name)
        url = f"sqlite:///{folder / 'gateway.db'}"
        seed(folder, url, SEEDED_STEPS)
        settings = {
            **POLICY,
            "ATROPOS_ENVS_JUDGES__SLOW__BASE_URL": judge,
            "ATROPOS_ENVS_JUDGES__SLOW__MODEL": "slow",
            "ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES": '["slow"]',
        }
        with serving(folder, settings=settings, python=sys.executable) as gateway:
            load = MixedLoad(Side.open(gateway, url))
            load.side.tell_world()
            began = time.monotonic()
            yield _take_sample(load, began)
            with load.running():
                for number in itertools.count(1):
                    time.sleep(max(0.0, began + number * SAMPLE_SECONDS - time.monotonic()))
                    yield _take_sample(load, began)
                    if time.monotonic() - began >= minutes * 60:
                        break
            if len(load.errors) > load.answered / 1000:
                raise RuntimeError(f"{len(load.errors)} requests failed, the first of them: {load.errors[:3]}")


def _take_sample(load: MixedLoad, began: float) -> Sample:
    minutes = (time.monotonic() - began) / 60
    sample = Sample(round(minutes, 2), load.side.measure_memory()["VmRSS"], load.answered)
    failed = f", {len(load.errors)} failed" if load.errors else ""
    tell_progress(f"{minutes:6.1f} minutes: {sample.megabytes:6.1f} MB, {sample.requests} requests{failed}")
    return sample


def list_figures(samples: Sequence[Sample]) -> Iterator[BenchmarkFigure]:
    """Halves and ends are medians of some minutes, or one page that was just read would decide."""
    end = samples[-1].minutes
    for share in (0, 0.125, 0.25, 0.5, 0.75, 1):
        nearest = min(samples, key=lambda one: abs(one.minutes - share * end))
        yield BenchmarkFigure.of(f"resident after {share * end:.0f} minutes", [nearest.megabytes], "MB")
    around = max(1.0, end / 20)
    middle = statistics.median(one.megabytes for one in samples if abs(one.minutes - end / 2) <= around)
    last = statistics.median(one.megabytes for one in samples if one.minutes >= end - around)
    yield BenchmarkFigure.of("the last minutes over those in the middle", [last / middle], at_most=MOST_RISE)
    yield BenchmarkFigure.of("the last minutes", [last], "MB", at_most=MOST_MEGABYTES)
    later = [one for one in samples if one.minutes >= 60]
    if end >= 180:
        slope, _ = statistics.linear_regression([one.minutes / 60 for one in later], [one.megabytes for one in later])
        yield BenchmarkFigure.of("what an hour adds after the first", [slope], "MB", at_most=MOST_AN_HOUR)
    yield BenchmarkFigure.of("requests answered", [samples[-1].requests])


if __name__ == "__main__":
    sys.exit(main())
