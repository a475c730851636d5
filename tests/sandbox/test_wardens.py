"""The service and a warden: what the service makes of one that misbehaves, and what it is told of one that ends."""

import asyncio
import os
import signal
import socket

import pytest

from app.domain.tasks import CallResult, Execution, Program, ProgramLimits
from app.sandbox.programs import ConfinementReport, Jail, JailedPrograms, JailLost
from app.sandbox.supervisor import ANSWERS, BEGUN, ENDED, EXITED, FINISHED, MESSAGE, REPORT, WALLS
from tests.faults.test_programs_left_alone import begun
from tests.support.event_loop import closed_after
from tests.support.jailed import Jails

TWICE = Program(source="", function="f", calls=((), ()), limits=ProgramLimits(output_bytes=100))


def message(kind: bytes, body: bytes = b"") -> bytes:
    return MESSAGE.pack(kind, len(body)) + body


def answers(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


BEGINS = message(BEGUN)
EXITS = message(EXITED, REPORT.pack(0, 1))
RIGHT = BEGINS + message(ANSWERS, answers(b"V1")) + message(ENDED, FINISHED + answers(b"R")) + EXITS
WRONG: dict[str, bytes] = {
    "nothing": b"",
    "no beginning": RIGHT[len(BEGINS) :],
    "a body where there is none": message(BEGUN, b"x"),
    "another kind": BEGINS + message(WALLS),
    "an ending that there is not": BEGINS + message(ENDED, b"?") + EXITS,
    "no ending": BEGINS + message(ENDED) + EXITS,
    "too many answers": BEGINS + message(ENDED, FINISHED + answers(b"V1", b"V2", b"V3")) + EXITS,
    "more than was allowed": BEGINS + message(ENDED, FINISHED + answers(b"V" + b"1" * 200)) + EXITS,
    "more than was allowed, in parts": BEGINS + message(ANSWERS, answers(b"V" + b"1" * 90)) * 2 + EXITS,
    "a length beyond the end": BEGINS + message(ENDED, FINISHED + b"\0\0\0\x09V1") + EXITS,
    "half a length": BEGINS + message(ENDED, FINISHED + b"\0\0") + EXITS,
    "half a report": BEGINS + message(ENDED, FINISHED + answers(b"V1", b"V1")) + message(EXITED, b"x"),
    "a huge message": BEGINS + MESSAGE.pack(ANSWERS, 1 << 31),
}


async def run_with(sent: bytes) -> Execution | JailLost:
    """Runs a program in a jail whose warden sends this, whatever it is asked."""
    ours, its = socket.socketpair()
    with its:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
        jail = Jail(process, reader, writer, ConfinementReport(seccomp=True))
        its.sendall(sent)
        its.shutdown(socket.SHUT_WR)
        try:
            return await jail.run(TWICE)
        finally:
            await jail.end()


def test_a_warden_that_does_as_it_should_is_believed() -> None:
    """Else the tests below would show nothing."""
    expected = Execution(ending="finished", returned=(CallResult(value=1), CallResult(fault="raised")))
    assert asyncio.run(run_with(RIGHT)) == expected


@pytest.mark.parametrize("sent", WRONG.values(), ids=WRONG)
def test_one_that_misbehaves_is_our_failure(sent: bytes) -> None:
    outcome = asyncio.run(run_with(sent))
    assert (type(outcome), getattr(outcome, "suspect", None)) == (JailLost, False)


@pytest.mark.parametrize("generation", [0, 1, -1], ids=["warden", "supervisor", "program"])
async def test_a_program_whose_jail_is_killed_is_run_again(generation: int) -> None:
    """Programs cannot signal one another, so that was not its fault."""
    waiting = Program(source="import time\ntime.sleep(.8)\ndef f(): return 1", function="f", calls=((),))
    async with closed_after(JailedPrograms(1)) as programs:
        running, processes = await begun(programs, waiting)
        os.kill(sorted(processes)[generation], signal.SIGKILL)
        assert (await running).ending == "finished"


WAITS_THE_LAST_TIME = "import time\ndef f(x):\n  if x == 4: time.sleep(600)\n  return x"


@pytest.mark.parametrize("limits", [ProgramLimits(idle_seconds=0.3), ProgramLimits(seconds=0.3)])
def test_what_was_answered_before_the_clock_ran_out_is_returned(jailed: Jails, limits: ProgramLimits) -> None:
    seen = jailed.run(WAITS_THE_LAST_TIME, *[(number,) for number in range(6)], limits=limits)
    assert (seen.ending.endswith("seconds"), [one.value for one in seen.returned]) == (True, [0, 1, 2, 3])
