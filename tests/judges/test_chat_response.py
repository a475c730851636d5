"""What a chat server sends, in forms that no server should send."""

import pytest

from app.judges.chat_response import LONGEST_WAIT_SECONDS, ChatResponse, parse_response, parse_retry_after


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("2.5", 2.5),
        ("0", 0.0),
        ("-5", 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("86400", LONGEST_WAIT_SECONDS),
        ("1e300", LONGEST_WAIT_SECONDS),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00", 0.0),
        ("Wed, 21 Oct 9998 07:28:00 GMT", LONGEST_WAIT_SECONDS),
        ("Wed, 21 Oct 99999999999999 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2026 07:28:00 +99999999", 0.0),
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
