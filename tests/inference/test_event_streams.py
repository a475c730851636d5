"""Streams of chat completions, whole and broken."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.inference.wire import is_event_stream, join_event_stream


def event(finish_reason: str | None = None, **delta: object) -> str:
    return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': finish_reason}]})}\n\n"


PARTS = event(role="assistant", reasoning_content="Hm") + event(content="An") + event(content="swer")
END = event("stop") + 'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\ndata: [DONE]\n\n'
JOINED: dict[str, object] = {
    "choices": [
        {
            "message": {"content": "Answer", "reasoning_content": "Hm"},
            "finish_reason": "stop",
            "error": None,
        }
    ],
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


@pytest.mark.parametrize("body", [b"", b'{"choices": []}', b"<html>", b"[1]"])
def test_other_bodies_are_no_streams(body: bytes) -> None:
    assert not is_event_stream(body)


@given(st.lists(st.recursive(st.none() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=2))))
def test_no_event_is_too_odd(values: list[object]) -> None:
    fields = ("choices", "delta", "logprobs", "usage", "content")
    events = [{name: [{name: value for name in fields}] for name in fields} for value in values]
    join_event_stream("".join(f"data: {json.dumps(one)}\n\n" for one in [*events, *values]).encode())
