"""Qwen3-Coder: tags around each call and each of its arguments, whose values have no types.

`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`; the model often forgets the first
tag, and its own parser does without."""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import CallFormat, FormatResult
from app.toolkit.tool_calls.formats.untyped import ArgumentTags, read_arguments
from app.toolkit.tool_calls.json_text import MOST_CALLS, MOST_NAME, MalformedCall, build_call

_FUNCTION = re.compile(rf"(<tool_call>\s*)?<function=([^<>=\s]{{1,{MOST_NAME}}})>")
_TAGS = ArgumentTags(
    begins=re.compile(rf"<parameter=([^<>=\s]{{1,{MOST_NAME}}})>"),
    ends=re.compile("</parameter>"),
    closes=re.compile("</function>"),
)
_CLOSES = re.compile(r"\s*</tool_call>")
_LEFT_OVER = re.compile("<function=|</function>|</?tool_call>")


def _attempts_calls(text: str) -> bool:
    return "<function=" in text or "</function>" in text


def _read_calls(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (function := _FUNCTION.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise MalformedCall(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : function.start()])
        arguments, position = read_arguments(text, function.end(), function[2], tools, _TAGS)
        calls.append(build_call(function[2], arguments))
        closes = _CLOSES.match(text, position)
        if closes is not None:
            position = closes.end()
        elif function[1] is not None:
            raise MalformedCall("<tool_call> is not closed")
    said.append(text[position:])
    words = "".join(said)
    if _LEFT_OVER.search(words) is not None:
        raise MalformedCall("there are tags of a call that are no call")
    return FormatResult(tuple(calls), words)


def _write_calls(calls: Sequence[ParsedCall]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(
            f"<parameter={name}>\n{_write_value(value)}\n</parameter>\n" for name, value in call.arguments.items()
        )
        + "</function>\n</tool_call>"
        for call in calls
    )


def _write_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


QWEN_CODER = CallFormat(
    name="qwen_coder",
    instruction=(
        "Write each call like this, with the bare value of each argument on lines of its own:\n"
        "<tool_call>\n<function=<name>>\n<parameter=<argument>>\n<value>\n</parameter>\n</function>\n</tool_call>"
    ),
    marks=_attempts_calls,
    read=_read_calls,
    write=_write_calls,
)
