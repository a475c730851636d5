"""A server that reads a body and does nothing with it: what is left of a figure is the load generator's.

`python -m benchmarks.null_server PORT`
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.support.serving import free_port

_BODY = b'{"status":"received"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]


async def received(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


@contextlib.contextmanager
def doing_nothing() -> Iterator[str]:
    """Its URL."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.null_server", str(port)])
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(url)
                break
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    uvicorn.run(received, port=int(sys.argv[1]), log_config=None, access_log=False, lifespan="off")
