"""Errors in the forms in which servers send them, in server_errors.yaml."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.inference.connection import ServerError, parse_server_error, tells_error
from tests.support.tables import read_table

ERRORS = read_table(__file__, "server_errors.yaml", list[Any])


def read(body: str) -> ServerError:
    return parse_server_error(json.loads(body))


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: str(row["body"])[:40])
def test_errors_of_every_form(row: dict[str, Any]) -> None:
    wanted = ServerError(row.get("message", ""), frozenset(row.get("codes", ())), frozenset(row.get("fields", ())))
    assert parse_server_error(row["body"]) == wanted


@pytest.mark.parametrize(("words", "seconds"), read_table(__file__, "waits.yaml", list[tuple[str, float]]))
def test_words_say_how_long_to_wait(words: str, seconds: float) -> None:
    assert ServerError(words).wait_seconds == pytest.approx(seconds)


def test_gemini_says_it_in_a_detail() -> None:
    body = '[{"error":{"code":429,"message":"Slow down.","details":[{"@type":"RetryInfo","retryDelay":"34s"}]}}]'
    assert read(body).wait_seconds == 34.0


@pytest.mark.parametrize(("body", "lacks"), read_table(__file__, "payments.yaml", list[tuple[str, bool]]))
def test_whether_somebody_has_to_pay(body: str, lacks: bool) -> None:
    assert read(body).lacks_money == lacks


def test_which_bodies_with_status_200_are_errors() -> None:
    bodies = ('{"error":{"code":429}}', '{"object":"error"}', '[{"error":"no"}]', '{"choices":[{}],"error":"x"}', "[]")
    assert [tells_error(json.loads(body)) for body in bodies] == [True, True, True, False, False]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just('{"error": {"message": "{}"}}'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "detail", "metadata", "raw", "loc", "code", "details"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_nothing_is_too_odd_to_read(value: object) -> None:
    error = parse_server_error(value)
    assert (error.status or 400) >= 400
    assert error.wait_seconds >= 0
