"""Model Context Protocol: a JSON-RPC 2.0 request `tools/call` per call, one after the other or in one array."""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import CallFormat, FormatResult
from app.toolkit.tool_calls.json_text import BLANK, MalformedCall, build_call, read_json_at, require_members

METHOD = "tools/call"
_OPENS = re.compile(r"\s{0,100}[\[{]")


def _attempts_calls(text: str) -> bool:
    return '"jsonrpc"' in text and _OPENS.match(text) is not None


def _read_calls(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    requests: list[JsonValue] = []
    written = text.rstrip(BLANK)
    position = 0
    while position < len(written):
        value, position = read_json_at(written, position)
        requests += value if isinstance(value, list) else [value]
    if not requests:
        raise MalformedCall("there is no request")
    return FormatResult(tuple(_read_request(request) for request in requests))


def _read_request(request: JsonValue) -> ParsedCall:
    members = require_members(request, required=("jsonrpc", "method", "params"), allowed=("id",))
    if (members["jsonrpc"], members["method"]) != ("2.0", METHOD):
        raise MalformedCall(f"a request is not {METHOD} of JSON-RPC 2.0")
    params = require_members(members["params"], required=("name",), allowed=("arguments", "_meta"))
    return build_call(params["name"], params.get("arguments", {}))


def _write_calls(calls: Sequence[ParsedCall]) -> str:
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


MCP = CallFormat(
    name="mcp",
    instruction=(
        "To call tools, reply with one JSON-RPC request per call, several in one JSON array, and nothing else:\n"
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", '
        '"params": {"name": "<name>", "arguments": {"<argument>": <value>}}}'
    ),
    marks=_attempts_calls,
    read=_read_calls,
    write=_write_calls,
)
