"""Servers of judges as people have them, as tests/judges/vendors.yaml tells them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tests.support.chat_server import ChatServer, Received, Reply, serving
from tests.support.judge_cases import GOOD

FILE = Path(__file__).parents[1] / "judges" / "vendors.yaml"
ANSWER = "$ANSWER"
LIMIT = 500
"""The tokens of an answer that these judges are configured with."""
Fields = dict[str, JsonValue]
Source = Annotated[str, Field(pattern=r"^(https://|[a-z]+ [0-9.]+, )")]


class Refusal(BaseModel):
    """What is sent in place of an answer, `when` the request is so, and only to the first calls where `times` says."""

    model_config = ConfigDict(extra="forbid")
    source: Source
    body: JsonValue = None
    reply: Fields = {}
    status: int = 400
    when: str = ""
    times: int | None = None

    def applies(self, sent: Mapping[str, object], count: int) -> bool:
        if self.times is not None and count > self.times:
            return False
        said, _, wanted = self.when.partition(" ")
        form, messages = sent.get("response_format"), sent["messages"]
        assert isinstance(messages, list)
        return {
            "": True,
            "with": wanted in sent,
            "without": sent.get(wanted) is not True,
            "role": any(message["role"] == wanted for message in messages),
            "format": isinstance(form, dict) and form["type"] == wanted,
            "top_logprobs": str(sent.get("top_logprobs")) == wanted,
        }[said]


class Vendor(BaseModel):
    """One case of one server, and what a judge makes of it in its first and second judgement."""

    model_config = ConfigDict(extra="forbid")
    server: str
    case: str
    source: Source
    reply: Fields = {}
    text: str = ANSWER
    refusals: tuple[Refusal, ...] = ()
    settings: Fields = {}
    path: str = "/v1"
    streams: bool = False
    calls: tuple[int, int] = (1, 1)
    changes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    error: str | None = None

    def answer(self, received: Received, count: int) -> Reply:
        if not received.path.partition("?")[0].endswith(f"{self.path}/chat/completions"):
            return Reply(b'{"error":{"message":"Invalid URL","type":"invalid_request_error"}}', 404)
        for refusal in self.refusals:
            if refusal.applies(received.body, count):
                body = complete(GOOD, **refusal.reply) if refusal.body is None else json.dumps(refusal.body)
                return Reply(body.encode(), refusal.status)
        text = self.text.replace(ANSWER, GOOD)
        if self.streams:
            return Reply(_build_stream(text), headers={"content-type": "text/event-stream"})
        return Reply(complete(text, **self.reply).encode())


@cache
def read_vendors() -> tuple[Vendor, ...]:
    return tuple(map(Vendor.model_validate, yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)))


def complete(
    text: str,
    message: JsonValue = None,
    choice: JsonValue = None,
    usage: JsonValue = None,
    logprobs: JsonValue = False,
    **more: JsonValue,
) -> str:
    """A chat completion in the form that all of them share. The rest of `more` are further fields."""
    tokens = {"content": [{"token": GOOD, "logprob": -0.1, "bytes": None, "top_logprobs": []}]} if logprobs else None
    given: dict[str, object] = {
        "index": 0,
        "message": message or {"role": "assistant", "content": ANSWER},
        "logprobs": tokens,
        "finish_reason": "stop",
        **(choice if isinstance(choice, dict) else {}),
    }
    shared = {"id": "chatcmpl-123", "object": "chat.completion", "created": 1694268190, "model": "judge-1"}
    usage = usage or {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
    return json.dumps({**shared, "choices": [given], "usage": usage, **more}).replace(f'"{ANSWER}"', json.dumps(text))


@contextmanager
def serving_vendors() -> Iterator[ChatServer]:
    """All of them on one port, each under its number."""
    asked = [0] * len(read_vendors())

    def answer(_: int, received: Received) -> Reply:
        number = int(received.path.split("/")[1])
        asked[number] += 1
        return read_vendors()[number].answer(received, asked[number])

    with serving(answer) as server:
        yield server


def _build_stream(text: str) -> bytes:
    """As in https://openrouter.ai/docs/api_reference/streaming and OpenAI's reference: comments, parts, then usage."""
    parts = [{"role": "assistant", "content": ""}, *({"content": text[at : at + 40]} for at in range(0, len(text), 40))]
    events: list[dict[str, object]] = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": part, "finish_reason": None}]}
        for part in parts
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events.append({"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 200}})
    lines = [": OPENROUTER PROCESSING", "", *(f"data: {json.dumps(event)}\n" for event in events), "data: [DONE]", ""]
    return "\n".join(lines).encode()
