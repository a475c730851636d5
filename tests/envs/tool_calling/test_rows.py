"""Rows of others' data sets, as requests of ours."""

import json
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from app.domain.tasks import LEFT_OUT, Dataset, Message
from app.domain.values import Frozen
from app.envs.tool_calling.environment import APIS, ToolCalling, ToolCallingParams
from app.envs.tool_calling.requests import INSTRUCTION, ApiBook, Category, GeneratedRequests, ToolRequest
from app.envs.tool_calling.rows import RowCategories, ToolRow, build_schema
from app.toolkit.tool_calls.calls import ExpectedCall
from tests.support.tables import read_table


class Tables(Frozen):
    """rows.yaml says what each is."""

    area: dict[str, JsonValue]
    xlam: dict[str, JsonValue]
    no_shape: tuple[dict[str, JsonValue], ...]
    types: tuple[tuple[str, dict[str, JsonValue]], ...]
    unanswerable: tuple[list[JsonValue], ...]


TABLES = read_table(__file__, "rows.yaml", Tables)
AREA = TABLES.area
SAID = (Message(role="user", content="Area of a triangle, base 10 and height 5?"),)


def _row(**columns: JsonValue) -> ToolRow:
    return ToolRow.model_validate(
        {"question": [[{"role": "user", "content": SAID[0].content}]], "function": [AREA], **columns}
    )


def _expected(**arguments: JsonValue) -> tuple[ExpectedCall, ...]:
    return _row(ground_truth=[{"calculate_triangle_area": arguments}]).request.expected


def test_a_row_of_the_leaderboard() -> None:
    row = _row(
        id="simple_0", ground_truth=[{"calculate_triangle_area": {"base": [10], "height": [5], "unit": ["units", ""]}}]
    )
    tools = row.offered
    assert row.request == ToolRequest(
        category="simple",
        domain="dataset",
        messages=SAID,
        tools=tools,
        expected=(
            ExpectedCall(
                name="calculate_triangle_area",
                arguments={"base": (10,), "height": (5,), "unit": ("units",)},
                optional=frozenset({"unit"}),
                needed=frozenset({"base", "height"}),
            ),
        ),
    )
    assert tools[0].function.parameters == read_table(__file__, "rectangle.yaml", dict[str, Any])


def test_tools_and_right_calls_may_be_texts_of_json() -> None:
    truth: JsonValue = [{"calculate_triangle_area": {"base": [10], "height": [5]}}]
    written = _row(function=json.dumps([AREA]), ground_truth=json.dumps(truth))
    assert written.request == _row(ground_truth=truth).request


def test_the_mark_of_omission_is_no_value() -> None:
    (call,) = _expected(base=[1], height=[2], unit=[""], points=["", [], [1.0]])
    assert (dict(call.arguments), call.optional) == (
        {"base": (1,), "height": (2,), "points": ([1.0],)},
        frozenset({"points"}),
    )


def test_what_a_tool_requires_is_not_optional() -> None:
    (call,) = _expected(base=[1, ""], height=["", 2])
    assert (dict(call.arguments), call.optional) == ({"base": (1,), "height": (2,)}, frozenset())


def test_alternatives_inside_objects() -> None:
    (call,) = _expected(base=[1], height=[2], style=[{"colour": ["red", "crimson"], "width": [1, ""]}])
    assert call.arguments["style"] == (
        {"colour": "red", "width": 1},
        {"colour": "red"},
        {"colour": "crimson", "width": 1},
        {"colour": "crimson"},
    )


@pytest.mark.parametrize("question", ["Hello?", [{"role": "user", "content": "Hello?"}]])
def test_a_row_without_a_right_call_asks_for_none(question: JsonValue) -> None:
    request = _row(question=question).request
    assert (request.category, request.expected, request.messages[0].content) == ("irrelevance", (), "Hello?")


def test_categories_are_told_by_tools_and_calls() -> None:
    other: JsonValue = {**AREA, "name": "area_of_square"}
    right: JsonValue = {"base": [1], "height": [2]}
    area: JsonValue = {"calculate_triangle_area": right}
    square: JsonValue = {"area_of_square": right}
    requests = [
        _row(function=[AREA, other], ground_truth=[area]),
        _row(ground_truth=[area, area]),
        _row(function=[AREA, other], ground_truth=[square, area]),
    ]
    assert [row.request.category for row in requests] == ["choice", "parallel", "several"]


def test_a_row_of_xlam() -> None:
    row = ToolRow.model_validate(
        {**TABLES.xlam, **{name: json.dumps(TABLES.xlam[name]) for name in ("tools", "answers")}}
    )
    assert (row.request.expected, row.offered[0].function.parameters) == (
        (ExpectedCall(name="live_giveaways", arguments={"type": ("beta",), "limit": (2,), "tags": (["x"],)}),),
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "description": "The type.", "default": "game"},
                "limit": {"type": "integer", "description": "How many."},
                "tags": {"type": "array", "description": "Tags.", "items": {"type": "string"}},
            },
            "required": ["tags"],
        },
    )


@pytest.mark.parametrize("columns", TABLES.no_shape)
def test_rows_of_no_shape_are_refused(columns: dict[str, JsonValue]) -> None:
    with pytest.raises(ValidationError):
        ToolRow.model_validate(columns)


def test_a_rows_own_system_messages_are_part_of_the_only_one() -> None:
    said: JsonValue = [
        {"role": "system", "content": "Metres."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
    ]
    row = _row(question=[said])
    rows = Dataset(name="default", origin="bfcl", digest="d", splits={"train": (row,)})
    task = ToolCalling(GeneratedRequests(ApiBook.read(APIS)), {rows.name: rows}).task("train", 0, ToolCallingParams())
    assert task.messages == (
        Message(role="system", content=f"{INSTRUCTION}\n\nMetres.\n\nBe brief."),
        Message(role="user", content="Hello?"),
    )


@pytest.mark.parametrize("truth", TABLES.unanswerable)
def test_a_row_that_nobody_could_answer_is_left_out(truth: list[JsonValue]) -> None:
    with pytest.raises(ValidationError) as left_out:
        _row(ground_truth=truth)
    assert [problem["type"] for problem in left_out.value.errors()] == [LEFT_OUT]


def test_rows_are_selected_by_category() -> None:
    right = _row(ground_truth=[{"calculate_triangle_area": {"base": [10], "height": [5]}}])
    rows = RowCategories(Dataset(name="default", origin="bfcl", digest="d", splits={"train": (_row(), right, right)}))
    chosen: list[tuple[Category, ...]] = [(), ("simple",), ("parallel",), ("simple", "irrelevance")]
    assert [list(rows.select_rows("train", one)) for one in chosen] == [[0, 1, 2], [1, 2], [], [0, 1, 2]]
    assert list(rows.select_rows("test")) == []


def test_choices_of_a_list_are_those_of_its_items() -> None:
    described: list[JsonValue] = [
        {"type": "array", "items": {"type": "String"}, "enum": ["a", "b"]},
        {"type": "list", "enum": [["a"], ["b"]]},
        {"type": "string", "enum": []},
    ]
    assert [build_schema(one) for one in described] == [
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        {"type": "array", "enum": [["a"], ["b"]]},
        {"type": "string"},
    ]


@pytest.mark.parametrize(("written", "schema"), TABLES.types)
def test_types_by_their_proper_names(written: str, schema: dict[str, JsonValue]) -> None:
    assert build_schema({"type": written}) == schema
