"""What an agent might do with two tools: once right, once by guessing, once in no way that can be read."""

from pydantic import JsonValue

from app.domain.groups import TaskPrompt
from app.domain.scores import Score
from app.domain.tasks import Completion, FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec

ORDERS = (
    ToolSpec(
        function=FunctionSpec(
            name="find_order",
            description="One order by its number.",
            parameters={
                "type": "object",
                "properties": {"number": {"type": "integer", "description": "As printed on the bill."}},
                "required": ["number"],
            },
        )
    ),
    ToolSpec(
        function=FunctionSpec(
            name="refund",
            parameters={
                "type": "object",
                "properties": {
                    "number": {"type": "integer"},
                    "items": {"type": "array", "items": {"type": "string"}},
                    "reason": {"enum": ["broken", "late"], "default": "late"},
                },
                "required": ["number", "items"],
            },
        )
    ),
)


def calling(name: str, arguments: str | dict[str, JsonValue]) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(function=FunctionCall(name=name, arguments=arguments)),))


PROMPT = TaskPrompt(
    messages=(
        Message(role="system", content="You work for the user."),
        Message(role="user", content="The blue cup of order 1204 came broken. Please refund it."),
    ),
    tools=ORDERS,
)
FOUND = '{"order": {"number": 1204, "items": [{"name": "blue cup", "price": "14.90"}, {"name": "tray"}]}}'
RIGHT = (
    calling("find_order", {"number": 1204}),
    Message(role="tool", name="find_order", content=FOUND),
    calling("refund", '{"number": 1204, "items": ["blue cup"], "reason": "broken"}'),
    Message(role="tool", name="refund", content='{"refunded": "14.90"}'),
    Message(role="assistant", content="Done: 14.90 go back to your card."),
)
GUESSED = (
    calling("refund", {"number": "1204", "items": ["cup"], "reason": "It came broken. " * 100}),
    Message(role="tool", name="refund", content='{"error": "refund: \'number\' does not fit its schema"}'),
    Message(role="assistant", content="It is refunded."),
)
ROLLOUTS = (
    (Completion(messages=GUESSED), Score.exact(False, rationale="the state at the end is not what was asked for")),
    (Completion(messages=RIGHT), Score.exact(True, rationale="done as asked")),
    (Completion(messages=(calling("refund", '{"number": NaN}'),)), Score.exact(False)),
)
