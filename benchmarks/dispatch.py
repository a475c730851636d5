"""Tasks handed out per second over HTTP: leased and by cursor."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import Load, post, send_all
from tests.support.serving import serving

BATCH_SIZE = 32
REQUESTS = 200
CONNECTIONS = 4
LIVEZ_FACTOR = 5


@dataclass(frozen=True)
class HandOut:
    leased: Load
    by_cursor: Load
    livez: Load

    @staticmethod
    def tasks_per_second(load: Load) -> float:
        return BATCH_SIZE * REQUESTS / load.seconds


def measure() -> HandOut:
    path = "/envs/gsm8k/next-batch"
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), python=sys.executable) as gateway:
        lease = post(path, {"batch_size": BATCH_SIZE, "run": "bench"})
        cursors = [post(path, {"batch_size": BATCH_SIZE, "cursor": n * BATCH_SIZE}) for n in range(REQUESTS)]
        nothing = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        send_all(gateway.url, [lease] * 5, CONNECTIONS)
        return HandOut(
            leased=send_all(gateway.url, [lease] * REQUESTS, CONNECTIONS),
            by_cursor=send_all(gateway.url, cursors, CONNECTIONS),
            livez=send_all(gateway.url, [nothing] * REQUESTS * LIVEZ_FACTOR, CONNECTIONS),
        )
