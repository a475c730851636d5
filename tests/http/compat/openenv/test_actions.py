"""What is made of an action, whatever a client made of a reply."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tasks import FunctionCall, Message, ToolCall
from app.http.compat.openenv.sessions import OpenEnvAction, ParsedAction, parse_action

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLED = ToolCall(id="c1", function=FunctionCall(name="add", arguments='{"a": 1}'))


def spoken(text: str | None, **more: Any) -> Message:
    return Message(role="assistant", content=text, **more)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"text": "hi"}, ParsedAction(spoken("hi"))),
        ({"message": "hi"}, ParsedAction(spoken("hi"))),
        ({"content": "hi", "metadata": {"from": "a typed client"}}, ParsedAction(spoken("hi"))),
        ({"text": "", "message": None, "content": None, "tool_calls": []}, ParsedAction(spoken(""))),
        ({"text": None}, ParsedAction(spoken(""))),
        ({"text": "hi", "finish_reason": "length"}, ParsedAction(spoken("hi"), "length")),
        ({"message": 42}, ParsedAction(spoken("42"))),
        ({"message": 4.5}, ParsedAction(spoken("4.5"))),
        ({"text": True}, ParsedAction(spoken("true"))),
        ({"text": [1, "é"]}, ParsedAction(spoken('[1, "é"]'))),
        ({"message": {"name": "Ada"}}, ParsedAction(spoken('{"name": "Ada"}'))),
        ({"text": "half \ud83d of a pair"}, ParsedAction(spoken("half � of a pair"))),
        ({"tool_calls": [CALL]}, ParsedAction(spoken(None, tool_calls=(CALLED,)))),
        ({"text": "So:", "tool_calls": [CALL]}, ParsedAction(spoken("So:", tool_calls=(CALLED,)))),
        (
            {"message": {"role": "assistant", "content": None, "tool_calls": [CALL]}, "finish_reason": "stop"},
            ParsedAction(spoken(None, tool_calls=(CALLED,)), "stop"),
        ),
        (
            {"message": {"role": "assistant", "content": "So:"}, "tool_calls": [CALL]},
            ParsedAction(spoken("So:", tool_calls=(CALLED,))),
        ),
    ],
)
def test_an_action_is_one_message_of_the_models(data: dict[str, Any], said: ParsedAction) -> None:
    assert parse_action(data) == said


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": "Ada", "age": 36}, '{"name": "Ada", "age": 36}'),
        ({"text": "hi", "mood": "good"}, '{"text": "hi", "mood": "good"}'),
        ({"text": "hi", "message": "ho"}, '{"text": "hi", "message": "ho"}'),
        ({"answer": None}, '{"answer": null}'),
        ({"value": float("nan")}, '{"value": NaN}'),
        ({"\ud83d": "\udc00"}, '{"�": "�"}'),
    ],
)
def test_any_other_object_is_the_json_that_a_model_wrote(data: dict[str, Any], text: str) -> None:
    assert parse_action(data) == ParsedAction(spoken(text), read_as="json")


MISSING = 'text: missing; an action is {"text": "what the model said"}'
NO_CALLS = '`tool_calls`: "add(1)" was given; wanted is a list'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, MISSING),
        ({"tool_calls": [], "metadata": {"from": "a typed client"}}, MISSING),
        ({"finish_reason": "length"}, MISSING),
        ({"tool_calls": "add(1)"}, NO_CALLS),
        ({"text": "hi", "tool_calls": "add(1)"}, NO_CALLS),
        ({"message": {"role": "assistant", "content": "hi", "tool_calls": "add(1)"}}, NO_CALLS),
        ({"tool_calls": [CALL], "mood": "good"}, "`mood`: unknown field"),
        (
            {"text": "hi", "message": "ho", "tool_calls": [CALL]},
            "message: give the text once, as text, message or content",
        ),
    ],
)
def test_an_action_that_says_nothing_and_unreadable_calls_are_silence(data: dict[str, Any], message: str) -> None:
    assert parse_action(data) == ParsedAction(spoken(""), read_as="nothing", fault=message)


def test_the_published_schema_has_one_required_field_and_no_title_of_mcp_tools() -> None:
    schema = OpenEnvAction.model_json_schema()
    assert (schema["title"], schema["required"], schema["properties"]["text"]["type"]) == (
        "ModelMessage",
        ["text"],
        "string",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(["text", "message", "content", "tool_calls", "finish_reason", "metadata", "reasoning_content"])


@given(st.dictionaries(NAMES | st.text(max_size=3), JSON, max_size=4))
def test_every_action_can_be_stored(data: dict[str, Any]) -> None:
    said = parse_action(data)
    assert (said.message.role, said.message.model_dump_json().encode().decode() != "") == ("assistant", True)


def test_nesting_is_no_trouble() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"text": [deep]}
    assert parse_action({"text": "hi", "deep": [deep]}).read_as == "json"
