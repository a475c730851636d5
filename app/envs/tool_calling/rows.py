"""Rows of data sets as requests for tool calls, in either of two formats.

BFCL, the Berkeley Function-Calling Leaderboard, has `question`, `function` and, if calls are expected, `ground_truth`
(from the file of possible answers, joined by `id`). Accepted values are lists. An empty text in a list means that the
argument is optional; it is not a value itself, and neither is an empty list beside it.

xLAM has `query`, `tools` and `answers`. An argument without a default is required unless its type says `optional`.

Tools and calls are JSON, or JSON as text. The types of their descriptions become those of JSON Schema.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.tasks import Dataset, FunctionSpec, Message, ToolSpec, leave_out
from app.domain.values import Split
from app.envs.tool_calling.requests import Category, ToolRequest
from app.toolkit.tool_calls.calls import ExpectedCall, ParsedCall, find_parameters, match_calls, read_json

# Rows in the format of BFCL.

_OMITTED = ""
_MOST_ALTERNATIVES = 256
"""Most alternatives of one argument: those of nested objects multiply."""


def _parse_bfcl_messages(question: JsonValue) -> tuple[Message, ...]:
    """ValueError for a question of several turns."""
    if isinstance(question, str):
        return (Message(role="user", content=question),)
    if not isinstance(question, list) or not question:
        raise ValueError("question must be a text or a list of messages")
    if isinstance(question[0], list):
        if len(question) > 1:
            raise ValueError("question has several turns; only one is supported")
        return _parse_bfcl_messages(question[0])
    return tuple(Message.model_validate(message) for message in question)


def _parse_bfcl_tools(functions: JsonValue) -> tuple[ToolSpec, ...]:
    return tuple(map(_parse_bfcl_tool, _as_bfcl_list(functions)))


def _parse_bfcl_calls(ground_truth: JsonValue) -> tuple[ExpectedCall, ...]:
    """ValueError if an argument has no accepted value, since no call could be right then."""
    return tuple(map(_parse_expected_call, _as_bfcl_list(ground_truth)))


def _as_bfcl_list(value: JsonValue) -> list[JsonValue]:
    """A single function or call counts as a list of one."""
    parsed = read_json(value) if isinstance(value, str) else value
    return parsed if isinstance(parsed, list) else [parsed]


def _parse_bfcl_tool(described: JsonValue) -> ToolSpec:
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise ValueError("a function has no name")
    parameters = described.get("parameters")
    inside = parameters if isinstance(parameters, dict) else {}
    properties, required = inside.get("properties"), inside.get("required")
    return _build_tool_spec(
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
        if _OMITTED in values:
            optional.add(argument)
        present = [value for value in values if value != _OMITTED and not (_OMITTED in values and value == [])]
        alternatives = tuple(one for value in present for one in _iterate_alternatives(value))[:_MOST_ALTERNATIVES]
        if alternatives:
            accepted[argument] = alternatives
        elif _OMITTED not in values:
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
        present: list[tuple[tuple[str, JsonValue], ...]] = [
            ((name, one),) for value in listed if value != _OMITTED for one in _iterate_alternatives(value)
        ]
        choices.append(present + ([()] if _OMITTED in listed else []))
    for chosen in product(*choices):
        yield dict(member for members in chosen for member in members)


# Rows in the format of xLAM.


def _parse_xlam_tools(described: JsonValue) -> tuple[ToolSpec, ...]:
    return tuple(_parse_xlam_tool(one) for one in _as_xlam_list(described))


def _parse_xlam_calls(answers: JsonValue) -> tuple[ExpectedCall, ...]:
    calls = [ParsedCall.model_validate(answer) for answer in _as_xlam_list(answers)]
    return tuple(
        ExpectedCall(name=call.name, arguments={name: (value,) for name, value in call.arguments.items()})
        for call in calls
    )


def _as_xlam_list(value: JsonValue) -> list[JsonValue]:
    parsed = read_json(value) if isinstance(value, str) else value
    if not isinstance(parsed, list):
        raise ValueError("tools and answers must be lists")
    return parsed


def _parse_xlam_tool(described: JsonValue) -> ToolSpec:
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise ValueError("a tool has no name")
    parameters = described.get("parameters")
    arguments = parameters if isinstance(parameters, dict) else {}
    required = [name for name, argument in arguments.items() if _is_required(argument)]
    return _build_tool_spec(str(described["name"]), str(described.get("description", "")), arguments, required)


def _is_required(argument: JsonValue) -> bool:
    if not isinstance(argument, dict):
        raise ValueError("the description of an argument must be an object")
    return "default" not in argument and "optional" not in str(argument.get("type", "")).lower()


# Descriptions of tools as JSON Schema.

_TYPES: Final[Mapping[str, str]] = {
    "dict": "object",
    "object": "object",
    "hashmap": "object",
    "list": "array",
    "array": "array",
    "tuple": "array",
    "set": "array",
    "str": "string",
    "string": "string",
    "char": "string",
    "int": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
    "none": "null",
    "null": "null",
}
"""JSON Schema types by their names in data sets. Unknown names, such as `any`, give no type."""

_GENERIC = re.compile(r"(\w+)\[(.*)\]")
_KEPT = ("description", "enum", "default", "minimum", "maximum", "items", "properties", "required")


def _build_tool_spec(name: str, description: str, properties: Mapping[str, JsonValue], required: list[str]) -> ToolSpec:
    """ValueError for arguments whose description is not an object."""
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": {argument: build_schema(described) for argument, described in properties.items()},
        "required": [*required],
    }
    return ToolSpec(function=FunctionSpec(name=name, description=description, parameters=parameters))


def build_schema(described: JsonValue) -> dict[str, JsonValue]:
    """JSON Schema of one argument, with the types of JSON Schema at every depth."""
    if not isinstance(described, dict):
        raise ValueError("the description of an argument must be an object")
    schema = {key: described[key] for key in _KEPT if key in described} | _parse_type(described.get("type"))
    items, properties = schema.get("items"), schema.get("properties")
    if isinstance(items, dict):
        schema["items"] = build_schema(items)
    if isinstance(properties, dict):
        schema["properties"] = {name: build_schema(inner) for name, inner in properties.items()}
    choices = schema.pop("enum", None)
    if isinstance(choices, list) and choices:
        return _add_choices(schema, choices)
    return schema


def _add_choices(schema: dict[str, JsonValue], choices: list[JsonValue]) -> dict[str, JsonValue]:
    """For an array they are choices of its items, unless they are lists themselves."""
    if schema.get("type") != "array" or any(isinstance(choice, list) for choice in choices):
        return {**schema, "enum": choices}
    items = schema.get("items")
    return {**schema, "items": {**(items if isinstance(items, dict) else {}), "enum": choices}}


def _parse_type(written: JsonValue) -> dict[str, JsonValue]:
    """The type, for `List[int]` and the like with the type of its items; empty for an unknown type."""
    if not isinstance(written, str):
        return {}
    plain = written.split(",")[0].strip() if "[" not in written else written.strip()
    generic = _GENERIC.match(plain)
    if generic is not None and generic[1].lower() == "optional":
        return _parse_type(generic[2])
    if generic is not None and _TYPES.get(generic[1].lower()) == "array":
        inside = _parse_type(generic[2]) if generic[1].lower() != "tuple" else {}
        return {"type": "array", "items": inside} if inside else {"type": "array"}
    named = _TYPES.get((generic[1] if generic is not None else plain).lower())
    return {} if named is None else {"type": named}


# Rows of an operator's data set.


class ToolRow(BaseModel):
    """A row has `question` and `function` (BFCL) or `query` and `tools` (xLAM), and the expected calls in
    `ground_truth` or `answers`. Without expected calls, no call is right."""

    model_config = ConfigDict(frozen=True)

    question: Annotated[tuple[Message, ...], BeforeValidator(_parse_bfcl_messages)] = ()
    function: Annotated[tuple[ToolSpec, ...], BeforeValidator(_parse_bfcl_tools)] = ()
    ground_truth: JsonValue = None
    query: str | None = None
    tools: Annotated[tuple[ToolSpec, ...], BeforeValidator(_parse_xlam_tools)] = ()
    answers: JsonValue = None

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if not {"question", "function"} <= self.model_fields_set and not {"query", "tools"} <= self.model_fields_set:
            raise ValueError("a row needs `question` and `function`, or `query` and `tools`")
        try:
            self.request  # noqa: B018  # built once, and kept
        except ValueError as error:
            raise leave_out(f"no reply could be right: {error}") from None
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.question if self.query is None else (Message(role="user", content=self.query),)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        return self.function if self.query is None else self.tools

    @cached_property
    def request(self) -> ToolRequest:
        """ValueError if no reply could be right; the data sets have a few such rows."""
        expected: tuple[ExpectedCall, ...] = ()
        if self.ground_truth is not None:
            expected = _parse_bfcl_calls(self.ground_truth)
        elif self.answers is not None:
            expected = _parse_xlam_calls(self.answers)
        expected = tuple(_apply_required(one, self.offered) for one in expected)
        if not match_calls([one.build_minimal_call() for one in expected], expected, self.offered).correct:
            raise ValueError("the expected calls do not fit the tools")
        return ToolRequest(
            category=_classify_request(self.offered, expected),
            domain="dataset",
            messages=self.messages,
            tools=self.offered,
            expected=expected,
        )


class RowCategories:
    """Which rows of a data set are of which category."""

    def __init__(self, dataset: Dataset[ToolRow]) -> None:
        """Reads every row."""
        self._categories = {
            split: tuple(row.request.category for row in rows) for split, rows in dataset.splits.items()
        }

    @lru_cache(maxsize=64)  # noqa: B019  # as many as there are choices of categories; it lives as long as the data set
    def select_rows(self, split: Split, categories: tuple[Category, ...] = ()) -> Sequence[int]:
        """Indexes of the rows of these categories, by default of all."""
        every = self._categories.get(split, ())
        if not categories:
            return range(len(every))
        return tuple(index for index, category in enumerate(every) if category in categories)


def _apply_required(call: ExpectedCall, tools: Sequence[ToolSpec]) -> ExpectedCall:
    """Arguments that the tool requires are not optional, whatever the data say."""
    required = (find_parameters(call.name, tools) or {}).get("required")
    return call.model_copy(
        update={"optional": call.optional.difference(required if isinstance(required, list) else [])}
    )


def _classify_request(tools: Sequence[ToolSpec], expected: Sequence[ExpectedCall]) -> Category:
    if not expected:
        return "irrelevance"
    if len(expected) == 1:
        return "simple" if len(tools) == 1 else "choice"
    return "parallel" if len({one.name for one in expected}) == 1 else "several"
