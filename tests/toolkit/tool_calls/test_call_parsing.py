"""Calls in text: the marks of a format may stand in an argument, and nowhere else beside a call."""

import pytest

from app.domain.tasks import FunctionSpec, ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat, read_text_calls

TOOLS = (
    ToolSpec(
        function=FunctionSpec(
            name="book_table",
            parameters={
                "type": "object",
                "properties": {"restaurant": {"type": "string"}, "guests": {"type": "integer"}},
            },
        )
    ),
)
MARKS = (
    *("</tool_call>", "<tool_call>", "<function=book_table>", "</function>", "[TOOL_CALLS]", "<|python_tag|>"),
    *("</invoke>", '<invoke name="x">', "<function_calls>", "[book_table(guests=1)]"),
    '<tool_call>{"name": "book_table", "arguments": {}}</tool_call>',
)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", FORMATS)
def test_an_argument_may_hold_the_marks_of_any_format(name: ToolFormat, mark: str) -> None:
    calls = (ParsedCall(name="book_table", arguments={"restaurant": f"It says {mark} there", "guests": 2}),)
    text = FORMATS[name].write(calls)
    assert [read_text_calls(text, TOOLS, form).calls for form in (None, name)] == [calls, calls]


def test_a_call_beside_the_marks_of_another_format_is_no_call() -> None:
    book = ParsedCall(name="book_table", arguments={"restaurant": "a </tool_call> b", "guests": 2})
    texts = [f"{FORMATS['llama_json'].write([book])} </tool_call>", f"<tool_call>{FORMATS['llama_json'].write([book])}"]
    assert [(read.calls, bool(read.fault)) for read in (read_text_calls(text, TOOLS) for text in texts)] == [
        ((), True),
        ((), True),
    ]
