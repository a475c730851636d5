"""An inference server whose model is a script: tokens are the bytes of the text, and it tells them as real servers do.

`python -m tests.support.policy_server PORT [MOST]` serves numbered rows in a process that can be killed. It keeps
whoever asks after `MOST` answers waiting.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from tests.support.chat_server import ChatServer, Received, Reply, Script

Style = Literal["vllm", "vllm_by_name", "sglang", "sglang_meta", "llama_cpp", "plain", "strict"]
"""vLLM, one without `token_ids`, SGLang, an older one, llama.cpp, a server that tells no tokens, one that refuses to be
asked."""
SLOTS: Final = 4
"""Of llama.cpp: the most choices of a request."""

END: Final = 256
"""The token that ends a message of the model."""
MODEL: Final = "small"
FOR_EVER: Final = 3600.0
EXTENSIONS: Final = ("return_token_ids", "return_tokens_as_token_ids", "return_prompt_token_ids", "return_meta_info")


@dataclass(frozen=True)
class Speech:
    """What the model says; as `text` it has said its tokens, whatever the message then holds."""

    text: str
    finish_reason: str = "stop"
    tool_calls: tuple[dict[str, object], ...] = ()
    beside: str | None = None
    """What the message says beside its calls."""

    @property
    def ids(self) -> list[int]:
        return [*self.text.encode(), *([] if self.finish_reason == "length" else [END])]

    @property
    def message(self) -> dict[str, object]:
        if self.tool_calls:
            return {"role": "assistant", "content": self.beside, "tool_calls": list(self.tool_calls)}
        return {"role": "assistant", "content": self.text}


Speaks = Callable[[Received, int], Speech]
"""Gets the place among the choices of the request."""


def prompt_ids(messages: Sequence[dict[str, str]]) -> list[int]:
    """Every message with its role, the model's with its end, and the beginning of the next."""
    ids: list[int] = []
    for message in messages:
        said = message.get("content") or json.dumps(message.get("tool_calls"))
        ids += [*f"<{message['role']}>{said}".encode(), *([END] if message["role"] == "assistant" else b"\n")]
    return [*ids, *b"<assistant>"]


def logprob(place: int) -> float:
    return -(place % 7 + 1) / 8


def script(speaks: Speaks, style: Style = "vllm") -> Script:
    def reply(number: int, received: Received) -> Reply:
        body = received.body
        if style == "strict" and any(name in body for name in (*EXTENSIONS, "logprobs")):
            return Reply(b'{"error": {"message": "Unrecognized request argument supplied"}}', status=400)
        if body["model"] != MODEL:
            return Reply(b'{"error": {"message": "The model does not exist."}}', status=404)
        count = body.get("n", 1)
        assert isinstance(count, int)
        if style == "llama_cpp" and count > SLOTS:
            words = f"Field 'n': Value must be between 1 <= value <= {SLOTS}, but got {count}"
            error = {"code": 400, "message": words, "type": "invalid_request_error"}
            return Reply(json.dumps({"error": error}).encode(), status=400)
        return Reply(json.dumps(_answer(received, [speaks(received, place) for place in range(count)], style)).encode())

    return reply


def _answer(received: Received, speeches: Sequence[Speech], style: Style) -> dict[str, object]:
    prompt = prompt_ids(received.messages)
    choices = [
        {"index": place, "message": speech.message, "finish_reason": speech.finish_reason}
        | _tokens(received, speech, prompt, style)
        for place, speech in enumerate(speeches)
    ]
    own = style in {"vllm", "vllm_by_name"} and received.body.get("return_token_ids")
    said = sum(len(speech.ids) for speech in (speeches[:1] if style == "llama_cpp" else speeches))
    usage = {"prompt_tokens": len(prompt), "completion_tokens": said, "total_tokens": len(prompt) + said}
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": MODEL}
    return {**about, "choices": choices, "usage": usage, **({"prompt_token_ids": prompt} if own else {})}


def _tokens(received: Received, speech: Speech, prompt: list[int], style: Style) -> dict[str, object]:
    asked = received.body
    values = [logprob(place) for place in range(len(speech.ids))]
    if style == "sglang_meta":
        told = [[value, token, chr(token)] for value, token in zip(values, speech.ids, strict=True)]
        return {"prompt_token_ids": prompt, "meta_info": {"output_token_logprobs": told}}
    if style == "llama_cpp":
        return {"logprobs": {"content": list(map(_entry, speech.ids, values))}} if asked.get("logprobs") else {}
    named = bool(asked.get("return_tokens_as_token_ids")) and style == "vllm_by_name"
    content = [
        {"token": f"token_id:{token}" if named else chr(token), "logprob": value}
        for token, value in zip(speech.ids, values, strict=True)
    ]
    tokens: dict[str, object] = {"logprobs": {"content": content}} if asked.get("logprobs") else {}
    if style in {"vllm", "sglang"} and asked.get("return_token_ids"):
        tokens["token_ids"] = speech.ids
    if style == "sglang" and asked.get("return_token_ids"):
        tokens["prompt_token_ids"] = prompt
    return tokens


def _entry(token: int, value: float) -> dict[str, object]:
    """As llama.cpp has it, in which a token that ends the message has no text."""
    spoken = bytes([token]) if token < END else b""
    return {"id": token, "token": spoken.decode(), "bytes": list(spoken), "logprob": value, "top_logprobs": []}


def answers_rows(received: Received, place: int) -> Speech:
    """To `data_sets.numbered_rows`: every second choice is right."""
    number = re.findall(r"\d+", received.messages[-1]["content"])
    right = int(number[-1]) if number else 0
    return Speech(f"It is {place}. #### {right + place % 2}")


def answering(most: int) -> Script:
    answered = script(answers_rows)

    def reply(number: int, received: Received) -> Reply:
        return replace(answered(number, received), seconds=0.0 if number < most else FOR_EVER)

    return reply


if __name__ == "__main__":
    most = int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize
    server = ChatServer(answering(most), int(sys.argv[1]), models=[MODEL])
    server.serve_forever(poll_interval=0.05)
