"""Hermes, Qwen2.5 and Qwen3: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, a pair of tags per call."""

import json
import re
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import CallFormat, FormatResult
from app.toolkit.tool_calls.json_text import BLANK, MalformedCall, parse_call_object, read_json_at

OPENS, CLOSES = "<tool_call>", "</tool_call>"
_OBJECT = re.compile(rf"{OPENS}\s{{0,100}}\{{")


def _attempts_calls(text: str) -> bool:
    """An argument may hold the tags of another format; a call begins with a brace."""
    return _OBJECT.search(text) is not None or ((OPENS in text or CLOSES in text) and "<function=" not in text)


def _read_calls(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (start := text.find(OPENS, position)) >= 0:
        said.append(text[position:start])
        value, end = read_json_at(text, start + len(OPENS))
        calls.append(parse_call_object(value))
        while end < len(text) and text[end] in BLANK:
            end += 1
        if not text.startswith(CLOSES, end):
            raise MalformedCall(f"a call does not end in {CLOSES}")
        position = end + len(CLOSES)
    said.append(text[position:])
    words = "".join(said)
    if CLOSES in words:
        raise MalformedCall(f"{CLOSES} stands alone")
    return FormatResult(tuple(calls), words)


def _write_calls(calls: Sequence[ParsedCall]) -> str:
    return "\n".join(
        f"{OPENS}\n{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}\n{CLOSES}"
        for call in calls
    )


HERMES = CallFormat(
    name="hermes",
    instruction=(
        "For each call write a JSON object with the tool's name and its arguments inside <tool_call> tags:\n"
        '<tool_call>\n{"name": "<name>", "arguments": {"<argument>": <value>}}\n</tool_call>'
    ),
    marks=_attempts_calls,
    read=_read_calls,
    write=_write_calls,
)
