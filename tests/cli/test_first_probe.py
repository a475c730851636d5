"""What a command that samples asks a policy's server first."""

import json
from contextlib import aclosing

import pytest

from app.cli.policies import probe_server
from app.inference.connection import Connection, Credentials, Endpoint
from app.inference.policies import InferenceServer
from app.terminal.client import Retrier
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import completion

BUSY = json.dumps({"error": {"message": "Slow down", "code": 429}}).encode()


async def test_a_busy_server_is_waited_for_and_that_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(number: int, received: Received) -> Reply:
        return Reply(BUSY) if number < 3 else completion("Hi.")

    with serving(answer, models=["m"]) as server:
        async with aclosing(Connection(Endpoint(server.url, Credentials(None)))) as connection:
            _, reply = await probe_server(InferenceServer(connection, "m"), Retrier(most_seconds=0.01))
    assert reply.message.content == "Hi."
    said = capsys.readouterr().err
    assert (said.count("waiting for the policy's server"), "Slow down" in said) == (1, True)
