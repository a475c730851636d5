"""Replies in OpenAI's form, whole and as events. What gates notice stands in the field `play` of the last choice."""

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from app.domain.errors import GatewayError
from app.ports.playing import Chunk
from app.service.play.play_service import PolicyAnswer
from app.service.play.thoughts import ThoughtSplitter, split_thoughts

DONE: Final = b"data: [DONE]\n\n"
_KEPT: Final = ("usage", "system_fingerprint")


def write_event(event: JsonValue) -> bytes:
    """One line of ASCII: no character is split, and clients that cut at line ends find one event."""
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def describe_error(error: GatewayError) -> dict[str, JsonValue]:
    """As clients of OpenAI's read it. Never with the type `insufficient_quota`, at which they speak of credits."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    told = error.detail if error.field is None else f"{error.field}: {error.detail}"
    return {"error": {"message": told, "type": kind, "code": error.code, "param": error.field}}


@dataclass
class ReplyWriter:
    """Renames what a policy sends, and remembers it. One id, time and model for all events of a reply."""

    model: str
    reply_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    reasons: dict[int, str] = field(default_factory=dict)
    splitters: dict[int, ThoughtSplitter] = field(default_factory=dict)
    held: list[Chunk] = field(default_factory=list)
    """Events that end a choice, and all behind them that hold no text: they wait for the gates."""

    def take(self, event: Chunk) -> Chunk | None:
        """What is sent at once; None for what is held back."""
        choices = event.get("choices")
        given = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
        listed = [self._read(one) for one in given]
        chunk = self._rename(event, "chat.completion.chunk", listed)
        if any(choice.get("finish_reason") for choice in listed) or (not listed and event.get("usage")):
            texts = [self._split_text(choice) for choice in listed]
            self.held.append(self._rename(event, "chat.completion.chunk", [rest for _, rest in texts]))
            said = [told for told, _ in texts if told is not None]
            return self._rename({}, "chat.completion.chunk", said) if said else None
        return chunk if listed else None

    def finish(self, noticed: JsonValue) -> list[Chunk]:
        """The last events, with what was noticed in the last that ends a choice."""
        place = max((place for place, one in enumerate(self.held) if one["choices"]), default=None)
        if place is None:
            choice: JsonValue = {"index": 0, "delta": {}, "finish_reason": None}  # the policy told none
            self.held.insert(0, self._rename({}, "chat.completion.chunk", [choice]))
            place = 0
        self.held[place] = {**self.held[place], "play": noticed}
        return [*self._end_texts(), *self.held]

    def complete(self, answer: Chunk, noticed: JsonValue) -> Chunk:
        """A whole reply."""
        choices = answer.get("choices")
        listed = [_move_thoughts(one) for one in choices] if isinstance(choices, list) else []
        return {**self._rename(answer, "chat.completion", listed), "play": noticed}

    def list_spoken(self, seconds: float) -> list[PolicyAnswer]:
        """Without thoughts, also where they were told as words: a closing tag alone says too late what they were."""
        return [
            PolicyAnswer(split_thoughts(splitter.text)[1], self.reasons.get(index), seconds)
            for index, splitter in sorted(self.splitters.items())
        ]

    def _read(self, choice: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Remembers what is said, and moves thoughts to where clients look for them."""
        index, delta, reason = choice.get("index"), choice.get("delta"), choice.get("finish_reason")
        place = index if isinstance(index, int) else 0
        splitter = self.splitters.setdefault(place, ThoughtSplitter())
        given = delta if isinstance(delta, dict) else {}
        content = given.get("content")
        thought, text = "", ""
        if isinstance(content, str):
            thought, text = splitter.feed(content)
        if isinstance(reason, str) and reason:  # some servers send an empty one until the end
            self.reasons[place] = reason
            more, rest = splitter.end()
            thought, text = thought + more, text + rest
        if text == (content or "") and not thought:
            return choice
        kept = {name: value for name, value in choice.items() if name != "logprobs" or not splitter.has_ended}
        return {**kept, "delta": {**given, **_build_delta(thought, text)}}

    def _end_texts(self) -> list[Chunk]:
        """What was held back of choices whose end nobody told."""
        rests = [(place, *splitter.end()) for place, splitter in self.splitters.items()]
        told: list[JsonValue] = [
            {"index": place, "delta": _build_delta(thought, text), "finish_reason": None}
            for place, thought, text in rests
            if thought or text
        ]
        return [self._rename({}, "chat.completion.chunk", told)] if told else []

    def _split_text(self, choice: dict[str, JsonValue]) -> tuple[JsonValue | None, JsonValue]:
        """A text that comes with the end of its choice is not held back."""
        delta = choice.get("delta")
        if not isinstance(delta, dict) or not (delta.get("content") or delta.get("reasoning_content")):
            return None, choice
        return {**choice, "finish_reason": None}, {
            "index": choice.get("index", 0),
            "delta": {},
            "finish_reason": choice.get("finish_reason"),
        }

    def _rename(self, event: Chunk, kind: str, choices: Sequence[JsonValue]) -> Chunk:
        kept: Chunk = {name: event[name] for name in _KEPT if name in event}
        head: Chunk = {"id": self.reply_id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": [*choices], **kept}


def _move_thoughts(choice: JsonValue) -> JsonValue:
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict) or not isinstance(content, str):
        return choice
    thought, said = split_thoughts(content)
    return choice if said == content else {**choice, "message": {**message, **_build_delta(thought, said)}}


def _build_delta(thought: str, text: str) -> dict[str, JsonValue]:
    return {"content": text, **({"reasoning_content": thought} if thought else {})}
