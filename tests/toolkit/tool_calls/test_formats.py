"""Calls in every format that models write them in: the same calls are the same calls, and what is broken is broken."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from app.domain.tasks import Completion, FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec
from app.domain.values import Frozen
from app.toolkit.tool_calls.calls import MOST_CALLS, CallReading, ExpectedCall, ParsedCall, match_calls
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from app.toolkit.tool_calls.replies import read_calls, read_message_calls, read_text_calls
from tests.support.tables import read_table, unfold


class Replies(Frozen):
    """The tables of formats.yaml, which says what each holds."""

    variants: dict[ToolFormat, tuple[str, ...]]
    beside: tuple[tuple[str, str], ...]
    malformed: dict[ToolFormat, tuple[str, ...]]
    book: dict[str, JsonValue]
    calls: tuple[ParsedCall, ...]
    own_marks: dict[ToolFormat, tuple[str, ...]]


REPLIES = read_table(__file__, "formats.yaml", Replies)
TOOLS = tuple(
    ToolSpec(function=FunctionSpec(name=name, parameters=schema))
    for name, schema in (("book_table", REPLIES.book), ("open_hours.get", {"type": "object", "properties": {}}))
)
CALLS = REPLIES.calls

HERMES_ONE = '<tool_call>{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": 2}}</tool_call>'
HERMES_JSON = HERMES_ONE.removeprefix("<tool_call>").removesuffix("</tool_call>")
QWEN_ONE = (
    "<tool_call>\n<function=book_table>\n<parameter=restaurant>\nRoma\n</parameter>\n"
    "<parameter=guests>\n2\n</parameter>\n</function>\n</tool_call>"
)
INVOKE_ONE = (
    '<function_calls>\n<invoke name="book_table">\n<parameter name="restaurant">Roma</parameter>\n'
    '<parameter name="guests">2</parameter>\n</invoke>\n</function_calls>'
)
GLM_ONE = (
    "<tool_call>book_table\n<arg_key>restaurant</arg_key>\n<arg_value>Roma</arg_value>\n"
    "<arg_key>guests</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
)
HARMONY_ONE = (
    "<|channel|>commentary to=functions.book_table <|constrain|>json<|message|>"
    '{"restaurant": "Roma", "guests": 2}<|call|>'
)
ONE = ParsedCall(name="book_table", arguments={"restaurant": "Roma", "guests": 2})

every_format = pytest.mark.parametrize("name", FORMATS)


@every_format
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_calls_in_every_format(name: ToolFormat, count: int) -> None:
    written = FORMATS[name].write(CALLS[:count])
    readings = [read_text_calls(text, TOOLS, form) for text in (written, f"\n{written}\n") for form in (None, name)]
    likeliest = [
        replace(read, calls=tuple(call.model_copy(update={"also": {}}) for call in read.calls)) for read in readings
    ]
    assert likeliest == [CallReading(CALLS[:count], "", name)] * 4


PREFIXED = re.sub("<(/?)", r"<\1" + "antml" + ":", INVOKE_ONE)
TOO_LARGE: list[tuple[str, ToolFormat]] = [
    (HERMES_ONE.replace('"guests": 2', '"guests": ' + "9" * 5000), "hermes"),
    (HERMES_ONE.replace('"guests": 2', '"guests": ' + "[" * 90_000), "hermes"),
    ("[book_table(guests=" + "9" * 5000 + ")]", "pythonic"),
    ("[book_table(guests=" + "(" * 90_000, "pythonic"),
]


@pytest.mark.parametrize(("text", "name"), [*unfold(REPLIES.variants), (PREFIXED, "anthropic")])
def test_what_models_really_write(text: str, name: ToolFormat) -> None:
    assert read_text_calls(text, TOOLS) == CallReading((ONE,), "", name)


@pytest.mark.parametrize(("text", "said"), REPLIES.beside)
def test_words_beside_the_calls(text: str, said: str) -> None:
    reading = read_text_calls(text, TOOLS)
    assert (reading.calls, reading.said) == ((ONE,), said)


@pytest.mark.parametrize(("text", "name"), [*unfold(REPLIES.malformed), *TOO_LARGE], ids=lambda text: text[:60])
def test_one_malformed_call_spoils_the_reply(text: str, name: ToolFormat) -> None:
    declared = read_text_calls(text, TOOLS, name)
    detected = read_text_calls(text, TOOLS)
    assert (declared.calls, bool(declared.fault), detected.calls) == ((), True, ())


def test_no_calls_are_no_fault() -> None:
    texts = [
        *("", "No tool fits: the city is missing.", "[1](link)", 'f(a=1) {"name": "x"}', "a < b > c"),
        "[see (above)]",
    ]
    assert [read_text_calls(text, TOOLS) for text in texts] == [CallReading(said=text) for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{HERMES_ONE}</think>It is booked.",
        f"<think>{HERMES_ONE}",
        f"{HERMES_ONE}</think>It is booked.",
        f"<|channel|>analysis<|message|>{HERMES_ONE}<|channel|>final<|message|>It is booked.",
    ],
)
def test_calls_inside_thinking_do_not_count(text: str) -> None:
    assert (read_text_calls(text, TOOLS).calls, read_text_calls(text, TOOLS, "hermes").calls) == ((), ())


def test_a_harmony_call_in_thinking_of_another_kind_does_not_count() -> None:
    texts = [f"<think>{HARMONY_ONE}</think>Booked.", f"{HARMONY_ONE}</think>Booked.", f"<think>{HARMONY_ONE}"]
    assert [read_text_calls(text, TOOLS, form).calls for text in texts for form in (None, "harmony")] == [()] * 6


def test_a_harmony_tool_may_be_named_as_the_channel_for_thinking() -> None:
    call = ParsedCall(name="sentiment_analysis", arguments={"analysis": "analysis"})
    written = FORMATS["harmony"].write([call])
    texts = [
        written,
        f"<|channel|>analysis<|message|>Roma<|end|><|start|>assistant{written}",
        written.replace(" to=functions.sentiment_analysis", "").replace(
            "<|ch", "<|start|>assistant to=functions.sentiment_analysis<|ch"
        ),
    ]
    assert [read_text_calls(text, TOOLS) for text in texts] == [CallReading((call,), "", "harmony")] * 3


def test_several_calls_stand_in_one_pair_of_tags() -> None:
    texts = [
        f"<tool_call>[{HERMES_JSON}, {HERMES_JSON}]</tool_call>",
        f"<tool_call>{HERMES_JSON}\n{HERMES_JSON}</tool_call>",
    ]
    assert [read_text_calls(text, TOOLS) for text in texts] == [CallReading((ONE, ONE), "", "hermes")] * 2


def test_where_hermes_is_declared_the_tags_may_be_missing() -> None:
    """The tool's name may not, nor may two objects be one call."""
    texts = [
        HERMES_JSON,
        f"{HERMES_JSON}\nDone.",
        f'{HERMES_JSON[:-1]}, "x": 1}}',
        '{"restaurant": "Roma"} {"guests": 2}',
    ]
    readings = [read_text_calls(text, TOOLS, "hermes") for text in texts]
    assert [(read.calls, read.format, bool(read.fault)) for read in readings] == [
        *(((ONE,), "hermes", False), ((ONE,), "hermes", False), ((), "hermes", True), ((), "", False)),
    ]


def test_a_head_that_is_broken_costs_the_whole_call() -> None:
    """It would lose the argument, and a call without it may be right by accident."""
    broken = [QWEN_ONE.replace("<parameter=guests>", head) for head in ("<parameter guests>", "<parameter:guests>", "")]
    assert [(read.calls, bool(read.fault)) for read in (read_text_calls(text, TOOLS) for text in broken)] == [
        ((), True)
    ] * 3


@pytest.mark.parametrize("text", [QWEN_ONE, INVOKE_ONE, GLM_ONE])
@pytest.mark.parametrize("between", ["", "\n", " and then "])
def test_a_broken_call_is_no_part_of_the_one_before_it(text: str, between: str) -> None:
    """Where all stands in one line, no tag at the end of a line tells."""
    one = text.replace("\n", "").replace("<parameter=guests>2</parameter>", "")
    broken = [
        *(one.replace(">book_table", ">book table"), one.replace("=book_table", "=book table")),
        *(one.replace('"book_table"', "book_table"), one.replace("<parameter=restaurant>", "<parameter restaurant>")),
        *(one.replace('name="restaurant"', "restaurant"), one.replace("<arg_key>restaurant", "<arg_key restaurant")),
    ]
    readings = [read_text_calls(f"{one}{between}{other}", TOOLS) for other in broken if other != one]
    assert [(read.calls, bool(read.fault)) for read in readings] == [((), True)] * 2


# The right calls can be said in every format, whatever their names and values hold.

NAMES = st.from_regex(r"[A-Za-z_0-9][A-Za-z0-9_.-]{0,12}", fullmatch=True)


@st.composite
def draw_calls(draw: st.DrawFn, marks: tuple[str, ...]) -> tuple[tuple[ParsedCall, ...], tuple[ToolSpec, ...]]:
    """Each text holds a mark or several, within words of one line."""
    pieces = st.lists(st.one_of(st.sampled_from(marks), st.sampled_from(("a", "Ä ", "it's ", "\\n ", "7"))), max_size=4)
    texts = pieces.map(lambda some: "x" + "".join(some) + "y")
    values = st.one_of(texts, st.integers(-9, 9), st.booleans(), st.lists(texts, max_size=2))
    calls, tools = list[ParsedCall](), list[ToolSpec]()
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        arguments = draw(st.dictionaries(NAMES, values, max_size=3))
        types: dict[str, JsonValue] = {one: {"type": TYPES[type(value)]} for one, value in arguments.items()}
        parameters: dict[str, JsonValue] = {"type": "object", "properties": types}
        tools.append(ToolSpec(function=FunctionSpec(name=name, parameters=parameters)))
        calls.append(ParsedCall(name=name, arguments=arguments))
    return tuple(calls), tuple(tools)


TYPES: dict[type, str] = {str: "string", int: "integer", bool: "boolean", list: "array"}


@every_format
@given(st.data())
def test_every_gold_is_right_in_every_format(name: ToolFormat, data: st.DataObject) -> None:
    calls, tools = data.draw(draw_calls(REPLIES.own_marks[name]))
    assert read_text_calls(FORMATS[name].write(calls), tools, name) == CallReading(calls, "", name)


def test_an_argument_that_the_tool_has_not_is_part_of_the_value_before_it_where_the_call_can_be_read_so() -> None:
    """What a tool does not say may go on as it likes."""
    tools = [ToolSpec(function=FunctionSpec(name="f", parameters={"type": "object", "properties": {"text": {}}}))]
    said = ParsedCall(name="f", arguments={"text": "x</parameter><parameter=a>y"})
    text = "<function=f><parameter=text>x</parameter><parameter=a>y</parameter></function>"
    apart = ParsedCall(name="f", arguments={"text": "x", "a": "y"})
    readings = [read_text_calls(text, known, "qwen_coder").calls for known in (tools, [])]
    assert readings == [(said,), (apart,)]


def test_arguments_of_any_name_are_written_in_python() -> None:
    calls = (ParsedCall(name="open-hours.get", arguments={"from": 1, "a b": [True], "it's": None, "": "x"}),)
    text = FORMATS["pythonic"].write(calls)
    assert (text, read_text_calls(text, TOOLS).calls) == (
        "[open-hours.get(from=1, **{'a b': [True], \"it's\": None, '': 'x'})]",
        calls,
    )


def test_two_formats_in_one_reply_are_a_fault() -> None:
    fault = "there are calls in two formats: hermes and mistral"
    assert read_text_calls(f"{HERMES_ONE}\n[TOOL_CALLS][]", TOOLS) == CallReading(format="hermes", fault=fault)


@pytest.mark.parametrize(("lists", "fault"), [(49, ""), (50, "there are more than 5000 calls, arguments and values")])
def test_what_a_literal_holds_is_counted_as_a_whole(lists: int, fault: str) -> None:
    assert read_text_calls("[f(a=[" + ("[" + "1," * 99 + "],") * lists + "])]", TOOLS).fault == fault


def test_a_declared_format_is_the_only_one_read() -> None:
    assert read_text_calls(HERMES_ONE, TOOLS, "pythonic") == CallReading(said=HERMES_ONE)


def _message(arguments: JsonValue, content: str | None = None, name: str = "book_table") -> Message:
    call = ToolCall(id="c1", function=FunctionCall(name=name, arguments=arguments))
    return Message(role="assistant", content=content, tool_calls=(call,))


@pytest.mark.parametrize("arguments", ['{"restaurant": "Roma", "guests": 2}', {"restaurant": "Roma", "guests": 2}])
def test_native_calls_with_arguments_as_text_or_object(arguments: str | dict[str, JsonValue]) -> None:
    completion = Completion(messages=(_message(arguments, "<think>hm</think>One moment."),))
    assert read_calls(completion, TOOLS, "pythonic") == CallReading((ONE,), "One moment.", "openai")


def test_no_text_where_arguments_would_stand_is_no_arguments() -> None:
    """Servers send it for tools that have none."""
    readings = [read_message_calls(_message(blank, name="open_hours.get"), TOOLS) for blank in ("", " ", None)]
    assert readings == [CallReading((ParsedCall(name="open_hours.get"),), "", "openai")] * 3


def test_requests_one_after_the_other_are_as_good_as_a_batch() -> None:
    lines = "\n".join(FORMATS["mcp"].write([call]) for call in CALLS)
    assert read_text_calls(lines, TOOLS) == CallReading(CALLS, "", "mcp")


@pytest.mark.parametrize(
    "message",
    [
        *(_message("{"), _message("[]"), _message('"{}"'), _message("{}{}"), _message("null"), _message([5, True])),
        _message({}, name=""),
        _message({}, HERMES_ONE),
        _message({}, "<tool_call>"),
    ],
)
def test_malformed_native_calls(message: Message) -> None:
    reading = read_message_calls(message, TOOLS)
    assert (reading.calls, bool(reading.fault)) == ((), True)


def test_a_single_turn_is_one_message_of_the_assistant() -> None:
    spoken = Message(role="assistant", content=HERMES_ONE)
    readings = [
        read_calls(Completion(messages=said), TOOLS) for said in ((spoken, spoken), (Message(role="user"),), ())
    ]
    assert readings == [CallReading(fault="the completion is not one message of the assistant")] * 3


@pytest.mark.parametrize(
    ("written", "value"),
    [*(("\n4\n", 4), ("4.0", "4.0"), ("four", "four"), ("true", "true"), ("[4]", "[4]"), ("4 4", "4 4"))],
)
def test_bare_values_are_read_by_the_schema(written: str, value: JsonValue) -> None:
    text = QWEN_ONE.replace("\n2\n", written)
    assert read_text_calls(text, TOOLS).calls == (
        ParsedCall(name="book_table", arguments={"restaurant": "Roma", "guests": value}),
    )


OPEN = ToolSpec(
    function=FunctionSpec(
        name="note",
        parameters={"type": "object", "properties": {"any": {}, "some": {"type": ["string", "integer"]}}},
    )
)


@every_format
@pytest.mark.parametrize("value", [5, "5", 1.5, True, "true", None, [1, "a"], {"k": 1}, "x y"])
def test_a_value_without_a_type_counts_as_the_right_one_if_it_may_be_it(name: ToolFormat, value: JsonValue) -> None:
    """Some formats write `5` and `"5"` alike, and the schema does not tell which is meant."""
    asked = {"any": value, **({"some": value} if isinstance(value, int | str) and value is not True else {})}
    calls = read_text_calls(FORMATS[name].write([ParsedCall(name="note", arguments=asked)]), [OPEN], name).calls
    right, wrong = (
        [ExpectedCall(name="note", arguments={argument: (one,) for argument in asked})] for one in (value, "another")
    )
    assert [match_calls(calls, one, [OPEN]).correct for one in (right, wrong)] == [True, False]


def test_no_end_of_short_calls_is_read() -> None:
    short = "f{}", "<function=f></function>", '<invoke name="f"></invoke>'
    faults = [read_text_calls(one * (MOST_CALLS + 1), TOOLS).fault for one in short]
    assert faults == [f"there are more than {MOST_CALLS} calls"] * len(short)


@every_format
@pytest.mark.parametrize("text", ["mkdir -p some/{one,two", "a}}, {", "f(x)[0]) ]", "'\"`\\", "<a b='c'>", "${x}; y|z"])
def test_an_argument_may_be_unbalanced(name: ToolFormat, text: str) -> None:
    calls = (ParsedCall(name="book_table", arguments={"restaurant": text, "guests": 2}),)
    written = FORMATS[name].write(calls)
    assert [read_text_calls(written, TOOLS, form).calls for form in (None, name)] == [calls, calls]


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
