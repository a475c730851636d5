"""What a command that samples asks a policy's server first."""

import json
from contextlib import aclosing
from dataclasses import replace

import pytest

from app.cli.policies import probe_server
from app.inference.connection import Connection, Credentials, Endpoint
from app.inference.policies import InferenceServer
from app.terminal.client import Retrier
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import completion

BUSY = json.dumps({"error": {"message": "Slow down", "code": 429}}).encode()


@pytest.mark.parametrize(
    ("first", "quiet_seconds", "why"),
    [(Reply(BUSY), 30.0, "Slow down"), (replace(completion("Hi."), seconds=0.3), 0.01, "no reply for 0.01 s")],
)
async def test_a_busy_server_is_waited_for_and_that_is_said_once(
    first: Reply, quiet_seconds: float, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(number: int, received: Received) -> Reply:
        return first if number < 3 else completion("Hi.")

    with serving(answer, models=["m"]) as server:
        async with aclosing(Connection(Endpoint(server.url, Credentials(None)))) as connection:
            _, reply = await probe_server(InferenceServer(connection, "m"), Retrier(most_seconds=0.01), quiet_seconds)
    assert reply.message.content == "Hi."
    said = capsys.readouterr().err
    assert (said.count("waiting for the policy's server"), why in said) == (1, True)
