"""Rows in the format of xLAM's function-calling data: `query`, `tools` and `answers`.

The latter two are JSON or JSON as text. An argument without a default is required unless its type says `optional`."""

from pydantic import JsonValue

from app.domain.tasks import Message, ToolSpec
from app.envs.tool_calling.tasks.tool_schemas import build_tool_spec
from app.toolkit.tool_calls.calls import ExpectedCall, ParsedCall
from app.toolkit.tool_calls.json_text import read_json


def parse_messages(query: str) -> tuple[Message, ...]:
    return (Message(role="user", content=query),)


def parse_tools(described: JsonValue) -> tuple[ToolSpec, ...]:
    return tuple(_parse_tool(one) for one in _as_list(described))


def parse_expected_calls(answers: JsonValue) -> tuple[ExpectedCall, ...]:
    calls = [ParsedCall.model_validate(answer) for answer in _as_list(answers)]
    return tuple(
        ExpectedCall(name=call.name, arguments={name: (value,) for name, value in call.arguments.items()})
        for call in calls
    )


def _as_list(value: JsonValue) -> list[JsonValue]:
    read = read_json(value) if isinstance(value, str) else value
    if not isinstance(read, list):
        raise ValueError("tools and answers must be lists")
    return read


def _parse_tool(described: JsonValue) -> ToolSpec:
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise ValueError("a tool has no name")
    parameters = described.get("parameters")
    arguments = parameters if isinstance(parameters, dict) else {}
    required = [name for name, argument in arguments.items() if _is_required(argument)]
    return build_tool_spec(str(described["name"]), str(described.get("description", "")), arguments, required)


def _is_required(argument: JsonValue) -> bool:
    if not isinstance(argument, dict):
        raise ValueError("the description of an argument must be an object")
    return "default" not in argument and "optional" not in str(argument.get("type", "")).lower()
