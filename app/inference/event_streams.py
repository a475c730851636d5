"""Chat completions that were sent as a stream of events, put together again."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.inference.endpoint import NoReply
from app.inference.server_errors import tells_error

_TEXT_FIELDS: Final = ("content", "refusal", "reasoning_content", "reasoning")
_NAME_FIELDS: Final = ("model", "system_fingerprint")


def is_event_stream(body: bytes) -> bool:
    head = body.lstrip()
    return head.startswith((b"data:", b"event:", b"id:", b":"))


def join_event_stream(body: bytes) -> dict[str, object] | None:
    """The first choice and the usage in the form of an answer that was not streamed, or the error that ended the
    stream. None for a stream that broke off. Never raises."""
    joined = _JoinedStream()
    ended = False
    for data in _iterate_data(body):
        if data == "[DONE]":
            ended = True
            break
        event = _parse_event(data)
        if event is None:
            continue
        if event.get("error"):
            return event
        joined.add_event(event)
    return joined.build_completion() if joined.finish_reason or (ended and joined.found) else None


@dataclass
class _JoinedStream:
    found: bool = False
    names: dict[str, object] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: object = None
    error: object = None
    texts: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _TEXT_FIELDS})
    tokens: list[object] = field(default_factory=list)

    def add_event(self, event: Mapping[str, object]) -> None:
        self.usage = event.get("usage") or self.usage
        self.names |= {name: event[name] for name in _NAME_FIELDS if event.get(name)}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self.found = True
        self.error = choice.get("error") or self.error
        reason = choice.get("finish_reason")
        self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            for name, parts in self.texts.items():
                parts.append(_extract_text(delta.get(name)))
        logprobs = choice.get("logprobs")
        listed = logprobs.get("content") if isinstance(logprobs, dict) else None
        self.tokens += listed if isinstance(listed, list) else []

    def build_completion(self) -> dict[str, object]:
        message = {name: text for name, parts in self.texts.items() if (text := "".join(parts))}
        choice: dict[str, object] = {"message": message, "finish_reason": self.finish_reason, "error": self.error}
        if self.tokens:
            choice["logprobs"] = {"content": self.tokens}
        return {"choices": [choice], "usage": self.usage, **self.names}


def _iterate_data(body: bytes) -> Iterator[str]:
    """The data of each event, which is one line here. Comments and other fields are passed over."""
    for line in body.decode("utf-8", "replace").splitlines():
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _parse_event(data: str) -> dict[str, object] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _extract_text(value: object) -> str:
    """Of a text, or of a list of parts."""
    if isinstance(value, list):
        texts = (part.get("text") for part in value if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else ""


async def iterate_events(body: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, object], None]:
    """The events of a stream, as they come, up to `[DONE]`. A whole chat completion, of a server that cannot stream, is
    one event, and so is an error. NoReply where the stream ends before its end was told, or says nothing."""
    waiting, plain = b"", None
    ends = _StreamEnds()
    async for part in body:
        waiting += part
        if plain is None and waiting.strip():
            plain = waiting.lstrip().startswith(b"{")
        if plain:
            continue
        *lines, waiting = waiting.split(b"\n")
        for data in (line[5:].strip() for line in lines if line.startswith(b"data:")):
            if data == b"[DONE]":
                ends.require_choices()
                return
            event = _parse_event(data.decode("utf-8", "replace"))
            if event is not None:
                ends.add_event(event)
                yield event
    if plain:
        yield _read_whole(waiting)
    else:
        ends.require_finished()


@dataclass
class _StreamEnds:
    """Which choices of a stream have ended, by index."""

    ended: dict[int, bool] = field(default_factory=dict)

    def add_event(self, event: Mapping[str, object]) -> None:
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                place = index if isinstance(index := choice.get("index"), int) else 0
                self.ended[place] = self.ended.get(place, False) or bool(choice.get("finish_reason"))

    def require_choices(self) -> None:
        if not self.ended:
            raise NoReply("broken", "the stream holds no choices")

    def require_finished(self) -> None:
        if not self.ended or not all(self.ended.values()):
            raise NoReply("broken", "the stream ended before the reply")


def _read_whole(body: bytes) -> dict[str, object]:
    whole = _parse_event(body.decode("utf-8", "replace"))
    if whole is not None and tells_error(whole):
        return whole
    choices = None if whole is None else whole.get("choices")
    listed = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    if whole is None or not listed:
        raise NoReply("broken", "the server did not return a chat completion")
    changed = [{**choice, "delta": choice.get("message")} for choice in listed]
    return {**whole, "choices": [{k: v for k, v in choice.items() if k != "message"} for choice in changed]}
