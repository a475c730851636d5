"""Hermes, Qwen2.5 and Qwen3: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, a pair of tags per call."""

import json
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.formats.format import Format, Found
from app.toolkit.tool_calls.json_text import BLANK, Malformed, call_object, read_json_at
from app.toolkit.tool_calls.values import Call

OPENS, CLOSES = "<tool_call>", "</tool_call>"


def _marks(text: str) -> bool:
    return (OPENS in text or CLOSES in text) and "<function=" not in text


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    calls: list[Call] = []
    said: list[str] = []
    position = 0
    while (start := text.find(OPENS, position)) >= 0:
        said.append(text[position:start])
        value, end = read_json_at(text, start + len(OPENS))
        calls.append(call_object(value))
        while end < len(text) and text[end] in BLANK:
            end += 1
        if not text.startswith(CLOSES, end):
            raise Malformed(f"a call does not end in {CLOSES}")
        position = end + len(CLOSES)
    said.append(text[position:])
    words = "".join(said)
    if CLOSES in words:
        raise Malformed(f"{CLOSES} stands alone")
    return Found(tuple(calls), words)


def _write(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"{OPENS}\n{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}\n{CLOSES}"
        for call in calls
    )


HERMES = Format(
    name="hermes",
    instruction=(
        "For each call write a JSON object with the tool's name and its arguments inside <tool_call> tags:\n"
        '<tool_call>\n{"name": "<name>", "arguments": {"<argument>": <value>}}\n</tool_call>'
    ),
    marks=_marks,
    read=_read,
    write=_write,
)
