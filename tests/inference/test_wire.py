"""What inference servers say, in their several ways."""

import json
import math

import pytest
from pydantic import JsonValue, ValidationError

from app.domain.tasks import FunctionCall, Message, ToolCall
from app.inference.wire import ChatCompletion, SampledMessage, Usage, parse_completion, parse_models

HI = Message(role="assistant", content="Hi")
LOGPROBS: JsonValue = {"content": [{"token": "H", "logprob": -0.5}, {"token": "i", "logprob": -0.25}]}


def body(choice: dict[str, JsonValue], **beside: JsonValue) -> bytes:
    said: dict[str, JsonValue] = {"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return json.dumps({"choices": [{**said, **choice}], **beside}).encode()


def named(*names: str) -> JsonValue:
    return {"content": [{"token": name, "logprob": -0.5, "bytes": None, "top_logprobs": []} for name in names]}


TOLD = {
    "vLLM": (
        body({"token_ids": [7, 8], "logprobs": LOGPROBS}, prompt_token_ids=[1, 2]),
        SampledMessage(HI, "stop", (1, 2), (7, 8), (-0.5, -0.25)),
    ),
    "vLLM that names tokens by their ids": (
        body({"logprobs": named("token_id:7", "token_id:8")}, prompt_token_ids=[1]),
        SampledMessage(HI, "stop", (1,), (7, 8), (-0.5, -0.5)),
    ),
    "SGLang": (
        body({"token_ids": [7, 8], "prompt_token_ids": [1, 2], "logprobs": LOGPROBS}),
        SampledMessage(HI, "stop", (1, 2), (7, 8), (-0.5, -0.25)),
    ),
    "older SGLang": (
        body({"prompt_token_ids": [1], "meta_info": {"output_token_logprobs": [[-0.5, 7, "H"], [-0.25, 8, None]]}}),
        SampledMessage(HI, "stop", (1,), (7, 8), (-0.5, -0.25)),
    ),
    "one that tells log probabilities alone": (body({"logprobs": LOGPROBS}), SampledMessage(HI, "stop")),
    "one that tells nothing": (body({}), SampledMessage(HI, "stop")),
    "a word that looks like an id is none": (
        body({"logprobs": named("token_id:7", "token_id:x")}),
        SampledMessage(HI, "stop"),
    ),
    "log probabilities that do not fit the ids": (
        body({"token_ids": [7], "logprobs": LOGPROBS}, prompt_token_ids=[1]),
        SampledMessage(HI, "stop", (1,), (7,)),
    ),
    "a log probability that is missing": (
        body({"prompt_token_ids": [1], "meta_info": {"output_token_logprobs": [[None, 7, "H"]]}}),
        SampledMessage(HI, "stop", (1,), (7,)),
    ),
    "nulls for what is not there": (
        body({"logprobs": None, "token_ids": None, "meta_info": None}, prompt_token_ids=None, usage=None),
        SampledMessage(HI, "stop"),
    ),
}


@pytest.mark.parametrize("server", TOLD)
def test_tokens_are_read(server: str) -> None:
    sent, said = TOLD[server]
    assert parse_completion(sent) == ChatCompletion((said,), Usage())


def test_infinite_log_probabilities_are_not_known() -> None:
    assert math.isinf(json.loads("-Infinity"))
    sent = body({"token_ids": [7, 8], "logprobs": LOGPROBS}, prompt_token_ids=[1]).replace(b"-0.25", b"-Infinity")
    assert parse_completion(sent).said == (SampledMessage(HI, "stop", (1,), (7, 8)),)


def test_tool_calls_are_kept_as_they_came() -> None:
    call: JsonValue = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    spoken: JsonValue = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Hm."}
    said = parse_completion(body({"message": spoken, "finish_reason": "tool_calls"}, usage={"prompt_tokens": 3}))
    kept = ToolCall(id="call_1", function=FunctionCall(name="add", arguments='{"a": 1}'))
    expected = SampledMessage(Message(role="assistant", tool_calls=(kept,)), "tool_calls")
    assert said == ChatCompletion((expected,), Usage(prompt_tokens=3))


def test_a_message_without_content_is_an_empty_text() -> None:
    said = parse_completion(body({"message": {"role": "assistant", "content": None, "tool_calls": []}})).said[0]
    assert said.message == Message(role="assistant", content="")


@pytest.mark.parametrize("sent", [b"", b"<html>", b"{}", b'{"choices": []}', b'{"error": {"message": "no"}}', b"[]"])
def test_other_things_are_no_answer(sent: bytes) -> None:
    with pytest.raises(ValidationError):
        parse_completion(sent)


def test_models_are_listed() -> None:
    sent = [b'{"object": "list", "data": [{"id": "small", "owned_by": "us"}, {"id": "large"}]}', b"{}", b"Not Found"]
    assert [parse_models(one) for one in sent] == [("small", "large"), None, None]
