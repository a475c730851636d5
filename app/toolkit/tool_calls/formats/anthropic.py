"""Anthropic: `tool_use` content blocks as JSON, or `<invoke name="…">` tags with values without types.

The tags around all invokes count for nothing: their end is where sampling was told to stop."""

import json
import re
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.formats.format import Format, Found
from app.toolkit.tool_calls.formats.untyped import Tags, arguments_at
from app.toolkit.tool_calls.json_text import MOST_CALLS, MOST_NAME, Malformed, call_of, object_with, read_json
from app.toolkit.tool_calls.values import Call

_BLOCKS = re.compile(r"\s*[\[{]")
_BLOCK = re.compile(r'"type"\s{0,10}:\s{0,10}"tool_use"')
_THINKING = ("thinking", "redacted_thinking")
_INVOKE = re.compile(rf'<(?:antml:)?invoke\sname="([^"<>]{{1,{MOST_NAME}}})"\s{{0,10}}>')
_TAGS = Tags(
    begins=re.compile(rf'<(?:antml:)?parameter\sname="([^"<>]{{1,{MOST_NAME}}})"\s{{0,10}}>'),
    ends=re.compile("</(?:antml:)?parameter>"),
    closes=re.compile("</(?:antml:)?invoke>"),
)
_WORDS = ("function_calls", "invoke", "parameter")
"""One of them is in every tag."""
_AROUND = re.compile("</?(?:antml:)?function_calls>")
_TAG = re.compile(r"</?(?:antml:)?invoke|<(?:antml:)?parameter\s")


def _marks(text: str) -> bool:
    return _is_blocks(text) or (
        any(word in text for word in _WORDS) and (_AROUND.search(text) is not None or _TAG.search(text) is not None)
    )


def _is_blocks(text: str) -> bool:
    return _BLOCKS.match(text) is not None and _BLOCK.search(text) is not None


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    return _blocks(text) if _is_blocks(text) else _tags(text, tools)


def _blocks(text: str) -> Found:
    value = read_json(text)
    calls: list[Call] = []
    said: list[str] = []
    for block in value if isinstance(value, list) else [value]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _THINKING:
            continue
        if kind == "text":
            members = object_with(block, required=("type", "text"), allowed=("citations", "cache_control"))
            said.append(str(members["text"] or ""))
            continue
        members = object_with(block, required=("type", "name", "input"), allowed=("id", "cache_control", "caller"))
        if kind != "tool_use":
            raise Malformed("a block is neither text nor tool_use")
        calls.append(call_of(members["name"], members["input"]))
    return Found(tuple(calls), "\n".join(said))


def _tags(text: str, tools: Sequence[ToolSpec]) -> Found:
    calls: list[Call] = []
    said: list[str] = []
    position = 0
    while (invoke := _INVOKE.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise Malformed(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : invoke.start()])
        arguments, position = arguments_at(text, invoke.end(), invoke[1], tools, _TAGS)
        calls.append(call_of(invoke[1], arguments))
    said.append(text[position:])
    words = _AROUND.sub("", "".join(said))
    if not calls or _TAG.search(words) is not None:
        raise Malformed("there are tags of a call and no call")
    return Found(tuple(calls), words)


def _write(calls: Sequence[Call]) -> str:
    blocks = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": call.arguments}
        for number, call in enumerate(calls, 1)
    ]
    return json.dumps(blocks, ensure_ascii=False)


ANTHROPIC = Format(
    name="anthropic",
    instruction=(
        "To call tools, reply with one JSON array of content blocks and nothing else; words go into a text block:\n"
        '[{"type": "text", "text": "<words>"}, '
        '{"type": "tool_use", "id": "<id>", "name": "<name>", "input": {"<argument>": <value>}}]'
    ),
    marks=_marks,
    read=_read,
    write=_write,
)
