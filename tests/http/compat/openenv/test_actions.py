"""What is made of an action, whatever a client made of a reply."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tasks import FunctionCall, Message, ToolCall
from app.http.compat.openenv.sessions import OpenEnvAction, ParsedAction, parse_action
from tests.support.tables import read_table

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLED = ToolCall(id="c1", function=FunctionCall(name="add", arguments='{"a": 1}'))


def spoken(text: str | None, **more: Any) -> Message:
    return Message(role="assistant", content=text, **more)


@pytest.mark.parametrize(
    ("data", "said"), read_table(__file__, "actions.yaml", list[tuple[dict[str, Any], ParsedAction]])
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


@pytest.mark.parametrize(
    ("data", "message"), read_table(__file__, "silent_actions.yaml", list[tuple[dict[str, Any], str]])
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
