"""Ports that several processes share."""

import pickle
import socket

import pytest

from app.cli.serve import HeldPort


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
