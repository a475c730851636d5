"""Which calls are right: the same set, valid by schema, every value the same value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.tasks import FunctionSpec, ToolSpec
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

STRICTNESSES: tuple[Strictness, ...] = ("ours", "published")
TOOLS = (
    ToolSpec(
        function=FunctionSpec(
            name="weather",
            parameters={
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer", "default": 1},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                    "height": {"type": "number"},
                    "wind": {"type": "boolean"},
                    "place": {"type": "object", "properties": {"lat": {"type": "integer"}}},
                    "hours": {"type": "array", "items": {"type": "integer"}},
                    "source": {"type": "string", "default": None},
                    "alerts": {"type": "boolean", "default": "dontcare"},
                },
                "required": ["city"],
            },
        )
    ),
    ToolSpec(function=FunctionSpec(name="news", parameters={"type": "object", "properties": {}})),
)


def call(**arguments: JsonValue) -> ParsedCall:
    return ParsedCall(name="weather", arguments=arguments)


def expected(*optional: str, **arguments: tuple[JsonValue, ...]) -> ExpectedCall:
    return ExpectedCall(name="weather", arguments=arguments, optional=frozenset(optional))


ROME, OSLO = expected(city=("Rome",)), expected(city=("Oslo",))

RIGHT = [
    ([call(city="Rome")], [ROME]),
    ([call(city="rome ")], [ROME]),
    ([call(city="Rome", days=1)], [ROME]),
    ([call(city="Rome", source=None)], [ROME]),
    ([call(city="Rome", days=1)], [expected("days", city=("Rome",), days=(7,))]),
    ([call(city="Rome")], [expected(city=("Rome",), days=(1, 7))]),
    ([call(city="Rome", days=7)], [expected(city=("Rome",), days=(1, 7))]),
    ([call(city="Rome")], [expected("unit", city=("Rome",), unit=("celsius",))]),
    ([call(city="Rome", unit="celsius")], [expected("unit", city=("Rome",), unit=("celsius",))]),
    ([call(city="Oslo"), call(city="Rome")], [ROME, OSLO]),
    ([call(city="Rome"), call(city="Oslo")], [expected(city=("Rome", "Oslo")), ROME]),
    ([call(city="Rome"), call(city="Rome")], [ROME, ROME]),
    ([call(city="Rome"), ParsedCall(name="news")], [ExpectedCall(name="news"), ROME]),
    ([call(city="Rome", height=3)], [expected(city=("Rome",), height=(3.0,))]),
    ([call(city="Rome", height=3.0)], [expected(city=("Rome",), height=(3,))]),
    ([], []),
]

NOT_ASKED = "the call of 'weather' is not what was asked for, or one too many"

WRONG = [
    (
        [call(city="Rome", alerts="dontcare")],
        [ROME],
        CallMatch(False, 0.0, 0.0, "weather: 'alerts' does not fit its schema"),
    ),
    (
        [call(city="Rome")],
        [ExpectedCall(name="weather", arguments={"city": ("Rome",), "days": (1,)}, needed=frozenset({"city", "days"}))],
        CallMatch(False, 0.0, 0.0, NOT_ASKED),
    ),
    ([], [ROME], CallMatch(False, 0.0, 0.0, "there is no call")),
    ([call(city="Rome")], [], CallMatch(False, 0.0, 1.0, "no tool fits, and there is a call")),
    ([call(city="Oslo")], [ROME], CallMatch(False, 0.0, 0.0, NOT_ASKED)),
    ([call(city="Rome"), call(city="Rome")], [ROME], CallMatch(False, 0.5, 1.0, NOT_ASKED)),
    ([call(city="Rome")], [ROME, OSLO], CallMatch(False, 1.0, 0.5, "calls are missing")),
    ([call(city="Rome", days=2)], [ROME], CallMatch(False, 0.0, 0.0, NOT_ASKED)),
    ([call(city="Rome", source="")], [ROME], CallMatch(False, 0.0, 0.0, NOT_ASKED)),
    ([call(city="Rome", alerts="no")], [ROME], CallMatch(False, 0.0, 0.0, "weather: 'alerts' does not fit its schema")),
    ([call(city="Rome", country="IT")], [ROME], CallMatch(False, 0.0, 0.0, "weather has no argument 'country'")),
    ([call()], [ROME], CallMatch(False, 0.0, 0.0, "weather lacks city")),
    ([call(city=7)], [ROME], CallMatch(False, 0.0, 0.0, "weather: 'city' does not fit its schema")),
    ([ParsedCall(name="wether")], [ROME], CallMatch(False, 0.0, 0.0, "there is no tool 'wether'")),
    ([call(city="Rome")] * 100, [ROME], CallMatch(False, 0.01, 1.0, NOT_ASKED)),
]


@pytest.mark.parametrize(("calls", "right"), RIGHT)
def test_right_calls(calls: list[ParsedCall], right: list[ExpectedCall]) -> None:
    assert match_calls(calls, right, TOOLS) == CallMatch(True, 1.0, 1.0, "")


@pytest.mark.parametrize(("calls", "right", "matched"), WRONG)
def test_wrong_calls(calls: list[ParsedCall], right: list[ExpectedCall], matched: CallMatch) -> None:
    assert match_calls(calls, right, TOOLS) == matched


@given(st.permutations(range(5)))
def test_the_order_of_calls_does_not_matter_where_a_greedy_match_would_fail(order: list[int]) -> None:
    """Each accepts its own letter and the one before, but for the first: there is one way to pair them."""
    letters = "abcde"
    right = [expected(city=tuple(letters[max(0, place - 1) : place + 1])) for place in range(5)]
    assert match_calls([call(city=letters[place]) for place in order], right, TOOLS).correct


def test_many_calls_are_not_compared_one_by_one() -> None:
    assert match_calls([call(city="Oslo")] * MOST_COMPARED + [call(city="Rome")], [ROME], TOOLS).recall == 0.0


SCHEMA_FAULTS: dict[str, dict[str, JsonValue]] = {
    "weather: 'days' does not fit its schema": {"city": "Rome", "days": True},
    "weather: 'days' is not an integer": {"city": "Rome", "days": 2.0},
    "weather: 'unit' does not fit its schema": {"city": "Rome", "unit": "kelvin"},
    "weather: 'height' does not fit its schema": {"city": "Rome", "height": "3"},
    "weather: 'wind' does not fit its schema": {"city": "Rome", "wind": 1},
    "weather: 'place'.'lat' does not fit its schema": {"city": "Rome", "place": {"lat": "4"}},
    "weather: 'place' is not an integer": {"city": "Rome", "place": {"lat": 4.0}},
    "weather: 'hours'.1 does not fit its schema": {"city": "Rome", "hours": [1, "2"]},
    "weather: 'hours' is not an integer": {"city": "Rome", "hours": [1, 2.0]},
    "weather has no argument '" + "x" * 40 + "\\u2026'": {"city": "Rome", "x" * 100: 1},
    "weather has no argument '\\n\\u202e'": {"city": "Rome", "\n\u202e": 1},
    "": {"city": "Rome", "days": 10**40, "height": 5, "hours": [], "place": {"lon": 4.0}},
}


def test_schemas_are_read_strictly() -> None:
    assert {describe_schema_fault(call(**said), TOOLS): said for said in SCHEMA_FAULTS.values()} == SCHEMA_FAULTS


# one, other, the same by our rule, the same by the published one
SAME_TEXTS = [
    ("New York", " new york\n", True, False),
    ("New York, NY", "new york, ny", True, True),
    *(("it’s", "It's", True, False), ("Straße", "STRASSE", True, False), ("São Paulo", "SA\u0303O PAULO", True, False)),
    *(("10:30 AM", "10:30 am", True, True), ("3rd Street", "3RD street", True, True)),
    *(("New York", "new  york", False, True), ("New-York", "new york", False, True), ("Rome", "Roma", False, False)),
    *(("X", "x", False, True), ("a;b", "ab", False, False), ("it's", 'it"s', False, True)),
    *(("1.5", "15", False, True), ("-5", "5", False, True), ("2024/1/11", "2024-11-1", False, True)),
    *(("$1,000", "$1000", False, True), ("02134", "2134", False, False), ("1.0", "1", False, False)),
    *(
        ("n^3", "n*3", False, True),
        ("n^3", "n/3", False, True),
        ("u-v", "uv", False, True),
        ("u + V", "u + v", False, True),
    ),
    *(("/etc/hosts.allow", "etc/hostsallow", False, True), ("./a", "../a", False, True), ("~/x", "x", False, False)),
    *(("A_b.csv", "A-b.csv", False, True), ("Notes.txt", "notes.txt", False, True), (" --all", "--all", False, True)),
    *(("m.doe@example.org", "mdoe@example.org", False, True), ("#Dev", "#dev", False, True)),
    *(("", "./-", False, False), ("./-", "./-", True, True), ("", "", True, True), ("10⁵", "105", False, False)),
]


@pytest.mark.parametrize(("one", "other", "ours", "published"), SAME_TEXTS)
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


NUMBER: dict[str, JsonValue] = {"type": "number"}
SAME_VALUES: list[tuple[JsonValue, JsonValue, dict[str, JsonValue], bool]] = [
    *((1, 1, {}, True), (1, True, {}, False), (True, 1, {}, False), (True, True, {}, True), (1.0, 1, {}, False)),
    *((1.0, 1, NUMBER, True), (1, 1.0, {}, True), ("1", 1, {}, False), (1, "1", {}, False)),
    (0.1 + 0.2, 0.3, NUMBER, False),
    *((None, None, {}, True), (None, "", {}, False), (0, None, {}, False)),
    ("celsius", "Celsius", {}, True),
    ("celsius", "Celsius", {"enum": ["Celsius"]}, False),
    ("ann.lee@example.org", "annlee@example.org", {}, False),
    ("ann.lee@example.org", "annlee@example.org", {"format": "email"}, False),
    ("#bookclub", "#book-club", {"pattern": "^#[a-z-]+$"}, False),
    ([1, 2], [2, 1], {}, False),
    ([1, 2], [2, 1], {"uniqueItems": True}, True),
    (["bb", "Aa"], ["aa", "bb"], {"uniqueItems": True, "items": {"type": "string"}}, True),
    (["a", "a"], ["a", "b"], {"uniqueItems": True}, False),
    (["a", "b"], ["a"], {"uniqueItems": True}, False),
    ([{"d": 1}, {"d": True}], [{"d": True}, {"d": 1}], {"uniqueItems": True}, True),
    ([1, 1], [1], {}, False),
    (["a B"], ["A b"], {}, True),
    (["a B"], ["a b"], {"items": {"enum": ["a b"]}}, False),
    ([1.0], [1], {"items": NUMBER}, True),
    ({"a": 1}, {"a": 1}, {}, True),
    ({"a": True}, {"a": 1}, {}, False),
    ({"a": "X y"}, {"a": "x Y"}, {}, True),
    ({"a": 1.0}, {"a": 1}, {"properties": {"a": NUMBER}}, True),
    ({"a": 1, "b": 2}, {"a": 1}, {}, False),
    ({}, {"a": 1}, {}, False),
    ([], {}, {}, False),
]


@pytest.mark.parametrize(("said", "accepted", "schema", "same"), SAME_VALUES)
def test_values(said: JsonValue, accepted: JsonValue, schema: dict[str, JsonValue], same: bool) -> None:
    assert is_same_value(said, accepted, schema) is same


def test_tools_as_text() -> None:
    text = render_tools(TOOLS[1:], "hermes")
    assert text == (
        "These tools are available, each as a JSON object:\n"
        '{"type": "function", "function": {"name": "news", "description": "", '
        '"parameters": {"type": "object", "properties": {}}}}\n\n' + FORMATS["hermes"].instruction
    )
