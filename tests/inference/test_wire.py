"""What inference servers say, in their several ways, whole and in streams."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from app.domain.tasks import FunctionCall, Message, ToolCall
from app.domain.values import Frozen
from app.inference.connection import NoReply
from app.inference.wire import (
    ChatCompletion,
    SampledMessage,
    Usage,
    find_error,
    is_event_stream,
    iterate_events,
    join_event_stream,
    make_finite,
    parse_completion,
    parse_models,
    read_answer,
)
from tests.support.tables import read_table

HI = Message(role="assistant", content="Hi")
LOGPROBS: JsonValue = {"content": [{"token": "H", "logprob": -0.5}, {"token": "i", "logprob": -0.25}]}


def body(choice: dict[str, JsonValue], **beside: JsonValue) -> bytes:
    said: dict[str, JsonValue] = {"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return json.dumps({"choices": [{**said, **choice}], **beside}).encode()


class Told(Frozen):
    choice: dict[str, JsonValue]
    beside: dict[str, JsonValue] = {}
    said: dict[str, tuple[float, ...]] = {}
    written: int = 2


class Called(Frozen):
    events: tuple[JsonValue, ...]
    read: tuple[tuple[str, str, JsonValue], ...]


class Tables(Frozen):
    """The tables of wire.yaml, which says what each holds."""

    told: dict[str, Told]
    calls: dict[str, Called]
    usage: tuple[tuple[tuple[tuple[str, ...], ...], int, int], ...]
    errors: tuple[tuple[bytes, tuple[int | None, str] | None], ...]
    unreadable: tuple[JsonValue, ...]


TABLES = read_table(__file__, "wire.yaml", Tables)


@pytest.mark.parametrize("server", TABLES.told)
def test_tokens_are_read(server: str) -> None:
    told = TABLES.told[server]
    said = SampledMessage(HI, "stop", **told.said)  # type: ignore[arg-type]
    usage = Usage(completion_tokens=told.written)
    assert parse_completion(read_answer(body(told.choice, **told.beside))) == ChatCompletion((said,), usage)


@pytest.mark.parametrize(("choices", "told", "counted"), TABLES.usage)
def test_all_choices_are_counted(choices: Sequence[Sequence[str]], told: int, counted: int) -> None:
    tokens = [
        [{"id": 7, "token": one, "bytes": list(one.encode()), "logprob": -0.5} for one in said] for said in choices
    ]
    sent = [
        {"message": {"content": "".join(said)}, "logprobs": {"content": own}}
        for said, own in zip(choices, tokens, strict=True)
    ]
    answer = {"choices": sent, "usage": {"prompt_tokens": 35, "completion_tokens": told}}
    assert parse_completion(answer).usage == Usage(prompt_tokens=35, completion_tokens=counted)


def test_infinite_log_probabilities_are_not_known() -> None:
    assert math.isinf(json.loads("-Infinity"))
    sent = body({"token_ids": [7, 8], "logprobs": LOGPROBS}, prompt_token_ids=[1]).replace(b"-0.25", b"-Infinity")
    assert parse_completion(read_answer(sent)).said == (SampledMessage(HI, "stop", (1,), (7, 8)),)


@pytest.mark.parametrize("called", TABLES.calls.values(), ids=TABLES.calls)
def test_calls_are_put_together_out_of_a_stream(called: Called) -> None:
    deltas: list[JsonValue] = [{"delta": {"tool_calls": event}} for event in called.events]
    end: JsonValue = {"delta": {}, "finish_reason": "stop"}
    events = [{"choices": [choice]} for choice in (*deltas, end)]
    read = parse_completion(join_event_stream(b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in events)))
    calls = read.said[0].message.tool_calls
    assert [(call.id or "", call.function.name, call.function.arguments) for call in calls] == [*called.read]


def test_a_call_of_the_old_form_is_read_and_one_without_a_name_is_left_to_the_verifier() -> None:
    said: list[JsonValue] = [
        {"content": None, "function_call": {"name": "ring", "arguments": "{}"}},
        {"content": None, "tool_calls": [{"function": {"arguments": "{"}}]},
    ]
    read = [parse_completion(read_answer(body({"message": message}))).said[0].message.tool_calls[0] for message in said]
    assert [call.function for call in read] == [
        FunctionCall(name="ring", arguments="{}"),
        FunctionCall(name="", arguments="{"),
    ]


def test_tool_calls_are_kept_as_they_came() -> None:
    call: JsonValue = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    spoken: JsonValue = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Hm."}
    said = parse_completion(
        read_answer(body({"message": spoken, "finish_reason": "tool_calls"}, usage={"prompt_tokens": 3}))
    )
    kept = ToolCall(id="call_1", function=FunctionCall(name="add", arguments='{"a": 1}'))
    expected = SampledMessage(Message(role="assistant", tool_calls=(kept,)), "tool_calls")
    assert said == ChatCompletion((expected,), Usage(prompt_tokens=3))


def test_a_message_without_content_is_an_empty_text() -> None:
    said = parse_completion(
        read_answer(body({"message": {"role": "assistant", "content": None, "tool_calls": []}}))
    ).said[0]
    assert said.message == Message(role="assistant", content="")


THINKING: JsonValue = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
SHAPES = {
    "a byte order mark": b'\xef\xbb\xbf{"choices": [{"message": {"content": "Aye."}}]}',
    "parts": json.dumps({"choices": [{"message": {"content": [THINKING, {"text": None}, "Aye."]}}]}).encode(),
    "a text": b'{"choices": [{"text": "Aye."}]}',
    "a delta": b'{"choices": [{"delta": {"content": "Aye."}}]}',
    "an empty message beside a text": b'{"choices": [{"message": {}, "text": "Aye."}]}',
    "a number that is none": b'{"choices": [{"text": "Aye.", "logprobs": {"content": [{"logprob": NaN}]}}]}',
    "a stream": b'data: {"choices": [{"message": {"content": "Aye."}}]}\n\ndata: [DONE]\n\n',
    "a stream of texts": b'\xef\xbb\xbfdata: {"choices": [{"text": "A"}]}\n\n'
    b'data: {"choices": [{"text": "ye."}]}\ndata: [DONE]',
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_is_read_wherever_it_stands(shape: str) -> None:
    said = parse_completion(read_answer(SHAPES[shape])).said
    assert [one.message for one in said] == [Message(role="assistant", content="Aye.")]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (rb'"Aye \ud83d."', "Aye \ufffd."),
        (rb'"Aye \ud83d\ude00."', "Aye \U0001f600."),
        (b'"Aye \xed\xa0\xbd."', "Aye \ufffd\ufffd\ufffd."),
        ('"Aye\u2028."'.encode(), "Aye\u2028."),
    ],
)
def test_half_a_character_costs_itself_alone(sent: bytes, text: str) -> None:
    whole = b'{"choices": [{"message": {"content": %s}}]}' % sent
    streamed = b'data: {"choices": [{"delta": {"content": %s}, "finish_reason": "stop"}]}\n\n' % sent
    assert [parse_completion(read_answer(one)).said[0].message.content for one in (whole, streamed)] == [text, text]


@pytest.mark.parametrize(("sent", "told"), TABLES.errors)
def test_an_error_is_found_inside_of_an_answer(sent: bytes, told: tuple[int | None, str] | None) -> None:
    error = find_error(read_answer(sent))
    assert (None if error is None else (error.status, error.message)) == told


@pytest.mark.parametrize("message", TABLES.unreadable)
def test_a_message_that_cannot_be_read_is_no_empty_one(message: JsonValue) -> None:
    with pytest.raises(ValidationError):
        parse_completion(read_answer(body({"message": message})))


THOUGHTS: list[JsonValue] = [{"type": "thinking", "thinking": "Hm"}, {"type": "redacted_thinking", "data": "c2V0"}]


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}], *([thought] for thought in THOUGHTS)])
def test_a_message_of_parts_may_say_nothing(content: JsonValue) -> None:
    said = parse_completion(read_answer(body({"message": {"content": content}}))).said[0]
    assert said.message == Message(role="assistant", content="")


@pytest.mark.parametrize(
    ("own", "thought"), [({}, "hm"), ({"reasoning_content": None}, "hm"), ({"reasoning_content": "Own"}, "Own")]
)
def test_a_thought_among_parts_stands_in_where_there_is_none(own: dict[str, JsonValue], thought: str) -> None:
    answer = read_answer(body({"message": {"content": [THINKING, "Aye."], **own}}))
    message = {"content": "Aye.", "reasoning_content": thought}
    assert answer == {"choices": [{"message": message, "finish_reason": "stop"}]}


def test_numbers_that_json_has_no_form_for_are_null() -> None:
    assert make_finite(json.loads('{"a": [NaN, -Infinity, 1.5], "b": "NaN"}')) == {"a": [None, None, 1.5], "b": "NaN"}


@pytest.mark.parametrize("sent", [b"", b"<html>", b"{}", b'{"choices": []}', b'{"error": {"message": "no"}}', b"[]"])
def test_other_things_are_no_answer(sent: bytes) -> None:
    with pytest.raises(ValidationError):
        parse_completion(read_answer(sent))


def test_models_are_listed() -> None:
    sent = [b'{"object": "list", "data": [{"id": "small", "owned_by": "us"}, {"id": "large"}]}', b"{}", b"Not Found"]
    assert [parse_models(one) for one in sent] == [("small", "large"), None, None]


def event(finish_reason: str | None = None, **delta: object) -> str:
    return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': finish_reason}]})}\n\n"


PARTS = event(role="assistant", reasoning_content="Hm") + event(content="An") + event(content="swer")
END = event("stop") + 'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\ndata: [DONE]\n\n'
JOINED: dict[str, object] = {
    "choices": [{"message": {"content": "Answer", "reasoning_content": "Hm"}, "finish_reason": "stop", "error": None}],
    "usage": {"prompt_tokens": 3},
}


@pytest.mark.parametrize(
    ("sent", "joined"),
    [
        (PARTS + END, JOINED),
        (f": OPENROUTER PROCESSING\n\n{PARTS}: keep-alive\n\n{END}".replace("\n", "\r\n"), JOINED),
        ((PARTS + END).replace("\n\n", "\n"), JOINED),
        (PARTS + END.replace("data: [DONE]\n\n", ""), JOINED),
        (PARTS, None),
        ("data: [DONE]\n\n", None),
        ("data: {}\n\n", None),
        (PARTS + 'data: {"error": {"code": 502}, "choices": []}\n\n', {"error": {"code": 502}, "choices": []}),
    ],
)
def test_a_stream_is_one_answer_or_none(sent: str, joined: object) -> None:
    assert is_event_stream(sent.encode())
    assert join_event_stream(sent.encode()) == joined


def test_tokens_of_all_parts_are_kept() -> None:
    sent = "".join(
        f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'logprobs': {'content': [text]}}]})}\n\n"
        for text in "ab"
    )
    joined = join_event_stream(f"{sent}{END}".encode())
    assert joined is not None
    assert joined["choices"] == [
        {"message": {"content": "ab"}, "finish_reason": "stop", "error": None, "logprobs": {"content": ["a", "b"]}}
    ]


async def take_events(parts: Sequence[bytes]) -> list[dict[str, object]]:
    async def send() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return [event async for event in iterate_events(send())]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_the_events_of_a_stream_are_the_same_however_it_is_cut(start: bytes, size: int) -> None:
    sent = start + (event(content="Aye.") + event("stop") + "data: [DONE]\n\n").encode()
    events = asyncio.run(take_events([sent[at : at + size] for at in range(0, len(sent), size)]))
    assert [one["choices"] for one in events] == [
        [{"delta": {"content": "Aye."}, "finish_reason": None}],
        [{"delta": {}, "finish_reason": "stop"}],
    ]


def test_a_delta_that_cannot_be_read_is_passed_over() -> None:
    sent = 'data: {"choices": [{"delta": "Aye."}]}\n' + event("stop", content=[{"refusal": "No."}])
    assert [one["choices"] for one in asyncio.run(take_events([sent.encode()]))] == [
        [{"delta": {}}],
        [{"delta": {"content": ""}, "finish_reason": "stop"}],
    ]


@pytest.mark.parametrize("message", [b"5", b'{"content": 5}', b'{"content": [{"refusal": "No."}]}'])
def test_a_whole_answer_that_cannot_be_read_is_no_empty_stream(message: bytes) -> None:
    with pytest.raises(NoReply, match="did not return a chat completion"):
        asyncio.run(take_events([b'{"choices": [{"message": %s, "finish_reason": "stop"}]}' % message]))


def test_a_long_line_is_searched_once() -> None:
    sent = event("stop", content="a" * 4_000_000).encode()
    parts = [sent[at : at + 100] for at in range(0, len(sent), 100)]
    began = time.process_time()
    events = asyncio.run(take_events(parts))
    assert (len(events), time.process_time() - began < 3) == (1, True)


@pytest.mark.parametrize("body", [b"", b'{"choices": []}', b"<html>", b"[1]"])
def test_other_bodies_are_no_streams(body: bytes) -> None:
    assert not is_event_stream(body)


@given(st.lists(st.recursive(st.none() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=2))))
def test_no_event_is_too_odd(values: list[object]) -> None:
    fields = ("choices", "delta", "logprobs", "usage", "content")
    events = [{name: [{name: value for name in fields}] for name in fields} for value in values]
    join_event_stream("".join(f"data: {json.dumps(one)}\n\n" for one in [*events, *values]).encode())
