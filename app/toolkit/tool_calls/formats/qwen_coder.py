"""Qwen3-Coder: tags around each call and each of its arguments, whose values have no types.

`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`; the model often forgets the first
tag, and its own parser does without."""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.formats.format import Format, Found
from app.toolkit.tool_calls.formats.untyped import Tags, arguments_at
from app.toolkit.tool_calls.json_text import MOST_CALLS, MOST_NAME, Malformed, call_of
from app.toolkit.tool_calls.values import Call

_FUNCTION = re.compile(rf"(<tool_call>\s*)?<function=([^<>=\s]{{1,{MOST_NAME}}})>")
_TAGS = Tags(
    begins=re.compile(rf"<parameter=([^<>=\s]{{1,{MOST_NAME}}})>"),
    ends=re.compile("</parameter>"),
    closes=re.compile("</function>"),
)
_CLOSES = re.compile(r"\s*</tool_call>")
_LEFT_OVER = re.compile("<function=|</function>|</?tool_call>")


def _marks(text: str) -> bool:
    return "<function=" in text or "</function>" in text


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    calls: list[Call] = []
    said: list[str] = []
    position = 0
    while (function := _FUNCTION.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise Malformed(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : function.start()])
        arguments, position = arguments_at(text, function.end(), function[2], tools, _TAGS)
        calls.append(call_of(function[2], arguments))
        closes = _CLOSES.match(text, position)
        if closes is not None:
            position = closes.end()
        elif function[1] is not None:
            raise Malformed("<tool_call> is not closed")
    said.append(text[position:])
    words = "".join(said)
    if _LEFT_OVER.search(words) is not None:
        raise Malformed("there are tags of a call that are no call")
    return Found(tuple(calls), words)


def _write(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(f"<parameter={name}>\n{_bare(value)}\n</parameter>\n" for name, value in call.arguments.items())
        + "</function>\n</tool_call>"
        for call in calls
    )


def _bare(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


QWEN_CODER = Format(
    name="qwen_coder",
    instruction=(
        "Write each call like this, with the bare value of each argument on lines of its own:\n"
        "<tool_call>\n<function=<name>>\n<parameter=<argument>>\n<value>\n</parameter>\n</function>\n</tool_call>"
    ),
    marks=_marks,
    read=_read,
    write=_write,
)
