"""Calls of any values are read as they were written, and no text raises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.tasks import FunctionSpec, ToolSpec
from app.toolkit.thoughts import THINKING_TAG, TURN_END
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from app.toolkit.tool_calls.replies import read_text_calls
from tests.support.tables import read_table

BOOK: dict[str, JsonValue] = read_table(__file__, "book.yaml", dict[str, JsonValue])
TOOLS = (ToolSpec(function=FunctionSpec(name="book_table", parameters=BOOK)),)

# Texts that tags would end, or a turn's end, are left to the malformed ones of test_formats.py.
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>`"), max_size=20).filter(
    lambda text: TURN_END.search(text) is None and THINKING_TAG.search(text) is None
)
_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)
    )
    | _texts,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(_texts, inside, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None)
@given(guest=st.dictionaries(_texts, _values, max_size=4), dishes=st.lists(_texts, max_size=4), restaurant=_texts)
def test_what_is_written_is_read_again(
    name: ToolFormat, guest: dict[str, JsonValue], dishes: list[JsonValue], restaurant: str
) -> None:
    call = ParsedCall(name="book_table", arguments={"restaurant": restaurant, "guest": guest, "dishes": dishes})
    assert read_text_calls(FORMATS[name].write([call]), TOOLS, name).calls == (call,)


_pieces = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<function=", "<function=f>", "</function>", "<parameter=a>", "</parameter>"),
        *("<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", '<invoke name="f">', "</invoke>", "<function_calls>", "<think>"),
        *("</think>", '{"name": "f", "arguments": {}}', '{"name":', '"parameters"', '"jsonrpc"', '"type": "tool_use"'),
        *("[f(", "a=", "'", '"', "\\", "(", ")", "[", "]", "{", "}", ",", ";", "1e9", "\x00", "\n", "```\n", "None"),
    ]
)


@settings(deadline=None)
@given(st.lists(_pieces | st.text(max_size=5), max_size=40).map("".join))
def test_no_text_raises(text: str) -> None:
    readings = [read_text_calls(text, TOOLS, form) for form in (None, *FORMATS)]
    assert all(not reading.calls or not reading.fault for reading in readings)
