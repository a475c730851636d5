"""Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}]`.

Or, in its later form, `[TOOL_CALLS]name[ARGS]{…}` per call."""

import json
import re
from collections.abc import Sequence

from app.calls.formats.format import Format, Found
from app.calls.json_text import BLANK, MOST_NAME, Malformed, call_of, object_with, read_json, read_json_at
from app.calls.values import Call
from app.domain.tasks import ToolSpec

TAG = "[TOOL_CALLS]"
ARGUMENTS = "[ARGS]"
_NAMED = re.compile(rf"\s{{0,100}}([\w.-]{{1,{MOST_NAME}}})(?:\[CALL_ID\]\w{{1,100}})?\[ARGS\]")


def _marks(text: str) -> bool:
    return TAG in text or ARGUMENTS in text


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    said, tag, written = text.partition(TAG)
    if not tag:
        raise Malformed(f"{ARGUMENTS} without {TAG}")
    if ARGUMENTS in written:
        return Found(_named(written), said)
    listed = read_json(written)
    if not isinstance(listed, list) or not listed:
        raise Malformed(f"after {TAG} there is no list of calls")
    members = [object_with(one, required=("name", "arguments"), allowed=("id",)) for one in listed]
    return Found(tuple(call_of(one["name"], one["arguments"]) for one in members), said)


def _named(written: str) -> tuple[Call, ...]:
    calls: list[Call] = []
    position = 0
    while True:
        head = _NAMED.match(written, position)
        if head is None:
            raise Malformed(f"after {TAG} there is no name followed by {ARGUMENTS}")
        arguments, position = read_json_at(written, head.end())
        calls.append(call_of(head[1], arguments))
        while position < len(written) and written[position] in BLANK:
            position += 1
        if position == len(written):
            return tuple(calls)
        if not written.startswith(TAG, position):
            raise Malformed(f"a call is followed by something else than {TAG}")
        position += len(TAG)


def _write(calls: Sequence[Call]) -> str:
    listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return TAG + json.dumps(listed, ensure_ascii=False)


MISTRAL = Format(
    name="mistral",
    instruction=(
        "To call tools, end your reply with [TOOL_CALLS] and one JSON array of all calls:\n"
        '[TOOL_CALLS][{"name": "<name>", "arguments": {"<argument>": <value>}}]'
    ),
    marks=_marks,
    read=_read,
    write=_write,
)
