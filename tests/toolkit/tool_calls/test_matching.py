"""Which calls are right: the same set, valid by schema, every value the same value."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.domain.values import Frozen
from app.toolkit.tool_calls.calls import (
    MOST_COMPARED,
    MOST_MORE,
    CallMatch,
    ExpectedCall,
    ParsedCall,
    Strictness,
    describe_schema_fault,
    is_same_text,
    is_same_value,
    match_calls,
)
from app.toolkit.tool_calls.formats import FORMATS, render_tools
from tests.support.tables import read_table

STRICTNESSES: tuple[Strictness, ...] = ("ours", "published")


def call(**arguments: JsonValue) -> ParsedCall:
    return ParsedCall(name="weather", arguments=arguments)


def expected(*optional: str, **arguments: tuple[JsonValue, ...]) -> ExpectedCall:
    return ExpectedCall(name="weather", arguments=arguments, optional=frozenset(optional))


ROME, OSLO = expected(city=("Rome",)), expected(city=("Oslo",))

NOT_ASKED = "the call of 'weather' is not what was asked for, or one too many"


class Matches(Frozen):
    """The tables of matching.yaml, which says what each holds."""

    right: tuple[tuple[tuple[ParsedCall, ...], tuple[ExpectedCall, ...]], ...]
    wrong: tuple[tuple[tuple[ParsedCall, ...], tuple[ExpectedCall, ...], CallMatch], ...]
    texts: tuple[tuple[str, str, bool, bool], ...]
    values: tuple[tuple[JsonValue, JsonValue, dict[str, JsonValue], bool], ...]
    schema_faults: dict[str, dict[str, JsonValue]]
    tools: tuple[ToolSpec, ...]


MATCHES = read_table(__file__, "matching.yaml", Matches)
TOOLS = MATCHES.tools
TOO_MANY = ([call(city="Rome")] * 100, [ROME], CallMatch(False, 0.01, 1.0, NOT_ASKED))


@pytest.mark.parametrize(("calls", "right"), MATCHES.right)
def test_right_calls(calls: Sequence[ParsedCall], right: Sequence[ExpectedCall]) -> None:
    assert match_calls(calls, right, TOOLS) == CallMatch(True, 1.0, 1.0, "")


@pytest.mark.parametrize(("calls", "right", "matched"), [*MATCHES.wrong, TOO_MANY])
def test_wrong_calls(calls: Sequence[ParsedCall], right: Sequence[ExpectedCall], matched: CallMatch) -> None:
    assert match_calls(calls, right, TOOLS) == matched


@given(st.permutations(range(5)))
def test_the_order_of_calls_does_not_matter_where_a_greedy_match_would_fail(order: list[int]) -> None:
    """Each accepts its own letter and the one before, but for the first: there is one way to pair them."""
    letters = "abcde"
    right = [expected(city=tuple(letters[max(0, place - 1) : place + 1])) for place in range(5)]
    assert match_calls([call(city=letters[place]) for place in order], right, TOOLS).correct


def test_many_calls_are_not_compared_one_by_one() -> None:
    assert match_calls([call(city="Oslo")] * MOST_COMPARED + [call(city="Rome")], [ROME], TOOLS).recall == 0.0


def test_schemas_are_read_strictly() -> None:
    faults = MATCHES.schema_faults
    assert {describe_schema_fault(call(**said), TOOLS): said for said in faults.values()} == faults


@pytest.mark.parametrize(("one", "other", "ours", "published"), MATCHES.texts)
def test_texts(one: str, other: str, ours: bool, published: bool) -> None:
    said = [is_same_text(*pair, strictness=rule) for rule in STRICTNESSES for pair in ((one, other), (other, one))]
    assert said == [ours, ours, published, published]


WORDS = st.lists(st.text("abcXYZéß", min_size=2, max_size=6), min_size=1, max_size=4)
MARKS = st.sampled_from("^*/\\_+=@.~#<>()[]{}|&$%-")


@given(WORDS, MARKS, MARKS, st.data())
def test_a_mark_within_a_text_is_another_text(words: list[str], mark: str, other: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(words[0]) - 1))
    said = [words[0][:place] + one + words[0][place:] for one in (mark, other, "")]
    assert [is_same_text(said[0], one) for one in said] == [True, mark == other, False]


@given(WORDS)
def test_the_case_of_words_and_blanks_around_them_do_not_count(words: list[str]) -> None:
    assert is_same_text(f"  {' '.join(words).upper()}\n", " ".join(words))


def test_a_text_far_longer_than_it_should_be_is_not_read() -> None:
    said = ["Rome" + " " * count for count in (0, MOST_MORE, 2 * MOST_MORE)]
    assert [is_same_text(text, "rome") for text in said] == [True, True, False]


@pytest.mark.parametrize(("said", "accepted", "schema", "same"), MATCHES.values)
def test_values(said: JsonValue, accepted: JsonValue, schema: dict[str, JsonValue], same: bool) -> None:
    assert is_same_value(said, accepted, schema) is same


def test_tools_as_text() -> None:
    text = render_tools(TOOLS[1:], "hermes")
    assert text == (
        "These tools are available, each as a JSON object:\n"
        '{"type": "function", "function": {"name": "news", "description": "", '
        '"parameters": {"type": "object", "properties": {}}}}\n\n' + FORMATS["hermes"].instruction
    )
