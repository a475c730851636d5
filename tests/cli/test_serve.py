"""Starting: what it says, who may come in, and the ports and sockets that it takes."""

import base64
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer

from app.cli.serve import HeldPort, serve, wait_until_ready
from app.domain.values import Frozen
from app.terminal.client import find_gateway_url
from tests.support.serving import ROOT, free_port, serving
from tests.support.small_servers import Handler, Server, running
from tests.support.tables import read_table


class Tables(Frozen):
    opened: tuple[tuple[str, str], ...]
    wrong: tuple[tuple[str, str, str], ...]
    sockets: str
    arenas: str


TABLES = read_table(__file__, "serve.yaml", Tables)


def test_beyond_loopback_a_key_is_made_and_shown_once(tmp_path: Path) -> None:
    beyond = {"ATROPOS_ENVS_HOST": "0.0.0.0"}
    with serving(tmp_path, settings=beyond, python=sys.executable, migrated=False) as gateway:
        log = (tmp_path / "gateway.log").read_text()
        key = re.findall(r"gw_[\w-]{20,}", log)
        basic = base64.b64encode(f"me:{key[0]}".encode()).decode()
        statuses = {
            who: httpx.get(f"{gateway.url}/envs", headers=headers).status_code
            for who, headers in {
                "nobody": {},
                "stranger": {"Authorization": "Bearer gw_wrong"},
                "bearer": {"Authorization": f"Bearer {key[0]}"},
                "basic": {"Authorization": f"Basic {basic}"},
            }.items()
        }
    with serving(tmp_path, settings=beyond) as again:
        later = httpx.get(f"{again.url}/envs", headers={"Authorization": f"Bearer {key[0]}"}).status_code
    shown = re.findall(r"gw_[\w-]{20,}", (tmp_path / "gateway.log").read_text())
    assert (statuses, later, shown) == ({"nobody": 401, "stranger": 401, "bearer": 200, "basic": 200}, 200, key[:1])


@pytest.mark.parametrize(("statuses", "ready"), [([503, 503, 200], True), ([503], False)])
def test_the_address_is_told_once_the_service_is_ready(statuses: list[int], ready: bool) -> None:
    left = statuses.copy()

    class Starting(Handler):
        def do_GET(self) -> None:
            self.answer(status=left.pop(0) if len(left) > 1 else left[0])

    with running(Server(Starting)) as server:
        told = wait_until_ready("127.0.0.1", server.server_port, 5.0 if ready else 0.2)
    assert (told, left) == (ready, statuses[-1:])


@pytest.mark.parametrize(("host", "url"), TABLES.opened)
def test_the_address_can_be_opened_on_this_machine(monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setenv("ATROPOS_ENVS_HOST", host)
    assert find_gateway_url() == url


def test_an_address_that_nobody_can_listen_on_is_named_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        serve(host="2001:db8::7", port=8000)
    assert capsys.readouterr().err.startswith("cannot listen on [2001:db8::7]:8000: ")


@pytest.mark.parametrize(("variable", "value", "says"), TABLES.wrong)
def test_a_wrong_setting_stops_it_with_one_line(tmp_path: Path, variable: str, value: str, says: str) -> None:
    command = [sys.executable, "-m", "app.cli", "serve"]
    places = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    environment = {**places, "ATROPOS_ENVS_PORT": str(free_port()), variable: value}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, says in ran.stderr, "Traceback" in ran.stderr) == (2, True, False)


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_each_process_gets_a_socket_of_its_own_at_the_port(family: int, host: str) -> None:
    held = HeldPort.take_over(socket.create_server((host, 0), family=family))
    with held, send(held) as first, send(held) as second:
        first.listen()
        second.listen()
        for _ in range(40):
            socket.create_connection(held.getsockname()[:2], timeout=5).close()
        accepted = [_count_waiting(first), _count_waiting(second)]
    assert (sum(accepted), min(accepted) > 0) == (40, True)


def test_nobody_else_can_serve_at_a_port_that_is_served() -> None:
    held = HeldPort.take_over(socket.create_server(("127.0.0.1", 0)))
    with held, send(held) as serving:
        serving.listen()
        with pytest.raises(OSError, match="in use"):
            socket.create_server(held.getsockname())


def send(held: HeldPort) -> socket.socket:
    """As to another process."""
    received: socket.socket = pickle.loads(pickle.dumps(held))  # noqa: S301  # our own
    return received


def _count_waiting(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_as_many_as_the_system_allows() -> None:
    program = f"from app.cli.serve import ENOUGH, allow_many_sockets\n{TABLES.sockets}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


def test_freed_memory_is_kept_for_two_arenas_whatever_the_number_of_threads(tmp_path: Path) -> None:
    program = f"from app.cli.serve import keep_little_freed_memory\n{TABLES.arenas}"
    told = tmp_path / "heaps.xml"
    subprocess.run([sys.executable, "-c", program, told], check=True, cwd=ROOT)
    assert len(re.findall("<heap nr=", told.read_text())) <= 2
