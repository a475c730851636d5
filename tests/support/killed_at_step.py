"""`python -m tests.support.killed_at_step NUMBER`: a gateway that gets SIGKILL when it would answer this step of an
episode. All of the step is done by then, and nobody is told."""

import itertools
import os
import signal
import sys

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.main.application import create_app
from app.settings import read_settings


def kill_at_step(app: ASGIApp, number: int) -> ASGIApp:
    steps = itertools.count(1)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_or_die(message: Message) -> None:
            if message["type"] == "http.response.start" and scope["path"].endswith("/step") and next(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            await send(message)

        await app(scope, receive, send_or_die)

    return call


if __name__ == "__main__":
    settings = read_settings()
    app = kill_at_step(create_app(settings), int(sys.argv[1]))
    uvicorn.run(app, host=settings.host, port=settings.port, log_config=None)
