"""What a chat server sends, in forms that no server should send."""

import json

import pytest

from app.judges.configuration import CallFailed
from app.judges.judge_client import LONGEST_NAME, LONGEST_WAIT_SECONDS, ChatResponse, parse_response, parse_retry_after


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("2.5", 2.5),
        *((said, 0.0) for said in ("0", "-5", "", "soon", "nan", "inf", "Wed, 21 Oct 2015 07:28:00 GMT")),
        *((f"Wed, 21 Oct {said}", 0.0) for said in ("2015 07:28:00", "99999999999999 07:28:00 GMT")),
        ("Wed, 21 Oct 2026 07:28:00 +99999999", 0.0),
        *((said, LONGEST_WAIT_SECONDS) for said in ("86400", "1e300", "Wed, 21 Oct 9998 07:28:00 GMT")),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone(said: str, seconds: float) -> None:
    assert parse_retry_after({"retry-after": said}) == seconds


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('"plain"', "plain"),
        ('[{"text": "in "}, {"text": "parts"}, {"image": 3}, 7, {"text": null}]', "in parts"),
        ("[" * 400 + "]" * 400, ""),
        ('[{"text":' * 400 + '"deep"' + "}]" * 400, ""),
        ('{"text": "no list"}', ""),
        ("3", ""),
        (r'"\ud800 alone"', "\ufffd alone"),
    ],
)
def test_contents_of_every_shape(content: str, text: str) -> None:
    body = f'{{"choices": [{{"message": {{"content": {content}}}}}]}}'
    assert parse_response(body.encode()) == ChatResponse(text, False, False)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ('"model": "m-2", "system_fingerprint": "fp_1"', ("m-2", "fp_1")),
        ('"model": null, "system_fingerprint": 7', ("", "")),
        (r'"model": "\ud800"', ("\ufffd", "")),
        (f'"model": "{"m" * 300}"', ("m" * LONGEST_NAME, "")),
    ],
)
def test_what_the_server_says_answered(said: str, names: tuple[str, str]) -> None:
    whole = parse_response(f'{{"choices": [{{"message": {{"content": "x"}}}}], {said}}}'.encode())
    streamed = (
        f'data: {{"choices": [{{"delta": {{"content": "x"}}, "finish_reason": "stop"}}], {said}}}\n\ndata: [DONE]\n'
    )
    joined = parse_response(streamed.encode())
    assert [(found.model, found.system_fingerprint) for found in (whole, joined)] == [names, names]


def parse(message: str, more: str = '"finish_reason": "stop"', usage: str = "null") -> ChatResponse:
    return parse_response(f'{{"choices": [{{"message": {message}, {more}}}], "usage": {usage}}}'.encode())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('{"content": null, "reasoning_content": "read"}', "read"),
        ('{"content": "", "reasoning": "read"}', "read"),
        ('{"content": "said", "reasoning_content": "thought"}', "said"),
        ('{"content": null, "refusal": "no", "reasoning_content": "thought"}', "no"),
    ],
)
def test_an_answer_may_stand_where_thoughts_do(message: str, text: str) -> None:
    assert parse(message).text == text


CUT = '"finish_reason": "length"'
COUNTED = '{"completion_tokens": 100, "completion_tokens_details": {"reasoning_tokens": %s}}'


@pytest.mark.parametrize(
    ("message", "more", "usage", "lacks"),
    [
        ('{"content": null}', CUT, "null", True),
        ('{"content": ""}', CUT, COUNTED % 100, True),
        ('{"content": "<think>hm"}', CUT, "null", True),
        ('{"content": "{", "reasoning_content": "Let me see."}', CUT, "null", True),
        ('{"content": "{\\"verdicts\\""}', CUT, COUNTED % 90, True),
        ('{"content": "{\\"verdicts\\""}', CUT, COUNTED % 10, False),
        ('{"content": "\\n\\n\\n\\n"}', CUT, "null", False),
        ('{"content": ""}', '"finish_reason": "stop"', "null", False),
    ],
)
def test_when_a_thought_used_up_the_tokens(message: str, more: str, usage: str, lacks: bool) -> None:
    assert parse(message, more, usage).lacks_room == lacks


@pytest.mark.parametrize(
    ("body", "status", "ran"),
    [
        ('{"error": {"code": 429, "message": "slow"}}', 429, False),
        ('{"error": {"code": "503"}, "choices": []}', 503, False),
        ('{"error": "no"}', 200, False),
        ('{"choices": [{"finish_reason": "error", "message": {"content": "{"}}]}', 200, True),
        ('{"choices": [{"error": {"code": 502}, "message": {"content": ""}}]}', 502, True),
        ('data: {"error": {"code": 429}}\n\n', 429, False),
        ('data: {"choices": [{"delta": {"content": "{"}}]}\n\n', None, False),
    ],
)
def test_errors_inside_of_replies(body: str, status: int | None, ran: bool) -> None:
    with pytest.raises(CallFailed) as caught:
        parse_response(body.encode())
    assert (caught.value.status, caught.value.ran) == (status, ran)


VERDICT = '{"scores": {"charm": {"A": 4}}, "ranking": [["A"]]}'


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            f'{{"content": null, "tool_calls": [{{"function": {{"name": "f", "arguments": {json.dumps(VERDICT)}}}}}]}}',
            VERDICT,
        ),
        (f'{{"content": "", "tool_calls": [{{"function": {{"name": "f", "arguments": {VERDICT}}}}}]}}', VERDICT),
        (f'{{"content": null, "function_call": {{"name": "f", "arguments": {json.dumps(VERDICT)}}}}}', VERDICT),
        (f'{{"content": "", "parsed": {VERDICT}}}', VERDICT),
        (f'{{"content": {VERDICT}}}', VERDICT),
        (f'{{"content": {json.dumps(VERDICT)}, "parsed": {VERDICT}}}', f"{VERDICT}\n{VERDICT}"),
        (
            '{"content": "I call.", "tool_calls": [{"function": {"arguments": "{1}"}}, 3, {"function": null}]}',
            "I call.\n{1}",
        ),
        ('{"content": null, "parsed": {"charm": 4}, "tool_calls": {"function": 3}}', ""),
    ],
)
def test_an_answer_in_a_call_or_parsed_is_text(message: str, text: str) -> None:
    assert parse(message).text == text
