"""The calls of a reply: the message's own `tool_calls`, or those in its text, in a declared or a detected format.

Words may stand before and behind calls. Thinking counts for nothing. One malformed call spoils the reply, and so do
calls in two ways at once: whoever writes one right call beside garbage has not called a tool.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from app.domain.tasks import Completion, Message, ToolCall, ToolSpec
from app.toolkit.thoughts import FAMILIES, match_tags, strip_thinking
from app.toolkit.tool_calls.calls import CallReading, MalformedCall, ParsedCall, build_call, read_json
from app.toolkit.tool_calls.formats import FORMATS, CallFormat, ToolFormat, is_bare_call

_OTHER_THINKING = match_tags(family for family in FAMILIES if family.name != "harmony")
_OPENAI = "openai"
"""What a reading calls a message's own `tool_calls`."""

_FENCE = re.compile(r"\s{0,100}```[A-Za-z_]{0,20}[ \t]{0,20}\n(?P<inside>[^`]*)```\s{0,100}\Z")


def read_calls(completion: Completion, tools: Sequence[ToolSpec], form: ToolFormat | None = None) -> CallReading:
    """Of a single-turn completion: its text, or its one message. `form` None takes the format that the text is in."""
    if completion.messages is None:
        return read_text_calls(completion.answer, tools, form)
    if len(completion.messages) != 1 or completion.messages[0].role != "assistant":
        return CallReading(fault="the completion is not one message of the assistant")
    return read_message_calls(completion.messages[0], tools, form)


def read_message_calls(message: Message, tools: Sequence[ToolSpec], form: ToolFormat | None = None) -> CallReading:
    written = read_text_calls(message.content or "", tools, form)
    if not message.tool_calls:
        return written
    if written.calls or written.fault:
        return CallReading(
            said=written.said, format=_OPENAI, fault="there are calls both in `tool_calls` and in the text"
        )
    try:
        return CallReading(tuple(map(convert_call, message.tool_calls)), written.said, _OPENAI)
    except MalformedCall as fault:
        return CallReading(said=written.said, format=_OPENAI, fault=str(fault))


def read_text_calls(reply: str, tools: Sequence[ToolSpec], form: ToolFormat | None = None) -> CallReading:
    # In Harmony thinking ends where a message does, so its reader takes the reply as it is; but a call within other
    # thinking is none.
    is_harmony = form in (None, "harmony") and FORMATS["harmony"].marks(reply) and _OTHER_THINKING.search(reply) is None
    said = reply if is_harmony else strip_thinking(reply).text
    text = _strip_fence(said)
    attempted = [FORMATS[form]] if form is not None else list(FORMATS.values())
    attempted = [one for one in attempted if one.marks(text)]
    if not attempted:
        return _read_bare_call(text, tools, said) if form == "hermes" else CallReading(said=said.strip())
    if len(attempted) == 1:
        return _read_format(attempted[0], text, tools)
    readings = [(one, _read_format(one, text, tools)) for one in attempted]
    whole = [read for one, read in readings if read.calls and not _is_marked(read.said, attempted)]
    if len(whole) == 1:
        return whole[0]
    names = " and ".join(one.name for one in attempted)
    return CallReading(format=attempted[0].name, fault=f"there are calls in two formats: {names}")


def _read_bare_call(text: str, tools: Sequence[ToolSpec], said: str) -> CallReading:
    """Some models leave out the tags where a reply is nothing but JSON."""
    if not is_bare_call(text):
        return CallReading(said=said.strip())
    reading = _read_format(FORMATS["llama_json"], text, tools)
    return replace(reading, format="hermes") if reading.format else reading


def _is_marked(said: str, forms: Sequence[CallFormat]) -> bool:
    """Whether there is more of a call than was read. The marks of another format may stand in an argument."""
    return any(one.marks(said) for one in forms)


def _read_format(form: CallFormat, text: str, tools: Sequence[ToolSpec]) -> CallReading:
    try:
        result = form.read(text, tools)
    except MalformedCall as fault:
        return CallReading(format=form.name, fault=str(fault))
    return CallReading(result.calls, result.said.strip(), form.name if result.calls else "")


def _strip_fence(text: str) -> str:
    """What a reply that is one fenced block holds: fences are typography."""
    fence = _FENCE.match(text) if text.lstrip().startswith("```") else None
    return text if fence is None else fence["inside"]


def convert_call(call: ToolCall) -> ParsedCall:
    """MalformedCall for arguments that are no object. Some servers send no text at all where there are none."""
    arguments = call.function.arguments
    if isinstance(arguments, str):
        return build_call(call.function.name, read_json(arguments) if arguments.strip() else {})
    return build_call(call.function.name, {} if arguments is None else arguments)
