"""Anthropic: `tool_use` content blocks as JSON, or `<invoke name="…">` tags with values without types.

The tags around all invokes count for nothing: their end is where sampling was told to stop."""

import json
import re
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import CallFormat, FormatResult
from app.toolkit.tool_calls.formats.untyped import ArgumentTags, read_arguments
from app.toolkit.tool_calls.json_text import (
    MOST_CALLS,
    MOST_NAME,
    MalformedCall,
    build_call,
    read_json,
    require_members,
)

_BLOCKS = re.compile(r"\s*[\[{]")
_BLOCK = re.compile(r'"type"\s{0,10}:\s{0,10}"tool_use"')
_THINKING = ("thinking", "redacted_thinking")
_INVOKE = re.compile(rf'<(?:antml:)?invoke\sname="([^"<>]{{1,{MOST_NAME}}})"\s{{0,10}}>')
_TAGS = ArgumentTags(
    begins=re.compile(rf'<(?:antml:)?parameter\sname="([^"<>]{{1,{MOST_NAME}}})"\s{{0,10}}>'),
    ends=re.compile("</(?:antml:)?parameter>"),
    closes=re.compile("</(?:antml:)?invoke>"),
)
_WORDS = ("function_calls", "invoke", "parameter")
"""One of them is in every tag."""
_AROUND = re.compile("</?(?:antml:)?function_calls>")
_TAG = re.compile(r"</?(?:antml:)?invoke|<(?:antml:)?parameter\s")


def _attempts_calls(text: str) -> bool:
    return _is_blocks(text) or (
        any(word in text for word in _WORDS) and (_AROUND.search(text) is not None or _TAG.search(text) is not None)
    )


def _is_blocks(text: str) -> bool:
    return _BLOCKS.match(text) is not None and _BLOCK.search(text) is not None


def _read_calls(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    return _read_blocks(text) if _is_blocks(text) else _read_tags(text, tools)


def _read_blocks(text: str) -> FormatResult:
    value = read_json(text)
    calls: list[ParsedCall] = []
    said: list[str] = []
    for block in value if isinstance(value, list) else [value]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _THINKING:
            continue
        if kind == "text":
            members = require_members(block, required=("type", "text"), allowed=("citations", "cache_control"))
            said.append(str(members["text"] or ""))
            continue
        members = require_members(block, required=("type", "name", "input"), allowed=("id", "cache_control", "caller"))
        if kind != "tool_use":
            raise MalformedCall("a block is neither text nor tool_use")
        calls.append(build_call(members["name"], members["input"]))
    return FormatResult(tuple(calls), "\n".join(said))


def _read_tags(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (invoke := _INVOKE.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise MalformedCall(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : invoke.start()])
        arguments, position = read_arguments(text, invoke.end(), invoke[1], tools, _TAGS)
        calls.append(build_call(invoke[1], arguments))
    said.append(text[position:])
    words = _AROUND.sub("", "".join(said))
    if not calls or _TAG.search(words) is not None:
        raise MalformedCall("there are tags of a call and no call")
    return FormatResult(tuple(calls), words)


def _write_calls(calls: Sequence[ParsedCall]) -> str:
    blocks = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": call.arguments}
        for number, call in enumerate(calls, 1)
    ]
    return json.dumps(blocks, ensure_ascii=False)


ANTHROPIC = CallFormat(
    name="anthropic",
    instruction=(
        "To call tools, reply with one JSON array of content blocks and nothing else; words go into a text block:\n"
        '[{"type": "text", "text": "<words>"}, '
        '{"type": "tool_use", "id": "<id>", "name": "<name>", "input": {"<argument>": <value>}}]'
    ),
    marks=_attempts_calls,
    read=_read_calls,
    write=_write_calls,
)
