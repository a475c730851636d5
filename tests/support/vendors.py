"""Servers of judges as people have them: what each refuses, ignores or says in a form of its own.

A body is that of the published example or public issue whose address stands beside it, with the judge's answer in place
of the text. Where only the words of an error are public, they stand in the form of that server's errors. Numbers of
tokens are ours where a case is about them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.chat_server import ChatServer, Received, Reply, Script, serving
from tests.support.judge_cases import GOOD

Body = Mapping[str, object]
Condition = Callable[[Body], bool]

ANSWER = '"$ANSWER"'
LIMIT = 500
"""The tokens of an answer that these judges are configured with."""
OPENAI_EXAMPLE = "https://platform.openai.com/docs/api-reference/chat/object"


@dataclass(frozen=True)
class Refusal:
    """What is sent in place of an answer, `when` the request is so, and only to the first calls where `times` says."""

    body: str
    source: str
    status: int = 400
    when: Condition = lambda body: True
    times: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Vendor:
    """One case of one server, and what a judge makes of it in its first and second judgement."""

    server: str
    case: str
    body: str
    source: str
    refusals: tuple[Refusal, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    path: str = "/v1"
    text: str = GOOD
    streams: bool = False
    calls: tuple[int, int] = (1, 1)
    changes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    error: str | None = None

    @property
    def name(self) -> str:
        return f"{self.server}: {self.case}"


def completion(message: str = f'{{"role":"assistant","content":{ANSWER}}}', **more: object) -> str:
    """A chat completion in the form that all of them share. The rest of `more` are further fields."""
    usage = more.pop("usage", {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200})
    choice = {"index": 0, "message": json.loads(message), "logprobs": None, "finish_reason": "stop"}
    choice |= more.pop("choice", {})  # type: ignore[call-overload]
    shared = {"id": "chatcmpl-123", "object": "chat.completion", "created": 1694268190, "model": "judge-1"}
    return json.dumps({**shared, "choices": [choice], "usage": usage, **more})


LOGPROBS = {"content": [{"token": GOOD, "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
WITH_LOGPROBS = completion(choice={"logprobs": LOGPROBS})


def has(*names: str) -> Condition:
    return lambda body: any(name in body for name in names)


def has_role(role: str) -> Condition:
    def check(body: Body) -> bool:
        messages = body["messages"]
        assert isinstance(messages, list)
        return any(message["role"] == role for message in messages)

    return check


def has_format(kind: str) -> Condition:
    def check(body: Body) -> bool:
        wanted = body.get("response_format")
        return isinstance(wanted, dict) and wanted["type"] == kind

    return check


def lacks_stream(body: Body) -> bool:
    return body.get("stream") is not True


@contextmanager
def serving_vendors(vendors: Sequence[Vendor]) -> Iterator[ChatServer]:
    """All of them on one port, each under its number."""
    with serving(_build_script(vendors)) as server:
        yield server


def build_url(server: ChatServer, vendors: Sequence[Vendor], vendor: Vendor) -> str:
    return f"{server.url.removesuffix('/v1')}/{vendors.index(vendor)}{vendor.path}"


def select_received(server: ChatServer, vendors: Sequence[Vendor], vendor: Vendor) -> list[Received]:
    return [sent for sent in server.received if sent.path.startswith(f"/{vendors.index(vendor)}/")]


def _build_script(vendors: Sequence[Vendor]) -> Script:
    asked = [0] * len(vendors)

    def answer(_: int, received: Received) -> Reply:
        number = int(received.path.split("/")[1])
        asked[number] += 1
        return _answer(vendors[number], received, asked[number])

    return answer


def _answer(vendor: Vendor, received: Received, count: int) -> Reply:
    if not received.path.partition("?")[0].endswith(f"{vendor.path}/chat/completions"):
        return Reply(b'{"error":{"message":"Invalid URL","type":"invalid_request_error"}}', 404)
    for refusal in vendor.refusals:
        if refusal.when(received.body) and (refusal.times is None or count <= refusal.times):
            return Reply(refusal.body.encode(), refusal.status, refusal.headers)
    if vendor.streams:
        return Reply(_build_stream(vendor.text), headers={"content-type": "text/event-stream"})
    return Reply(vendor.body.replace(ANSWER, json.dumps(vendor.text)).encode())


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
