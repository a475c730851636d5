"""Llama 3: `<|python_tag|>{"name": …, "parameters": {…}}; {…}`.

The tag may be missing where the reply is nothing but calls."""

import json
import re
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import CallFormat, FormatResult
from app.toolkit.tool_calls.json_text import BLANK, parse_call_object, read_json_at

TAG = "<|python_tag|>"
_BARE = re.compile(r'\s{0,100}\{\s{0,100}"(?:type"\s{0,10}:\s{0,10}"function|name|parameters|arguments)"')
_ARGUMENTS = re.compile('"(?:parameters|arguments)"')


def _attempts_calls(text: str) -> bool:
    return TAG in text or (_BARE.match(text) is not None and _ARGUMENTS.search(text) is not None)


def _read_calls(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    said, tag, written = text.partition(TAG)
    if not tag:
        said, written = "", text
    calls: list[ParsedCall] = []
    position = 0
    while True:
        value, position = read_json_at(written, position)
        calls.append(parse_call_object(value))
        while position < len(written) and written[position] in BLANK + ";":
            position += 1
        if position == len(written):
            return FormatResult(tuple(calls), said)


def _write_calls(calls: Sequence[ParsedCall]) -> str:
    written = (json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False) for call in calls)
    return TAG + "; ".join(written)


LLAMA_JSON = CallFormat(
    name="llama_json",
    instruction=(
        "To call tools, end your reply with <|python_tag|> and one JSON object per call, with `; ` between them:\n"
        '<|python_tag|>{"name": "<name>", "parameters": {"<argument>": <value>}}'
    ),
    marks=_attempts_calls,
    read=_read_calls,
    write=_write_calls,
)
