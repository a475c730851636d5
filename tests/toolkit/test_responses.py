"""Prompts in the form of OpenAI's Responses API, as chat messages."""

from app.domain.tasks import FunctionCall, FunctionSpec, Message, Opening, ToolCall, ToolSpec
from app.toolkit.responses import PromptParams

PROMPT = {
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "Use tools."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain "}, {"text": "today?"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Ask."}]},
        {"type": "function_call", "call_id": "a", "name": "ask", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "dry"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "No."}]},
        {"role": "user", "content": "And tomorrow?"},
    ],
    "tools": [
        {"type": "function", "name": "ask", "description": None, "parameters": {"type": "object"}, "strict": True}
    ],
    "temperature": 0.5,
}


def test_a_prompt_of_items_becomes_chat_messages() -> None:
    call = ToolCall(id="a", function=FunctionCall(name="ask", arguments="{}"))
    assert PromptParams.model_validate(PROMPT).opening == Opening(
        messages=(
            Message(role="system", content="Be brief."),
            Message(role="system", content="Use tools."),
            Message(role="user", content="Rain today?"),
            Message(role="assistant", tool_calls=(call,), reasoning_content="Ask."),
            Message(role="tool", content="dry", tool_call_id="a"),
            Message(role="assistant", content="No."),
            Message(role="user", content="And tomorrow?"),
        ),
        tools=(ToolSpec(function=FunctionSpec(name="ask", parameters={"type": "object"})),),
    )
