"""MCP over OpenEnv: tools/list lists a task's tools. The model calls them in a step."""

import json
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.tasks import ToolSpec

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
PARSE_ERROR: Final = -32700

_NOT_A_REQUEST = 'expected {"jsonrpc": "2.0", "method": …, "id": …}'
_NO_METHOD = "only tools/list is supported; the model calls tools in a step"


def answer_rpc(request: JsonValue, tools: Sequence[ToolSpec]) -> str:
    """Answers a JSON-RPC 2.0 request. `tools` are those of the current task, if there is one."""
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
        return build_rpc_error(None, INVALID_REQUEST, _NOT_A_REQUEST)
    name = request.get("id")
    identity = name if isinstance(name, str | int) else None
    if request["method"] != "tools/list":
        return build_rpc_error(identity, METHOD_NOT_FOUND, _NO_METHOD)
    listed = [
        {"name": tool.function.name, "description": tool.function.description, "inputSchema": tool.function.parameters}
        for tool in tools
    ]
    return json.dumps({"jsonrpc": "2.0", "id": identity, "result": {"tools": listed}})


def build_rpc_error(identity: JsonValue, code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}})
