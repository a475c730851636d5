"""A made-up inference server with the one endpoint that the released package asks vLLM for: token ids and logprobs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.chat_server import Received, Reply, serving


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
    with serving(generate) as server:
        yield server.url
