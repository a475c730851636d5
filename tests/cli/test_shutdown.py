"""How long a service that was told to stop waits for requests under way."""

import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.serving import serving

HALF = b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


@pytest.mark.parametrize(("seconds", "shortest", "longest"), [("0", 0.0, 2.5), ("3", 2.5, 15.0)])
def test_requests_under_way_have_as_long_as_the_setting_says(
    tmp_path: Path, seconds: str, shortest: float, longest: float
) -> None:
    with serving(tmp_path, settings={"ATROPOS_ENVS_SHUTDOWN_SECONDS": seconds}) as served:
        address = urlsplit(served.url)
        with socket.create_connection((str(address.hostname), address.port or 80)) as asking:
            asking.sendall(HALF)
            time.sleep(0.3)
            began = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            served.process.wait()
            taken = time.monotonic() - began
    assert shortest <= taken <= longest
