"""Model Context Protocol: a JSON-RPC 2.0 request `tools/call` per call, one after the other or in one array."""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.formats.format import Format, Found
from app.toolkit.tool_calls.json_text import BLANK, Malformed, call_of, object_with, read_json_at
from app.toolkit.tool_calls.values import Call

METHOD = "tools/call"
_OPENS = re.compile(r"\s{0,100}[\[{]")


def _marks(text: str) -> bool:
    return '"jsonrpc"' in text and _OPENS.match(text) is not None


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    requests: list[JsonValue] = []
    written = text.rstrip(BLANK)
    position = 0
    while position < len(written):
        value, position = read_json_at(written, position)
        requests += value if isinstance(value, list) else [value]
    if not requests:
        raise Malformed("there is no request")
    return Found(tuple(_call(request) for request in requests))


def _call(request: JsonValue) -> Call:
    members = object_with(request, required=("jsonrpc", "method", "params"), allowed=("id",))
    if (members["jsonrpc"], members["method"]) != ("2.0", METHOD):
        raise Malformed(f"a request is not {METHOD} of JSON-RPC 2.0")
    params = object_with(members["params"], required=("name",), allowed=("arguments", "_meta"))
    return call_of(params["name"], params.get("arguments", {}))


def _write(calls: Sequence[Call]) -> str:
    requests = [
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": METHOD,
            "params": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(calls, 1)
    ]
    return json.dumps(requests[0] if len(requests) == 1 else requests, ensure_ascii=False)


MCP = Format(
    name="mcp",
    instruction=(
        "To call tools, reply with one JSON-RPC request per call, several in one JSON array, and nothing else:\n"
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", '
        '"params": {"name": "<name>", "arguments": {"<argument>": <value>}}}'
    ),
    marks=_marks,
    read=_read,
    write=_write,
)
