"""Qwen3-Coder: tags around each call and each of its arguments, whose values have no types.

`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`"""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from app.calls.formats.format import Format, Found
from app.calls.formats.untyped import Tags, arguments_at
from app.calls.json_text import MOST_NAME, Malformed, call_of
from app.calls.values import Call
from app.domain.tasks import ToolSpec

_OPENS = re.compile(r"<tool_call>\s*")
_FUNCTION = re.compile(rf"<function=([^<>=\s]{{1,{MOST_NAME}}})>")
_TAGS = Tags(
    begins=re.compile(rf"<parameter=([^<>=\s]{{1,{MOST_NAME}}})>"),
    ends=re.compile("</parameter>"),
    closes=re.compile(r"</function>\s*</tool_call>"),
)
_LEFT_OVER = re.compile("<function=|</function>|</?tool_call>")


def _marks(text: str) -> bool:
    return "<function=" in text


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    calls: list[Call] = []
    said: list[str] = []
    position = 0
    while (opens := _OPENS.search(text, position)) is not None:
        said.append(text[position : opens.start()])
        function = _FUNCTION.match(text, opens.end())
        if function is None:
            raise Malformed("<tool_call> is not followed by <function=name>")
        arguments, position = arguments_at(text, function.end(), function[1], tools, _TAGS)
        calls.append(call_of(function[1], arguments))
    said.append(text[position:])
    words = "".join(said)
    if _LEFT_OVER.search(words) is not None:
        raise Malformed("a call is not inside <tool_call>")
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
