"""Trainers that send text alone play the environments of others that have tools."""

from typing import Any

import pytest

from app.domain.hosting import HostedStep
from app.domain.tasks import FunctionSpec, Message, Opening, Task, ToolSpec
from app.envs.foreign.contract import Description, ForeignOptions, Start, build_environment

ACT = ToolSpec(function=FunctionSpec(name="act", description="", parameters={"type": "object"}))


class Heard:
    """A server whose sessions keep what they were sent."""

    name = kind = settings_digest = "heard"
    options = ForeignOptions()

    def __init__(self, *tools: ToolSpec) -> None:
        self.opening = Opening(messages=(), tools=tools)
        self.messages: list[Message] = []

    async def open_session(self, start: Start) -> Any:
        return self

    async def step(self, message: Message) -> HostedStep:
        self.messages.append(message)
        return HostedStep()


CALL = '<tool_call>{"name": "act", "arguments": {"move": 1}}</tool_call>'
ASKED = {"type": "function", "function": {"name": "act", "arguments": {"move": 1}}}


@pytest.mark.parametrize(
    ("tools", "text", "heard", "told"),
    [
        ([ACT], f"I go. {CALL}", [{"role": "assistant", "content": "I go.", "tool_calls": [ASKED]}], []),
        ([ACT], '{"move": 1}', [{"role": "assistant", "content": '{"move": 1}'}], []),
        ([ACT], "<tool_call>{", [], ["The call cannot be read: the JSON cannot be read."]),
        ([], CALL, [{"role": "assistant", "content": CALL}], []),
    ],
    ids=["a call", "words", "a broken call", "no tools"],
)
async def test_a_call_in_a_text_is_a_call(tools: list[ToolSpec], text: str, heard: list[Any], told: list[str]) -> None:
    server = Heard(*tools)
    environment = build_environment(server)(Description("", None))  # type: ignore[arg-type]
    session = await environment.find_host(Task(messages=(), metadata={"split": "train", "index": 0})).open()
    step = await session.step(Message(role="assistant", content=text))
    sent = [message.model_dump(mode="json") for message in server.messages]
    assert (sent, [message.content for message in step.messages]) == (heard, told)
