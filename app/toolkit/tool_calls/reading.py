"""The calls of a reply: as the message's own `tool_calls`, or in its text in a declared or detected format.

Thinking counts for nothing. One malformed call spoils the reply, and so do calls in two ways at once: whoever writes
one right call beside garbage has not called a tool.
"""

import re
from collections.abc import Sequence

from app.domain.tasks import Completion, Message, ToolCall, ToolSpec
from app.toolkit.answers.replies import spoken
from app.toolkit.tool_calls.formats.format import Format, ToolFormat
from app.toolkit.tool_calls.formats.registry import FORMATS
from app.toolkit.tool_calls.json_text import Malformed, call_of, read_json
from app.toolkit.tool_calls.values import Call, Reading

OPENAI = "openai"
"""What a reading calls a message's own `tool_calls`."""

_FENCE = re.compile(r"\s{0,100}```[A-Za-z_]{0,20}[ \t]{0,20}\n(?P<inside>[^`]*)```\s{0,100}\Z")


def read_calls(completion: Completion, tools: Sequence[ToolSpec], form: ToolFormat | None = None) -> Reading:
    """Of a single-turn completion: its text, or its one message. `form` None takes the format that the text is in."""
    if completion.messages is None:
        return text_calls(completion.answer, tools, form)
    if len(completion.messages) != 1 or completion.messages[0].role != "assistant":
        return Reading(fault="the completion is not one message of the assistant")
    return message_calls(completion.messages[0], tools, form)


def message_calls(message: Message, tools: Sequence[ToolSpec], form: ToolFormat | None = None) -> Reading:
    written = text_calls(message.content or "", tools, form)
    if not message.tool_calls:
        return written
    if written.calls or written.fault:
        return Reading(said=written.said, format=OPENAI, fault="there are calls both in `tool_calls` and in the text")
    try:
        return Reading(tuple(map(_given, message.tool_calls)), written.said, OPENAI)
    except Malformed as fault:
        return Reading(said=written.said, format=OPENAI, fault=str(fault))


def text_calls(reply: str, tools: Sequence[ToolSpec], form: ToolFormat | None = None) -> Reading:
    said = spoken(reply).text
    text = _unfenced(said)
    attempted = [FORMATS[form]] if form is not None else list(FORMATS.values())
    attempted = [one for one in attempted if one.marks(text)]
    if not attempted:
        return Reading(said=said.strip())
    if len(attempted) > 1:
        names = " and ".join(one.name for one in attempted)
        return Reading(format=attempted[0].name, fault=f"there are calls in two formats: {names}")
    return _read(attempted[0], text, tools)


def _read(form: Format, text: str, tools: Sequence[ToolSpec]) -> Reading:
    try:
        found = form.read(text, tools)
    except Malformed as fault:
        return Reading(format=form.name, fault=str(fault))
    return Reading(found.calls, found.said.strip(), form.name if found.calls else "")


def _unfenced(text: str) -> str:
    """What a reply that is one fenced block holds: fences are typography."""
    fence = _FENCE.match(text) if text.lstrip().startswith("```") else None
    return text if fence is None else fence["inside"]


def _given(call: ToolCall) -> Call:
    """Some servers send no text at all where a call has no arguments."""
    arguments = call.function.arguments
    if isinstance(arguments, str):
        return call_of(call.function.name, read_json(arguments) if arguments.strip() else {})
    return call_of(call.function.name, {} if arguments is None else arguments)
