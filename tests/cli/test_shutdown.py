"""How long a service that was told to stop waits for requests under way."""

import signal
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.serving import serving

HALF = (
    b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    b"Expect: 100-continue\r\n\r\n{"
)
"""The service answers 100 once it reads the body: then the request is under way."""


@pytest.mark.parametrize(("seconds", "shortest", "longest"), [("0", 0.0, 2.5), ("3", 2.5, 15.0)])
def test_requests_under_way_have_as_long_as_the_setting_says(
    tmp_path: Path, seconds: str, shortest: float, longest: float
) -> None:
    with serving(tmp_path, settings={"ATROPOS_ENVS_SHUTDOWN_SECONDS": seconds}) as served:
        address = urlsplit(served.url)
        with socket.create_connection((str(address.hostname), address.port or 80)) as asking:
            asking.sendall(HALF)
            assert asking.recv(100).startswith(b"HTTP/1.1 100 ")
            began = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            served.process.wait()
            taken = time.monotonic() - began
    assert shortest <= taken <= longest


def test_what_a_stop_breaks_off_may_be_sent_again(tmp_path: Path) -> None:
    """A sample that waits for its siblings."""
    with serving(tmp_path, settings={"ATROPOS_ENVS_SHUTDOWN_SECONDS": "0"}) as served, ThreadPoolExecutor(1) as asking:
        batch = httpx.post(f"{served.url}/envs/countdown/next-batch", json={"batch_size": 1}, timeout=60).json()
        sample = {"prompt": "", "response": "1", "label": batch["tasks"][0]["task_id"]}
        asked = asking.submit(
            httpx.post, f"{served.url}/compat/slime/countdown?group_size=2&gather_seconds=90", json=sample, timeout=60
        )
        with closing(sqlite3.connect(served.database)) as store:
            while not store.execute("SELECT count(*) FROM part_members").fetchone()[0]:
                time.sleep(0.05)
        served.process.send_signal(signal.SIGTERM)
        answer = asked.result()
    told = {name: answer.headers.get(name) for name in ("retry-after", "connection", "content-type")}
    assert (answer.status_code, told, answer.json()["code"]) == (
        503,
        {"retry-after": "1", "connection": "close", "content-type": "application/problem+json"},
        "unavailable",
    )
