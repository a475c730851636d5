"""`process` at work while the policy's server is killed and started again, and `process` itself too."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.data_sets import numbered_rows
from tests.support.forked_programs import ROOT, ForkedProgram, Program
from tests.support.processing import Line, arguments, lines_of
from tests.support.serving import free_port, serving


@dataclass(frozen=True)
class Interrupted:
    lines: list[Line]
    at_policy_kill: int
    """Groups in the output when the policy's server was killed."""
    at_kill: int
    exit_code: int
    seconds: float
    told: str


def interrupted(
    folder: Path, tasks: int, *more: str, down_seconds: float = 1.0, most_seconds: float = 300
) -> Interrupted:
    """Over all tasks of a test split. The policy's server is killed at a third of them and is down for a while;
    `process` is killed at two thirds. Neither kill can come too late: no policy answers much more than it has to."""
    out = folder / "out.jsonl"
    data = numbered_rows(folder / "data", tasks)
    began = time.monotonic()
    with (
        serving(folder, settings={"ATROPOS_ENVS_DATASETS__GSM8K": str(data)}) as gateway,
        Programs(folder) as programs,
    ):
        port = free_port()
        policy = programs.policy(port, most=tasks // 2)
        wanted = arguments(gateway.url, f"http://127.0.0.1:{port}/v1", out, "--env", "gsm8k", "--split", "test", *more)
        first = programs.start("app.cli", *wanted)
        deadline = began + most_seconds
        at_policy_kill = wait_for(out, tasks // 3, first, deadline)
        _kill(policy)
        time.sleep(down_seconds)
        policy = programs.policy(port, most=2 * tasks // 5)
        at_kill = wait_for(out, 2 * tasks // 3, first, deadline)
        _kill(first)
        _kill(policy)
        programs.policy(port)
        second = programs.start("app.cli", *wanted)
        exit_code = second.wait(max(1.0, deadline - time.monotonic()))
        seconds = time.monotonic() - began
        return Interrupted(lines_of(out), at_policy_kill, at_kill, exit_code, seconds, programs.told)


class Programs:
    """Started here, and ended with the block."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "programs.log"
        self._running: list[Program] = []

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *error: object) -> None:
        for program in self._running:
            _kill(program)

    @property
    def told(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def start(self, module: str, *arguments: str) -> Program:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        program = ForkedProgram(module, arguments, ROOT, environment, self._log)
        self._running.append(program)
        return program

    def policy(self, port: int, most: int | None = None) -> Program:
        """Answers when this returns, so many requests."""
        program = self.start("tests.support.policy_server", str(port), *([] if most is None else [str(most)]))
        for _ in range(1000):
            try:
                httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=5)
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                return program
        raise RuntimeError(f"the policy's server did not start:\n{self.told}")


def _kill(program: Program) -> None:
    program.kill()
    program.wait()


def wait_for(out: Path, count: int, program: Program, deadline: float) -> int:
    """Until so many groups are in the output; the number there was."""
    written = 0
    place = 0
    while written < count:
        with suppress(FileNotFoundError), out.open("rb") as file:
            file.seek(place)
            fresh = file.read()
            written, place = written + fresh.count(b"\n"), place + len(fresh)
        if program.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{written} of {count} groups were written, and then no more")
        time.sleep(0.01)
    return written
