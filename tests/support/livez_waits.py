"""How long others wait while a request is worked on."""

import threading
import time
from contextlib import closing
from http.client import HTTPConnection


def measure_wait(url: str, path: str, body: bytes) -> tuple[int, float]:
    """The status of a POST, and the longest that `/livez` was waited for meanwhile."""
    waits: list[float] = []
    answered = threading.Event()

    def look() -> None:
        with closing(HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
            while not answered.is_set():
                began = time.perf_counter()
                connection.request("GET", "/livez")
                connection.getresponse().read()
                waits.append(time.perf_counter() - began)
                time.sleep(0.005)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with closing(HTTPConnection(url.removeprefix("http://"), timeout=300)) as connection:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            status = response.status
    finally:
        answered.set()
        looking.join()
    return status, max(waits)
