"""Foreign programs: what their jail leaves them and what it keeps away, and that they end with the service."""

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.ports.children import ChildProgram
from app.sandbox.children import JailedChildren
from tests.support.serving import ROOT

NOSY = Path(__file__).with_name("nosy_child.py")
PYTHON = Path(sys.executable)


async def ask(program: ChildProgram, order: object) -> tuple[object, bytes]:
    """Its answer, and what it printed. Skips where this machine has no jail for it."""
    child = await JailedChildren({"GIVEN": "1"}.get).start(program)
    try:
        child.writer.write(json.dumps(order).encode() + b"\n")
        line, printed = await child.reader.readline(), await child.log.readline()
        if not line and "no jail" in (ending := await child.wait()):
            pytest.skip(ending)
        return json.loads(line), printed
    finally:
        await child.end()


@pytest.mark.parametrize("trusted", [False, True])
async def test_the_jail_leaves_it_packages_processes_and_a_loopback(tmp_path: Path, *, trusted: bool) -> None:
    """Without one each attempt succeeds, but for the limits."""
    given, database = tmp_path / "given", tmp_path / "database"
    given.mkdir()
    database.write_text("kept", encoding="ascii")
    reads, writes = [str(given), "/usr/lib", str(database), str(ROOT / "app")], ["its own file", str(given / "new")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        order = {
            "read": reads,
            "write": writes,
            "port": server.getsockname()[1],
            "process": os.getpid(),
            "too_much_mb": 2048,
        }
        told = await ask(ChildProgram(PYTHON, NOSY, folders=(given,), memory_mb=2048, trusted=trusted), order)
    expected = {
        "reads": reads if trusted else reads[:2],
        "writes": writes if trusted else writes[:1],
        "connects": trusted,
        "signals": trusted,
        "talks to itself": True,
        "starts processes": 7,
        "maps too much": False,
    }
    assert told == (expected, b"a print\n")


def test_a_child_dies_with_the_service() -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from app.ports.children import ChildProgram\n"
        "from app.sandbox.children import JailedChildren\n"
        "async def main():\n"
        "    program = ChildProgram(pathlib.Path(sys.executable), pathlib.Path(sys.argv[1]), trusted=True)\n"
        "    child = await JailedChildren({}.get).start(program)\n"
        "    print(child.id, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    service = subprocess.Popen([sys.executable, "-c", program, NOSY], cwd=ROOT, stdout=subprocess.PIPE)
    with service:
        assert service.stdout is not None
        child = os.pidfd_open(int(service.stdout.readline()))
        service.kill()
        ended = select.select([child], [], [], 60)[0]
        os.close(child)
    assert ended == [child]
