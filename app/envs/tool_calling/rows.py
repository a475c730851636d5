"""Rows in the format of the Berkeley Function-Calling Leaderboard.

They have `question`, `function` and, if calls are expected, `ground_truth` (from the file of possible answers, joined
by `id`); the latter two are JSON or JSON as text. Accepted values are lists. An empty text in a list means that the
argument is optional; it is not a value itself, and neither is an empty list beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.tasks import Dataset, Message, ToolSpec, leave_out
from app.domain.values import Split
from app.envs.tool_calling.requests import Category, ToolRequest, build_tool_spec
from app.toolkit.tool_calls.calls import ExpectedCall, ParsedCall, find_parameters, match_calls, read_json

OMITTED = ""
MOST_ALTERNATIVES = 256
"""Most alternatives of one argument."""


def parse_bfcl_messages(question: JsonValue) -> tuple[Message, ...]:
    """ValueError for a question of several turns."""
    if isinstance(question, str):
        return (Message(role="user", content=question),)
    if not isinstance(question, list) or not question:
        raise ValueError("question must be a text or a list of messages")
    if isinstance(question[0], list):
        if len(question) > 1:
            raise ValueError("question has several turns; only one is supported")
        return parse_bfcl_messages(question[0])
    return tuple(Message.model_validate(message) for message in question)


def parse_bfcl_tools(functions: JsonValue) -> tuple[ToolSpec, ...]:
    return tuple(map(_parse_bfcl_tool, _as_bfcl_list(functions)))


def parse_bfcl_calls(ground_truth: JsonValue) -> tuple[ExpectedCall, ...]:
    """ValueError if an argument has no accepted value, since no call could be right then."""
    return tuple(map(_parse_expected_call, _as_bfcl_list(ground_truth)))


def _as_bfcl_list(value: JsonValue) -> list[JsonValue]:
    """A single function or call counts as a list of one."""
    read = read_json(value) if isinstance(value, str) else value
    return read if isinstance(read, list) else [read]


def _parse_bfcl_tool(described: JsonValue) -> ToolSpec:
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


# Rows in the format of xLAM's function-calling data: `query`, `tools` and `answers`.


def parse_xlam_messages(query: str) -> tuple[Message, ...]:
    return (Message(role="user", content=query),)


def parse_xlam_tools(described: JsonValue) -> tuple[ToolSpec, ...]:
    return tuple(_parse_xlam_tool(one) for one in _as_xlam_list(described))


def parse_xlam_calls(answers: JsonValue) -> tuple[ExpectedCall, ...]:
    calls = [ParsedCall.model_validate(answer) for answer in _as_xlam_list(answers)]
    return tuple(
        ExpectedCall(name=call.name, arguments={name: (value,) for name, value in call.arguments.items()})
        for call in calls
    )


def _as_xlam_list(value: JsonValue) -> list[JsonValue]:
    read = read_json(value) if isinstance(value, str) else value
    if not isinstance(read, list):
        raise ValueError("tools and answers must be lists")
    return read


def _parse_xlam_tool(described: JsonValue) -> ToolSpec:
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


# Requests from an operator's data set, in either supported format.


class ToolRow(BaseModel):
    """A row has `question` and `function` (BFCL) or `query` and `tools` (xLAM), and the expected calls in
    `ground_truth` or `answers`. Without expected calls, no call is right."""

    model_config = ConfigDict(frozen=True)

    question: Annotated[tuple[Message, ...], BeforeValidator(parse_bfcl_messages)] = ()
    function: Annotated[tuple[ToolSpec, ...], BeforeValidator(parse_bfcl_tools)] = ()
    ground_truth: JsonValue = None
    query: str | None = None
    tools: Annotated[tuple[ToolSpec, ...], BeforeValidator(parse_xlam_tools)] = ()
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
        return self.question if self.query is None else parse_xlam_messages(self.query)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        return self.function if self.query is None else self.tools

    @cached_property
    def request(self) -> ToolRequest:
        """ValueError if no reply could be right; the data sets have a few such rows."""
        expected: tuple[ExpectedCall, ...] = ()
        if self.ground_truth is not None:
            expected = parse_bfcl_calls(self.ground_truth)
        elif self.answers is not None:
            expected = parse_xlam_calls(self.answers)
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
        known = self._categories.get(split, ())
        if not categories:
            return range(len(known))
        return tuple(index for index, category in enumerate(known) if category in categories)


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
