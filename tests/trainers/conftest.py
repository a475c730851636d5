"""Our API of Atropos on loopback, and what environments of the released package need."""

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as chat_serving
from tests.support.reward_trainers import Judge, Judged, judged_gateway
from tests.support.serving import Served, serving
from tests.trainers.installed import INSTALLED
from tests.trainers.tokenizer import write_tokenizer


def completed(prompt: list[int], number: int) -> list[int]:
    """Letters that tell the prompt and the completion's number."""
    letter = ord("a") + sum(prompt) % 26
    return [letter] * (number + 2) + [ord("A") + number]


def generate(_: int, received: Received) -> Reply:
    prompt, count = received.body["prompt"], received.body.get("n", 1)
    assert received.path == "/generate"
    assert isinstance(prompt, dict)
    assert isinstance(count, int)
    replies = [completed(prompt["prompt_token_ids"], number) for number in range(count)]
    logprobs = [[[{str(token): -place / 8}] for place, token in enumerate(reply)] for reply in replies]
    body = {
        "text": [bytes(reply).decode() for reply in replies],
        "logprobs": logprobs,
        "finish_reasons": ["stop"] * count,
    }
    return Reply(json.dumps(body).encode())


@contextmanager
def serving_policy() -> Iterator[str]:
    with chat_serving(generate) as server:
        yield server.url


@contextmanager
def away(judge: Judge) -> Iterator[None]:
    """It judges nothing meanwhile."""
    judge.refusals = math.inf
    try:
        yield
    finally:
        judge.refusals = 0


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    """A module that needs more than atroposlib says so in NEEDS."""
    for needed in getattr(request.module, "NEEDS", (INSTALLED / ".installed",)):
        if not needed.exists():
            package = f"{needed.parent.name}{needed.suffix or needed.name}"
            pytest.skip(f"{package} is not there: `make test-trainers` installs what these tests need and runs them")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "bytes")


@pytest.fixture(scope="session")
def policy() -> Iterator[str]:
    with serving_policy() as url:
        yield url


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("gateway")) as served:
        yield served


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    with judged_gateway(tmp_path_factory.mktemp("judged")) as judged:
        yield judged


@pytest.fixture
def ours(gateway: Served, request: pytest.FixtureRequest) -> str:
    """The API of a run for this test alone."""
    run = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    return f"{gateway.url}/compat/atropos/{run}"
