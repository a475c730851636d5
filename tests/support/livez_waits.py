"""How long others wait while a request is worked on."""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection


@dataclass
class Waits:
    """For a server's `/livez`, in seconds."""

    seconds: list[float] = field(default_factory=list)

    @property
    def longest(self) -> float:
        return max(self.seconds)


def measure_wait(url: str, path: str, body: bytes) -> tuple[int, float]:
    """The status of a POST, and the longest that `/livez` was waited for meanwhile."""
    with asking_livez(url) as waits:
        status = post(url, path, body)
    return status, waits.longest


@contextlib.contextmanager
def asking_livez(url: str) -> Iterator[Waits]:
    """Asks for `/livez` again and again until the block ends."""
    waits, ended = Waits(), threading.Event()

    def ask() -> None:
        with closing(HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
            while not waits.seconds or not ended.is_set():
                began = time.perf_counter()
                connection.request("GET", "/livez")
                connection.getresponse().read()
                waits.seconds.append(time.perf_counter() - began)
                time.sleep(0.005)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        ended.set()
        asking.join()


def post(url: str, path: str, body: bytes) -> int:
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=300)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
