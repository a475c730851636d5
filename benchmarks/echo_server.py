"""A bare FastAPI route that takes a JSON object and returns it: what is left of a route without its work.

It validates nothing but that the body is an object, keeps nothing, has no middleware, and runs under uvicorn with the
settings of this service. `python -m benchmarks.echo_server PORT`
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.cli.serve import tune_garbage_collection
from benchmarks.server_trees import serving_command
from tests.support.serving import free_port

PATH = "/echo"

app = FastAPI()


@app.post(PATH)
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    return body


@contextlib.contextmanager
def echoing() -> Iterator[tuple[str, int]]:
    """Its URL, and the id of its process."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    with serving_command([sys.executable, "-m", "benchmarks.echo_server", str(port)], url) as pid:
        yield url, pid


if __name__ == "__main__":
    tune_garbage_collection()
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, server_header=False)
