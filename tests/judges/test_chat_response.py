"""What a chat server sends, in forms that no server should send."""

import pytest

from app.domain.values import Frozen
from app.judges.configuration import CallFailed
from app.judges.judge_client import LONGEST_NAME, ChatResponse, parse_response, parse_retry_after
from tests.support.tables import read_table


class Tables(Frozen):
    """The tables of chat_responses.yaml, which says what each holds."""

    waits: tuple[tuple[str, float], ...]
    contents: tuple[tuple[str, str], ...]
    names: tuple[tuple[str, tuple[str, str]], ...]
    thoughts: tuple[tuple[str, str], ...]
    used_up: tuple[tuple[str, str, str, bool], ...]
    errors: tuple[tuple[str, int | None, bool], ...]
    calls: tuple[tuple[str, str], ...]


TABLES = read_table(__file__, "chat_responses.yaml", Tables)


@pytest.mark.parametrize(("said", "seconds"), TABLES.waits)
def test_how_long_a_server_wants_to_be_left_alone(said: str, seconds: float) -> None:
    assert parse_retry_after({"retry-after": said}) == seconds


@pytest.mark.parametrize(
    ("content", "text"),
    [*TABLES.contents, ("[" * 400 + "]" * 400, ""), ('[{"text":' * 400 + '"deep"' + "}]" * 400, "")],
)
def test_contents_of_every_shape(content: str, text: str) -> None:
    body = f'{{"choices": [{{"message": {{"content": {content}}}}}]}}'
    assert parse_response(body.encode()) == ChatResponse(text, False, False)


@pytest.mark.parametrize(("said", "names"), [*TABLES.names, (f'"model": "{"m" * 300}"', ("m" * LONGEST_NAME, ""))])
def test_what_the_server_says_answered(said: str, names: tuple[str, str]) -> None:
    whole = parse_response(f'{{"choices": [{{"message": {{"content": "x"}}}}], {said}}}'.encode())
    streamed = (
        f'data: {{"choices": [{{"delta": {{"content": "x"}}, "finish_reason": "stop"}}], {said}}}\n\ndata: [DONE]\n'
    )
    joined = parse_response(streamed.encode())
    assert [(found.model, found.system_fingerprint) for found in (whole, joined)] == [names, names]


def parse(message: str, more: str = '"finish_reason": "stop"', usage: str = "null") -> ChatResponse:
    return parse_response(f'{{"choices": [{{"message": {message}, {more}}}], "usage": {usage}}}'.encode())


@pytest.mark.parametrize(("message", "text"), TABLES.thoughts)
def test_an_answer_may_stand_where_thoughts_do(message: str, text: str) -> None:
    assert parse(message).text == text


@pytest.mark.parametrize(("message", "more", "usage", "lacks"), TABLES.used_up)
def test_when_a_thought_used_up_the_tokens(message: str, more: str, usage: str, lacks: bool) -> None:
    assert parse(message, more, usage).lacks_room == lacks


@pytest.mark.parametrize(("body", "status", "ran"), TABLES.errors)
def test_errors_inside_of_replies(body: str, status: int | None, ran: bool) -> None:
    with pytest.raises(CallFailed) as caught:
        parse_response(body.encode())
    assert (caught.value.status, caught.value.ran) == (status, ran)


@pytest.mark.parametrize(("message", "text"), TABLES.calls)
def test_an_answer_in_a_call_or_parsed_is_text(message: str, text: str) -> None:
    assert parse(message).text == text
