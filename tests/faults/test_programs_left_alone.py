"""Programs among one another, and after the end of what runs them: nothing stays, nothing is passed on."""

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from app.domain.errors import WorkerFailed
from app.domain.tasks import CallResult, Execution, Program, ProgramLimits
from app.sandbox.programs import JailedPrograms
from tests.architecture.test_house import ROOT
from tests.support.event_loop import closed_after
from tests.support.jailed import GUARDS, Jails, jails
from tests.support.tables import read_table

AS_LONG_AS_IT_MAY = ProgramLimits(seconds=600, idle_seconds=600)
SLEEPING = Program(source="import time\ndef f(): time.sleep(600)", function="f", calls=((),), limits=AS_LONG_AS_IT_MAY)
ONE = Program(source="def f(): return 1", function="f", calls=((),))
SOURCES = read_table(__file__, "programs_left_alone.yaml", dict[str, Any])
DONE = Execution(ending="finished", returned=(CallResult(value=1),))


@pytest.fixture(scope="module", params=GUARDS)
def jailed(request: pytest.FixtureRequest) -> Iterator[Jails]:
    with jails(request.param, places=2) as made:
        yield made


def below(process: int) -> set[int]:
    """All that it has started, and what those have."""
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        return set().union(*({int(child)} | below(int(child)) for child in children))
    return set()


async def begun(programs: JailedPrograms, program: Program = SLEEPING) -> tuple[asyncio.Task[Execution], set[int]]:
    """A program that has been running for a moment, and the processes of its jail."""
    running = asyncio.create_task(programs.run(program))
    while not (programs.ids and len(processes := {programs.ids[0]} | below(programs.ids[0])) > 1):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    return running, processes | below(programs.ids[0])


def _is_there(process: int) -> bool:
    return Path(f"/proc/{process}/stat").exists()


async def gone(processes: set[int]) -> bool:
    for _ in range(500):
        if not any(map(_is_there, processes)):
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.fixture
async def programs() -> AsyncIterator[JailedPrograms]:
    async with closed_after(JailedPrograms(1)) as programs:
        yield programs


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_cancelling_ends_a_program(run: Callable[..., object]) -> None:
    async def play() -> object:
        async with closed_after(JailedPrograms(1)) as programs:
            running, processes = await begun(programs)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return running.cancelled(), await gone(processes), await programs.run(ONE)

    assert run(play()) == (True, True, DONE)


async def test_closing_ends_programs(programs: JailedPrograms) -> None:
    running, processes = await begun(programs)
    await programs.close()
    outcome = (await asyncio.gather(running, return_exceptions=True))[0]
    assert (type(outcome), await gone(processes)) == (WorkerFailed, True)


async def test_nothing_is_left_of_one_that_is_out_of_time(programs: JailedPrograms) -> None:
    short = SLEEPING.model_copy(update={"limits": ProgramLimits(seconds=1.5, idle_seconds=600)})
    running, processes = await begun(programs, short)
    assert ((await running).ending, len(processes) > 1, await gone(processes)) == ("seconds", True, True)


async def test_nothing_is_left_of_one_that_has_finished(programs: JailedPrograms) -> None:
    await programs.run(ONE)
    before = below(programs.ids[0])
    await asyncio.gather(*(programs.run(ONE) for _ in range(5)))
    assert before == below(programs.ids[0])


async def test_one_that_is_killed_from_outside_twice_is_our_failure(programs: JailedPrograms) -> None:
    running, first = await begun(programs)
    os.kill(min(first), signal.SIGKILL)
    await gone(first)
    while not (programs.ids and (second := below(programs.ids[0])) and not second & first):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    os.kill(programs.ids[0], signal.SIGKILL)
    assert type((await asyncio.gather(running, return_exceptions=True))[0]) is WorkerFailed


@pytest.mark.parametrize("kind", ["user", ""])
async def test_what_the_kernel_says_of_a_program(kind: str) -> None:
    async with closed_after(JailedPrograms(1, (kind,))) as programs:
        running, _ = await begun(programs)
        for _ in range(600):  # it is confined before the program is read
            newest = max(below(programs.ids[0]))
            status = Path(f"/proc/{newest}/status").read_text(encoding="ascii")  # noqa: ASYNC240
            if "\nSeccomp:\t2\n" in status:
                break
            await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    said = dict(line.split(":", 1) for line in status.splitlines())
    names = ("CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Threads")
    rootly = "0" in said["Uid"].split() and kind != ""
    assert ([said[name].strip() for name in names], rootly) == (["0" * 16] * 4 + ["1", "2", "1"], False)


SERVICE = Path(__file__).with_name("programs_left_alone.txt").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing ends with the service at once")
@pytest.mark.parametrize("namespaces", ["user", ""])
def test_programs_die_with_the_service(namespaces: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE, namespaces], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        watched = [os.pidfd_open(int(process)) for process in service.stdout.readline().split()]
        service.kill()
        ended = [select.select([process], [], [], 30)[0] == [process] for process in watched]
        for process in watched:
            os.close(process)
    assert (len(ended) > 1, set(ended)) == (True, {True})


def test_nothing_is_passed_on_from_program_to_program(jailed: Jails) -> None:
    seen = [jailed.said(SOURCES[name]) for name in ("leaves", "looks", "looks")]
    assert seen == ["done", [[], False, 0], [[], False, 0]]


def test_two_that_run_at_once_do_not_meet(jailed: Jails) -> None:
    async def both() -> list[Execution]:
        programs = [
            Program(source=SOURCES["meets"], function="f", calls=(names,)) for names in (("a", "b"), ("b", "a"))
        ]
        return await asyncio.gather(*(jailed.programs.run(program) for program in programs))

    seen = jailed.awaited(both())
    assert [[one.value for one in execution.returned] for execution in seen] == [[[]], [[]]]


def test_floods_reach_nobody(jailed: Jails) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = ProgramLimits(seconds=60, cpu_seconds=20, memory_mb=256, output_bytes=1024 * 1024)
    seen = {name: jailed.said(source, limits=limits) for name, source in SOURCES["floods"].items()}
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    expected = {name: "died" for name in SOURCES["floods"]} | {
        "print": "done",
        "descriptors": "done",
        "value": "output_bytes",
    }
    assert (seen, grown < 20_000) == (expected, True)


def test_a_full_directory_is_the_end_of_it(jailed: Jails) -> None:
    limits = ProgramLimits(seconds=60, cpu_seconds=20, file_bytes=1024 * 1024)
    assert jailed.said(SOURCES["fills"], limits=limits) in ([0, True], [1024 * 1024, True])


def test_what_is_exhausted_is_its_own(jailed: Jails) -> None:
    seen = {name: jailed.said(source) for name, source in SOURCES["exhausts"].items()}
    assert (seen, jailed.said(ONE.source)) == (dict.fromkeys(SOURCES["exhausts"], "refused"), 1)
