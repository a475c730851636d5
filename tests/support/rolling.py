"""Replicas behind a balancer that are replaced and taken away as Kubernetes does it, while trainers go on."""

import contextlib
import itertools
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.balancer import Balancer
from tests.support.serving import Served, serving


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
