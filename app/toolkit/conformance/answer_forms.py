"""The answer within a right completion, and completions with another answer in its place."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.tasks import Completion, FunctionCall, Message, ToolCall

CALLS: Final = "calls"
WHOLE: Final = "whole"
_WRAPPERS: Final[Mapping[str, tuple[str, str]]] = {
    "tags": ("<answer>", "</answer>"),
    "box": ("\\boxed{", "}"),
    "hashes": ("#### ", ""),
    "block": ("```python\n", "\n```"),
    WHOLE: ("", ""),
}
"""By form: what stands around an answer."""
_FOUND: Final[Mapping[str, re.Pattern[str]]] = {
    "tags": re.compile(r"<answer>(?P<answer>.*?)</answer>", re.DOTALL),
    "box": re.compile(r"\\boxed\{(?P<answer>(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"),
    "hashes": re.compile(r"#### (?P<answer>.*)"),
    "block": re.compile(r"```\w*\n(?P<answer>.*?)\n?```", re.DOTALL),
}
_CALLS: Final[TypeAdapter[tuple[FunctionCall, ...]]] = TypeAdapter(tuple[FunctionCall, ...])


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer in one of the known forms; calls are written as JSON."""

    form: str
    text: str

    def build_message(self) -> Message | None:
        """The reply that holds this answer and nothing else; None for calls that cannot be read."""
        if self.form == CALLS:
            return _read_calls(self.text)
        before, after = _WRAPPERS[self.form]
        return Message(role="assistant", content=f"{before}{self.text}{after}")

    def build_completion(self) -> Completion | None:
        message = self.build_message()
        if message is None:
            return None
        return Completion(messages=(message,)) if message.tool_calls else Completion(text=message.content or "")


@dataclass(frozen=True)
class RightAnswer:
    """The answer of a right completion. `place` builds that completion with another text at the answer's place, or None
    where the text cannot stand there."""

    written: WrittenAnswer
    place: Callable[[str], Completion | None]


def find_right_answer(gold: Completion) -> RightAnswer:
    """The answer of a right completion: of an episode, that of its last reply."""
    if gold.text is not None:
        written, before, after = _split_text(gold.text)
        return RightAnswer(written, lambda text: Completion(text=f"{before}{text}{after}"))
    *earlier, last = gold.messages or (Message(role="assistant", content=""),)
    if last.tool_calls:
        calls = [call.function.model_dump(mode="json") for call in last.tool_calls]
        written = WrittenAnswer(CALLS, json.dumps(calls, ensure_ascii=False))
        return RightAnswer(written, lambda text: _end_with(earlier, _read_calls(text)))
    written, before, after = _split_text(last.content or "")
    return RightAnswer(
        written, lambda text: _end_with(earlier, Message(role="assistant", content=f"{before}{text}{after}"))
    )


def _split_text(text: str) -> tuple[WrittenAnswer, str, str]:
    for form, pattern in _FOUND.items():
        found = [*pattern.finditer(text)]
        if found:
            start, end = found[-1].span("answer")
            return WrittenAnswer(form, text[start:end]), text[:start], text[end:]
    return WrittenAnswer(WHOLE, text), "", ""


def _end_with(earlier: list[Message], last: Message | None) -> Completion | None:
    return None if last is None else Completion(messages=(*earlier, last))


def _read_calls(text: str) -> Message | None:
    try:
        calls = _CALLS.validate_json(text)
    except ValidationError:
        return None
    return Message(role="assistant", content="", tool_calls=tuple(ToolCall(function=call) for call in calls))
