"""Errors in the forms in which servers send them. Bodies are those of the addresses beside them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.inference.connection import NO_ERROR, ServerError, parse_server_error, tells_error


def read(body: str) -> ServerError:
    return parse_server_error(json.loads(body))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (  # https://github.com/openai/openai-python/issues/2046
            '{"error":{"message":"Unsupported parameter: \'max_tokens\' is not supported with this model.",'
            '"type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}',
            ServerError(
                "Unsupported parameter: 'max_tokens' is not supported with this model.",
                frozenset(("invalid_request_error", "unsupported_parameter")),
                frozenset(("max_tokens",)),
            ),
        ),
        (  # https://github.com/vllm-project/vllm/issues/2964
            '{"object":"error","message":"System role not supported","type":"BadRequestError","param":null,"code":400}',
            ServerError("System role not supported", frozenset(("badrequesterror", "400"))),
        ),
        (  # https://github.com/n4ze3m/page-assist/issues/406
            '[{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).",'
            '"status":"RESOURCE_EXHAUSTED"}}]',
            ServerError("Resource has been exhausted (e.g. check quota).", frozenset(("429", "resource_exhausted"))),
        ),
        (  # https://github.com/reVrost/go-openrouter/issues/21
            '{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\\"error\\":{\\"message\\":'
            '\\"Bad\\",\\"param\\":\\"seed\\",\\"code\\":null}}","provider_name":"OpenAI"}},"user_id":"org"}',
            ServerError("Provider returned error: Bad", frozenset(("400",)), frozenset(("seed",))),
        ),
        (  # https://github.com/open-webui/computer/issues/293
            '{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"z is temporarily rate-limited '
            'upstream. Please retry shortly","provider_name":"BaseTen"}}}',
            ServerError(
                "Provider returned error: z is temporarily rate-limited upstream. Please retry shortly",
                frozenset(("429",)),
            ),
        ),
        (  # https://github.com/LoadShine/tada/issues/16
            "{\"error\":\"'response_format.type' must be 'json_schema' or 'text'\"}",
            ServerError("'response_format.type' must be 'json_schema' or 'text'"),
        ),
        (  # transformers 5.23.0, cli/serving/utils.py
            '{"detail":"Unexpected fields in the request: {\'top_k\'}"}',
            ServerError("Unexpected fields in the request: {'top_k'}"),
        ),
        (  # https://fastapi.tiangolo.com/tutorial/handling-errors/
            '{"detail":[{"loc":["path","item_id"],"msg":"value is not a valid integer","type":"type_error.integer"}]}',
            ServerError("value is not a valid integer", frozenset(), frozenset(("path", "item_id"))),
        ),
        (  # https://github.com/editor-code-assistant/eca/issues/231
            '{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],'
            '"msg":"Extra inputs are not permitted","input":32000}]},"type":"invalid_request_error","param":null,'
            '"code":null}',
            ServerError(
                "Extra inputs are not permitted",
                frozenset(("invalid_request_error",)),
                frozenset(("max_completion_tokens",)),
            ),
        ),
        (  # text-embeddings-inference, router/src/http/types.rs
            '{"error":"Model is overloaded","error_type":"Overloaded"}',
            ServerError("Model is overloaded", frozenset(("overloaded",))),
        ),
        ('"no"', ServerError("no")),
        ("null", NO_ERROR),
        ("[]", NO_ERROR),
        ("7", NO_ERROR),
    ],
)
def test_errors_of_every_form(body: str, error: ServerError) -> None:
    assert read(body) == error


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 2.502s. Visit https://platform.openai.com", 2.502),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 6m0s.", 360.0),
        ("Please retry after 86400 seconds.", 86400.0),
        ("Try again in 2 minutes", 120.0),
        ("Please retry shortly, or add your own key", 0.0),
    ],
)
def test_words_say_how_long_to_wait(words: str, seconds: float) -> None:
    assert ServerError(words).wait_seconds == pytest.approx(seconds)


def test_gemini_says_it_in_a_detail() -> None:
    body = '[{"error":{"code":429,"message":"Slow down.","details":[{"@type":"RetryInfo","retryDelay":"34s"}]}}]'
    assert read(body).wait_seconds == 34.0


@pytest.mark.parametrize(
    ("body", "lacks"),
    [
        ('{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}', True),
        ('{"error":{"message":"Your credit balance is too low to access the API."}}', True),
        ('{"error":{"message":"Insufficient Balance","type":"unknown_error"}}', True),
        ('[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan"}}]', False),
        ('{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}', False),
    ],
)
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
