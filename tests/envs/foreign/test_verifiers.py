"""Calls of a child process, with a scripted one in the place of a package: what it does wrong, and how it is lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.domain.errors import HostFailed
from app.domain.hosting import HostedStep
from app.domain.tasks import Message
from app.envs.foreign.child import ChildKeeper, RunningChild
from app.envs.foreign.contract import ForeignOptions, Start
from app.envs.foreign.verifiers import VerifiersOptions, VerifiersServer
from app.ports.children import ChildProgram
from app.sandbox.children import JailedChildren
from tests.support.tables import read_table

SCRIPT = Path(__file__).with_name("scripted_child.py")
FAULTS = read_table(__file__, "faults.yaml", dict[str, str])
VARIABLES = {"GIVEN": "1", "SECRET": "2"}
GO_ON = HostedStep(messages=(Message(role="user", content="Go on."),))


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


@asynccontextmanager
async def serving(deadline_seconds: float = 60.0, package: str = "any") -> AsyncIterator[VerifiersServer]:
    """Without a jail, which not every machine has."""
    server = VerifiersServer(
        "x",
        package,
        Path(sys.executable),
        ForeignOptions(deadline_seconds=deadline_seconds),
        VerifiersOptions(test=1, trusted=True, variables=("GIVEN", "MISSING")),
        JailedChildren(VARIABLES.get),
        program=SCRIPT,
    )
    await server.open()
    try:
        await asyncio.to_thread(server.describe_blocking)
        yield server
    finally:
        await server.close()


async def step(server: VerifiersServer, *said: str) -> list[HostedStep]:
    session = await server.open_session(Start("train", 0, 0))
    try:
        return [await session.step(says(text)) for text in said]
    finally:
        await session.close()


async def test_the_last_tasks_are_the_test_split_and_an_episode_is_ended_early() -> None:
    async with serving() as server:
        description = await asyncio.to_thread(server.describe_blocking)
        session = await server.open_session(Start("train", 0, 0))
        steps = [await session.step(says("a")), await session.finish()]
    rows = {split: [row.hidden for row in rows] for split, rows in (description.rows or {}).items()}
    assert (rows, description.version, description.replayable, session.opening.messages, steps) == (
        {"train": [{"answer": 0}, {"answer": 1}], "test": [{"answer": 2}]},
        "1.0",
        True,
        (Message(role="user", content="Say something."),),
        [GO_ON, HostedStep(done=True, reward=0.25)],
    )


async def test_the_child_sees_no_variables_but_those_named() -> None:
    async with serving() as server:
        (told,) = await step(server, "names")
    seen = set((told.messages[0].content or "").split())
    assert (seen & {*VARIABLES, "MISSING"}, seen & {*os.environ} - {"PATH", "HOME", "LANG", "PYTHONPATH"}) == (
        {"GIVEN"},
        set(),
    )


@pytest.mark.parametrize("said", FAULTS)
async def test_a_fault_is_a_failure_with_its_reason(said: str) -> None:
    async with serving() as server:
        with pytest.raises(HostFailed) as failed:
            await step(server, said)
    assert failed.value.detail == FAULTS[said]


async def test_a_child_that_is_killed_loses_its_sessions_and_another_one_follows() -> None:
    async with serving() as server:
        session = await server.open_session(Start("train", 0, 0))
        process = int((await session.step(says("process"))).messages[0].content or "")
        waiting = asyncio.create_task(session.step(says("sleep")))
        await asyncio.sleep(0.1)
        os.kill(process, signal.SIGKILL)
        lost = await asyncio.gather(waiting, session.step(says("a")), return_exceptions=True)
        again = await step(server, "a")
    words = "x: its process was lost: it was killed by signal 9"
    assert ([str(one) for one in lost], again) == ([words, words], [GO_ON])


async def test_a_deaf_child_is_killed_after_a_call_without_an_answer() -> None:
    prepared: list[RunningChild] = []

    async def prepare(running: RunningChild) -> None:
        prepared.append(running)

    program = ChildProgram(interpreter=Path(sys.executable), file=SCRIPT, trusted=True)
    keeper = ChildKeeper("x", JailedChildren(VARIABLES.get), program, prepare, hearing_seconds=0.1)
    keeper.open()
    try:
        with pytest.raises(HostFailed, match="gave no answer to `step`"):
            await keeper.call("step", 0.1, message={"content": "sleep"})
        await prepared[0].child.wait()
        answer = await keeper.call("ping", 60)
    finally:
        await keeper.close()
    assert (answer, prepared[0].ended, len(prepared)) == ({}, "it heard nothing any more", 2)


async def test_an_interpreter_that_is_not_there_is_named() -> None:
    keeper = ChildKeeper("x", JailedChildren(VARIABLES.get), ChildProgram(Path("/no/python"), SCRIPT), _do_nothing)
    keeper.open()
    try:
        with pytest.raises(HostFailed, match="there is no interpreter /no/python"):
            await keeper.find(60)
    finally:
        await keeper.close()


async def _do_nothing(running: RunningChild) -> None:
    return
