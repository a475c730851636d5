"""How long the smallest question takes: `python -m benchmarks.waiting URL` asks until its input ends.

A process of its own, so that no wait for the load generator counts as one for the server.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import httpx

SECONDS_BETWEEN = 0.005


@contextlib.contextmanager
def watched(url: str) -> Iterator[Callable[[], float]]:
    """Gives, once it is left, the longest wait in seconds."""
    command = [sys.executable, "-m", "benchmarks.waiting", url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # it has asked for the first time
    longest: list[float] = []
    try:
        yield lambda: longest[0]
    finally:
        told, _ = process.communicate()
        longest.append(float(told or "nan"))


def _ask(url: str) -> None:
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    longest = 0.0
    with httpx.Client(timeout=300) as client:
        client.get(url)
        print("asking", flush=True)
        while not over.is_set():
            began = time.perf_counter()
            client.get(url)
            longest = max(longest, time.perf_counter() - began)
            time.sleep(SECONDS_BETWEEN)
    print(longest)


if __name__ == "__main__":
    _ask(sys.argv[1])
