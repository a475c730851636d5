"""A client of the Open Reward Standard that reads its streams as the released one does."""

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

NUMBERS = itertools.count()


@dataclass
class Ors:
    """One session after another."""

    url: str
    options: dict[str, str]
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, body: object = None) -> httpx.Response:
        return httpx.post(self.url + path, json=body, params=self.options, headers=self.headers, timeout=60)

    def get(self, path: str) -> Any:
        reply = httpx.get(self.url + path, params=self.options, headers=self.headers, timeout=60)
        return reply.raise_for_status().json()

    def begin(self, index: int, split: str = "train") -> None:
        self.headers = {"X-Session-ID": f"session-{next(NUMBERS)}"}
        self.post("/create", {"split": split, "index": index}).raise_for_status()

    def call(self, name: str, task_id: str | None = None, **arguments: Any) -> Any:
        return self.send_call(name, arguments, task_id)

    def send_call(self, name: str, arguments: Any, task_id: str | None = None) -> Any:
        body = {"name": name, "input": arguments} | ({} if task_id is None else {"task_id": task_id})
        return read_stream(self.post("/call", body).raise_for_status().text)

    def finish(self, name: str, **arguments: Any) -> dict[str, Any]:
        told = self.call(name, **arguments)
        assert (told["ok"], told["output"]["finished"]) == (True, True)
        return dict(told["output"])


def read_stream(text: str) -> Any:
    """What the stream ends with. Spaces at the beginning of a piece are lost, as in the released client."""
    told = [dict(line.split(":", 1) for line in one.splitlines()) for one in text.split("\n\n") if one]
    events = [one for one in told if "event" in one]  # others are comments, which keep the stream alive
    pieces = [one["data"].lstrip() for one in events if one["event"].strip() in {"chunk", "end"}]
    assert events[0]["event"].strip() == "task_id"
    return json.loads("".join(pieces)) if pieces else None
