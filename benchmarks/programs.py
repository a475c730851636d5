"""Programs of `code_exec` in jails, against the same ones in bare forked processes: `python -m benchmarks.programs`.

Both run them in turns, on as many workers as there are cores, and must come to the same results. Rates by
the clock need a machine that does nothing else; rates by processor time (of the service, the jails and the programs)
do not."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Program
from app.envs.code_exec.environment import LIMITS, CodeExec
from app.envs.code_exec.exercises import choose_hidden_tests
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import ENVIRONMENT, choose_size
from app.toolkit.procedural import LevelParams
from benchmarks.results import read_arguments

TASKS = 400
TURNS = 5
PORTION = 50
AT_ONCE = 8
"""Programs that are asked for at the same time, as for one group."""
TICKS = os.sysconf("SC_CLK_TCK")
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks.bare_programs import serve; serve()"


@dataclass(frozen=True)
class Turn:
    seconds: float
    processor_seconds: float
    service_seconds: float = 0.0
    """Of that, in the service's own process."""

    @property
    def rate(self) -> float:
        return TASKS / self.seconds

    @property
    def rate_per_core(self) -> float:
        """By processor time."""
        return TASKS / self.processor_seconds


@dataclass(frozen=True)
class Comparison:
    bare: tuple[Turn, ...]
    jailed: tuple[Turn, ...]

    @property
    def ratio(self) -> float:
        """By the clock, the median of turns."""
        return median(ours.rate / bare.rate for ours, bare in zip(self.jailed, self.bare, strict=True))

    @property
    def ratio_per_core(self) -> float:
        return median(
            ours.rate_per_core / bare.rate_per_core for ours, bare in zip(self.jailed, self.bare, strict=True)
        )


def list_programs() -> list[Program]:
    """For each task one: half of them right; a quarter solves a neighbouring task; a quarter raises."""
    environment = CodeExec.open(ConfiguredDatasets({}))
    return [_write_program(environment, index) for index in range(TASKS)]


def _write_program(environment: CodeExec, index: int) -> Program:
    made = environment.parse_reference(environment.task("train", index, LevelParams()))
    chosen = next(made.definition.neighbours(made.chosen), made.chosen) if index % 4 == 1 else made.chosen
    source = made.definition.solution(chosen)
    if index % 4 == 3:
        source += f"\ndef {made.family}(*arguments): raise ValueError(arguments)\n"
    calls = tuple(tuple(test.arguments) for test in choose_hidden_tests(made))
    return Program(source=source, function=made.family, calls=calls, limits=LIMITS)


class BarePrograms:
    """One warm process for each core."""

    def __init__(self, size: int) -> None:
        root = str(Path(__file__).parents[1])
        command = [sys.executable, "-s", "-S", "-P", "-B", "-c", BOOT, root]
        self._workers = [
            subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(size)
        ]

    def run(self, programs: Sequence[Program]) -> tuple[Turn, list[Any]]:
        """In portions, so that a worker holds little else when it forks."""
        seconds, processor_seconds, outcomes = 0.0, 0.0, list[Any]()
        for start in range(0, len(programs), PORTION):
            answers = self._run_portion(programs[start : start + PORTION])
            seconds += max(answer["seconds"] for answer in answers)
            processor_seconds += sum(answer["processor_seconds"] for answer in answers)
            outcomes += chain.from_iterable(answer["outcomes"] for answer in answers)
        return Turn(seconds, processor_seconds), outcomes

    def _run_portion(self, programs: Sequence[Program]) -> list[Any]:
        share = -(-len(programs) // len(self._workers))
        for place, worker in enumerate(self._workers):
            assert worker.stdin is not None
            part = [program.model_dump(mode="json") for program in programs[place * share : (place + 1) * share]]
            print(json.dumps(part), file=worker.stdin, flush=True)
        return [json.loads(worker.stdout.readline()) for worker in self._workers if worker.stdout is not None]

    def close(self) -> None:
        for worker in self._workers:
            worker.communicate()


async def _run_jailed(jails: JailedPrograms, programs: Sequence[Program]) -> tuple[Turn, list[Any]]:
    outcomes: list[Any] = [None] * len(programs)
    places = iter(range(len(programs)))

    async def run_some() -> None:
        for place in places:
            execution = await jails.run(programs[place])
            outcomes[place] = [returned.model_dump(mode="json") for returned in execution.returned]

    jailed, own, began = _processor_seconds_of(jails), _own_processor_seconds(), time.perf_counter()
    await asyncio.gather(*(run_some() for _ in range(AT_ONCE)))
    seconds, service = time.perf_counter() - began, _own_processor_seconds() - own
    return Turn(seconds, service + _processor_seconds_of(jails) - jailed, service), outcomes


def _own_processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _processor_seconds_of(jails: JailedPrograms) -> float:
    return sum(_read_processor_seconds(process) for process in jails.ids)


def _read_processor_seconds(process: int) -> float:
    """Of a process, of the children that it waited for, and of those that it has."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return sum(map(int, fields[11:15])) / TICKS + sum(_read_processor_seconds(int(child)) for child in children)


async def compare() -> Comparison:
    programs, size = list_programs(), choose_size()
    bare, jails = BarePrograms(size), JailedPrograms(size)
    bare.run(programs)
    await _run_jailed(jails, programs)
    print(f"{TASKS} programs, {sum(len(one.calls) for one in programs) / TASKS:.1f} calls each; {jails.walls.words}")
    turns: list[tuple[Turn, Turn]] = []
    for _ in range(TURNS):
        (one, expected), (other, seen) = bare.run(programs), await _run_jailed(jails, programs)
        if seen != expected:
            raise SystemExit("jails and bare processes came to different results")
        turns.append((one, other))
        print(_format_turn("bare", one), _format_turn("jails", other), sep="; ", flush=True)
    bare.close()
    await jails.close()
    bares, ours = zip(*turns, strict=True)
    return Comparison(bares, ours)


def _format_turn(name: str, turn: Turn) -> str:
    each = f"{turn.processor_seconds / TASKS * 1e3:.2f} ms of processor time each"
    service = f", {turn.service_seconds / TASKS * 1e3:.2f} in the service" if turn.service_seconds else ""
    return f"{name} {turn.rate:.0f}/s, {turn.rate_per_core:.0f}/s a core, {each}{service}"


def main() -> None:
    found = uvloop.run(compare())
    print(
        f"ratio by the clock {found.ratio:.2f}, by processor time {found.ratio_per_core:.2f} (at least 0.5 is wanted)"
    )


if __name__ == "__main__":
    read_arguments()
    main()
