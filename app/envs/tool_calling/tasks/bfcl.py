"""Rows in the format of the Berkeley Function-Calling Leaderboard.

They have `question`, `function` and, if calls are expected, `ground_truth` (from the file of possible answers, joined
by `id`); the latter two are JSON or JSON as text. Accepted values are lists. An empty text in a list means that the
argument is optional; it is not a value itself, and neither is an empty list beside it.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from pydantic import JsonValue

from app.domain.tasks import Message, ToolSpec
from app.envs.tool_calling.tasks.tool_schemas import build_tool_spec
from app.toolkit.tool_calls.calls import ExpectedCall
from app.toolkit.tool_calls.json_text import read_json

OMITTED = ""
MOST_ALTERNATIVES = 256
"""Most alternatives of one argument."""


def parse_messages(question: JsonValue) -> tuple[Message, ...]:
    """ValueError for a question of several turns."""
    if isinstance(question, str):
        return (Message(role="user", content=question),)
    if not isinstance(question, list) or not question:
        raise ValueError("question must be a text or a list of messages")
    if isinstance(question[0], list):
        if len(question) > 1:
            raise ValueError("question has several turns; only one is supported")
        return parse_messages(question[0])
    return tuple(Message.model_validate(message) for message in question)


def parse_tools(functions: JsonValue) -> tuple[ToolSpec, ...]:
    return tuple(map(_parse_tool, _as_list(functions)))


def parse_expected_calls(ground_truth: JsonValue) -> tuple[ExpectedCall, ...]:
    """ValueError if an argument has no accepted value, since no call could be right then."""
    return tuple(map(_parse_expected_call, _as_list(ground_truth)))


def _as_list(value: JsonValue) -> list[JsonValue]:
    """A single function or call counts as a list of one."""
    read = read_json(value) if isinstance(value, str) else value
    return read if isinstance(read, list) else [read]


def _parse_tool(described: JsonValue) -> ToolSpec:
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise ValueError("a function has no name")
    parameters = described.get("parameters")
    inside = parameters if isinstance(parameters, dict) else {}
    properties, required = inside.get("properties"), inside.get("required")
    return build_tool_spec(
        str(described["name"]),
        str(described.get("description", "")),
        properties if isinstance(properties, dict) else {},
        [str(name) for name in required] if isinstance(required, list) else [],
    )


def _parse_expected_call(call: JsonValue) -> ExpectedCall:
    if not isinstance(call, dict) or len(call) != 1:
        raise ValueError("an expected call must be an object with one function name")
    ((name, arguments),) = call.items()
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name} must be an object")
    optional, accepted = set(), {}
    for argument, values in arguments.items():
        if not isinstance(values, list):
            raise ValueError(f"{name}.{argument} needs a list of accepted values")
        if OMITTED in values:
            optional.add(argument)
        kept = [value for value in values if value != OMITTED and not (OMITTED in values and value == [])]
        alternatives = tuple(one for value in kept for one in _iterate_alternatives(value))[:MOST_ALTERNATIVES]
        if alternatives:
            accepted[argument] = alternatives
        elif OMITTED not in values:
            raise ValueError(f"{name}.{argument} has no accepted value")
        else:
            optional.discard(argument)
    needed = frozenset(name for name in accepted if name not in optional)
    return ExpectedCall(name=name, arguments=accepted, optional=frozenset(optional), needed=needed)


def _iterate_alternatives(value: JsonValue) -> Iterator[JsonValue]:
    """All values that an accepted value stands for: each member of an object has a list of accepted values."""
    if isinstance(value, dict):
        yield from _iterate_objects(value)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for items in product(*([*_iterate_alternatives(item)] for item in value)):
            yield list(items)
    else:
        yield value


def _iterate_objects(members: Mapping[str, JsonValue]) -> Iterator[JsonValue]:
    choices: list[list[tuple[tuple[str, JsonValue], ...]]] = []
    for name, values in members.items():
        listed = values if isinstance(values, list) else [values]
        kept: list[tuple[tuple[str, JsonValue], ...]] = [
            ((name, one),) for value in listed if value != OMITTED for one in _iterate_alternatives(value)
        ]
        choices.append(kept + ([()] if OMITTED in listed else []))
    for chosen in product(*choices):
        yield dict(member for members in chosen for member in members)
