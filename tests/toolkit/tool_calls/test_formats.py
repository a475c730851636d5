"""Calls in every format that models write them in: the same calls are the same calls, and what is broken is broken."""

import re

import pytest
from pydantic import JsonValue

from app.domain.tasks import Completion, FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec
from app.toolkit.tool_calls.calls import MOST_CALLS, CallReading, ParsedCall
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat, read_calls, read_message_calls, read_text_calls

BOOK: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "restaurant": {"type": "string"},
        "guests": {"type": "integer"},
        "deposit": {"type": "number"},
        "outside": {"type": "boolean"},
        "dishes": {"type": "array", "items": {"type": "string"}},
        "guest": {"type": "object"},
        "note": {"type": ["string", "null"]},
        "room": {"enum": ["garden", "hall"]},
    },
    "required": ["restaurant", "guests"],
}
TOOLS = tuple(
    ToolSpec(function=FunctionSpec(name=name, parameters=schema))
    for name, schema in (("book_table", BOOK), ("open_hours.get", {"type": "object", "properties": {}}))
)
CALLS = (
    ParsedCall(
        name="book_table",
        arguments={
            "restaurant": 'Chez "Ève" \\ [x](y)',
            "guests": 4,
            "deposit": -12.5,
            "outside": True,
            "dishes": ["soup, cold", "it's fish"],
            "guest": {"name": "Ann", "tags": [1, None, False]},
            "note": "5",
            "room": "hall",
        },
    ),
    ParsedCall(name="open_hours.get", arguments={}),
    ParsedCall(name="book_table", arguments={"restaurant": "line\nbreak\tand 日本", "guests": 2, "note": None}),
)

HERMES_ONE = '<tool_call>{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": 2}}</tool_call>'
QWEN_ONE = (
    "<tool_call>\n<function=book_table>\n<parameter=restaurant>\nRoma\n</parameter>\n"
    "<parameter=guests>\n2\n</parameter>\n</function>\n</tool_call>"
)
INVOKE_ONE = (
    '<function_calls>\n<invoke name="book_table">\n<parameter name="restaurant">Roma</parameter>\n'
    '<parameter name="guests">2</parameter>\n</invoke>\n</function_calls>'
)
ONE = ParsedCall(name="book_table", arguments={"restaurant": "Roma", "guests": 2})

every_format = pytest.mark.parametrize("name", FORMATS)


@every_format
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_calls_in_every_format(name: ToolFormat, count: int) -> None:
    written = FORMATS[name].write(CALLS[:count])
    readings = [read_text_calls(text, TOOLS, form) for text in (written, f"\n{written}\n") for form in (None, name)]
    assert readings == [CallReading(CALLS[:count], "", name)] * 4


VARIANTS: dict[ToolFormat, list[str]] = {
    "hermes": [
        HERMES_ONE,
        HERMES_ONE.replace('{"name"', '{"id": "c1", "name"'),
        HERMES_ONE.replace('{"name"', '{"type": "function", "name"'),
        HERMES_ONE.replace('"arguments"', '"parameters"'),
        f"<think>{HERMES_ONE}</think>{HERMES_ONE}",
    ],
    "llama_json": [
        '{"name": "book_table", "parameters": {"restaurant": "Roma", "guests": 2}}',
        '{"type": "function", "name": "book_table", "parameters": {"restaurant": "Roma", "guests": 2}}',
        '<|python_tag|>{"name": "book_table", "parameters": {"restaurant": "Roma", "guests": 2}}<|eom_id|>',
        '{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": 2}}',
        '```JSON\n{"name": "book_table", "parameters": {"restaurant": "Roma", "guests": 2}}\n```',
    ],
    "pythonic": [
        "[book_table(restaurant='Roma', guests=2)]",
        '<|python_start|>[book_table(restaurant="\\x52om\\u0061", guests=+2,)]<|python_end|>',
        "<|python_start|>[\n  book_table(\n    restaurant='Roma', guests=2\n  )\n]<|python_end|>\n\n<|eom|>",
    ],
    "mistral": [
        '[TOOL_CALLS] [{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": 2}, "id": "a1B2c3D4e"}]',
        '[TOOL_CALLS]book_table[ARGS]{"restaurant": "Roma", "guests": 2}',
        '[TOOL_CALLS]book_table[CALL_ID]a1B2c3D4e[ARGS]{"restaurant": "Roma", "guests": 2}</s>',
        '[TOOL_CALLS]book_table{"restaurant": "Roma", "guests": 2}',
        'book_table{"restaurant": "Roma", "guests": 2}',
        '[{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": 2}}]',
    ],
    "qwen_coder": [
        QWEN_ONE,
        QWEN_ONE.replace("\n", ""),
        QWEN_ONE.replace("<tool_call>\n", ""),
        QWEN_ONE.replace("<tool_call>\n", "").replace("\n</tool_call>", "<|im_end|>"),
    ],
    "anthropic": [
        INVOKE_ONE,
        INVOKE_ONE.replace("<function_calls>", "").replace("</function_calls>", ""),
        re.sub("<(/?)", r"<\1" + "antml" + ":", INVOKE_ONE),
        '{"type": "tool_use", "id": "t1", "name": "book_table", "input": {"restaurant": "Roma", "guests": 2}}',
        '[{"type": "thinking", "thinking": "Roma", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}, '
        '{"type": "text", "text": null}, '
        '{"type": "tool_use", "id": "t1", "name": "book_table", "input": {"restaurant": "Roma", "guests": 2}}]',
    ],
    "mcp": [
        '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": '
        '{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": 2}, "_meta": {"progressToken": 1}}}'
    ],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in VARIANTS.items() for text in texts])
def test_what_models_really_write(name: ToolFormat, text: str) -> None:
    assert read_text_calls(text, TOOLS) == CallReading((ONE,), "", name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"I will book it.\n{HERMES_ONE}\nDone.", "I will book it.\n\nDone."),
        (f"Booking. {QWEN_ONE}", "Booking."),
        (f"Booking. {INVOKE_ONE}", "Booking."),
        (
            'Booking. <|python_tag|>{"name": "book_table", "parameters": {"restaurant": "Roma", "guests": 2}}',
            "Booking.",
        ),
        ('Booking. [TOOL_CALLS]book_table[ARGS]{"restaurant": "Roma", "guests": 2}', "Booking."),
        (
            '[{"type": "text", "text": "Booking."}, {"type": "tool_use", "id": "t", "name": "book_table", '
            '"input": {"restaurant": "Roma", "guests": 2}}]',
            "Booking.",
        ),
    ],
)
def test_words_beside_the_calls(text: str, said: str) -> None:
    reading = read_text_calls(text, TOOLS)
    assert (reading.calls, reading.said) == ((ONE,), said)


MALFORMED: dict[ToolFormat, list[str]] = {
    "hermes": [
        HERMES_ONE.removesuffix("</tool_call>"),
        HERMES_ONE.removeprefix("<tool_call>"),
        HERMES_ONE.replace('"arguments": {', '"arguments": "{').replace("}}<", '}"}<'),
        HERMES_ONE.replace('"guests": 2', '"guests": 2,'),
        HERMES_ONE.replace('"guests": 2', '"guests": NaN'),
        HERMES_ONE.replace('"guests": 2', '"guests": 1e999'),
        HERMES_ONE.replace('"guests": 2', '"guests": ' + "9" * 5000),
        HERMES_ONE.replace('"guests": 2', '"restaurant": "Lyon"'),
        HERMES_ONE.replace('"guests": 2', '"guests": ' + "[" * 50 + "]" * 50),
        HERMES_ONE.replace('"guests": 2', '"guests": ' + "[" * 90_000),
        HERMES_ONE.replace("Roma", "\\ud800"),
        HERMES_ONE.replace('"book_table"', "7"),
        HERMES_ONE.replace('"book_table"', '""'),
        HERMES_ONE.replace('"arguments"', '"args"'),
        HERMES_ONE.replace('"arguments"', '"parameters": {}, "arguments"'),
        HERMES_ONE.replace('{"name"', '{"strict": true, "name"'),
        HERMES_ONE + "<tool_call></tool_call>",
        HERMES_ONE + "\n<tool_call>\nbook_table\n</tool_call>",
        HERMES_ONE + "</tool_call>",
        "<tool_call>[" + HERMES_ONE.removeprefix("<tool_call>").removesuffix("</tool_call>") + "]</tool_call>",
    ],
    "llama_json": [
        '{"name": "book_table", "parameters": {"restaurant": "Roma"}',
        '{"name": "book_table", "parameters": {"restaurant": "Roma"}} and so on',
        '{"name": "book_table", "parameters": ["Roma"]}',
        '<|python_tag|>book_table.call(query="Roma")',
        "<|python_tag|>",
    ],
    "pythonic": [
        "[book_table(restaurant='Roma', guests=2)",
        "[book_table(restaurant='Roma', guests=2)] and more",
        "[book_table('Roma', 2)]",
        "[book_table(restaurant='Roma', guests=\u0662)]",
        "[book_table(restaurant='Roma', guests=\uff12)]",
        "[book_table(restaurant='Roma', restaurant='Lyon')]",
        "[book_table(guests=1 + 1)]",
        "[book_table(guests=__import__('os').getpid())]",
        *("[book_table(guests=f'{2}')]", "[book_table(guests={1: 2})]", "[book_table(guests={'a': 1, 'a': 2})]"),
        "[book_table(guests=1e999)]",
        "[book_table(guests=" + "9" * 5000 + ")]",
        "[book_table(guests=" + "[" * 60 + "]" * 60 + ")]",
        "[book_table(guests=" + "(" * 90_000,
        "[book_table(restaurant='\\ud800')]",
        "<|python_start|><|python_end|>",
        "<|python_start|>[]<|python_end|>",
    ],
    "mistral": [
        '[TOOL_CALLS]{"name": "book_table", "arguments": {}}',
        "[TOOL_CALLS][]",
        '[TOOL_CALLS][{"name": "book_table"}]',
        '[TOOL_CALLS]book_table[ARGS]{"guests": 2} thanks',
        "[TOOL_CALLS]book_table[ARGS]guests",
        'book_table{"guests": 2} and more',
        '[{"name": "book_table", "arguments": {"guests": 2}}] and more',
        'book_table[ARGS]{"guests": 2}',
    ],
    "qwen_coder": [
        QWEN_ONE.replace("</function>\n", ""),
        QWEN_ONE.replace("</parameter>", ""),
        QWEN_ONE.replace("\n</tool_call>", ""),
        QWEN_ONE.replace("<function=book_table>", "book_table"),
        QWEN_ONE.replace("<parameter=guests>", "<parameter=restaurant>"),
        QWEN_ONE.replace("<function=book_table>", "<function=>"),
        QWEN_ONE.replace("<parameter=guests>", "guests: "),
        QWEN_ONE + HERMES_ONE,
    ],
    "anthropic": [
        INVOKE_ONE.replace("</invoke>", ""),
        INVOKE_ONE.replace("</parameter>", ""),
        INVOKE_ONE.replace('name="guests"', 'name="restaurant"'),
        INVOKE_ONE.replace('<invoke name="book_table">', "<invoke>"),
        "<function_calls></function_calls>",
        '[{"type": "tool_use", "name": "book_table", "input": "Roma"}]',
        '[{"type": "tool_use", "name": "book_table", "input": {}}, {"type": "image"}]',
        '[{"type": "tool_use", "name": "book_table", "input": {}}] Done.',
    ],
    "mcp": [
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"name": "book_table"}}',
        '{"jsonrpc": "1.0", "id": 1, "method": "tools/call", "params": {"name": "book_table"}}',
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "book_table", "arguments": [1]}}',
        '[{"jsonrpc": "2.0"}]',
        '{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "book_table"}}\n{"jsonrpc": "2.0"',
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in MALFORMED.items() for text in texts], ids=lambda text: text[:60]
)
def test_one_malformed_call_spoils_the_reply(name: ToolFormat, text: str) -> None:
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


def test_no_end_of_short_calls_is_read() -> None:
    short = "f{}", "<function=f></function>", '<invoke name="f"></invoke>'
    faults = [read_text_calls(one * (MOST_CALLS + 1), TOOLS).fault for one in short]
    assert faults == [f"there are more than {MOST_CALLS} calls"] * len(short)


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
