"""A policy that streams as inference servers do, and request bodies as SillyTavern 1.12 sends them."""

import json
from typing import Final

from tests.support.chat_server import Received, Reply, Script
from tests.support.tables import read_table

NOTICED: Final = "notice"
"""A line to which the policy replies with something that a gate notices."""


def speaks(text: str = "The rope broke, so I row.") -> Script:
    def reply(number: int, received: Received) -> Reply:
        said = f"{text} ({number})"
        if any(NOTICED in message["content"] for message in received.messages[-1:]):
            said = "As an AI language model I cannot ferry you."
        if not received.body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
            return Reply(json.dumps({"id": "own", "model": "own", "choices": [choice], "usage": usage}).encode())
        return Reply(write_stream(said), headers={"content-type": "text/event-stream"})

    return reply


def write_stream(text: str, end: str = "data: [DONE]\r\n\r\n") -> bytes:
    """With comments and the other line ends, which are allowed too."""
    head = {"id": "own", "object": "chat.completion.chunk", "created": 1, "model": "own"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": word + " "} for word in text.split())]
    choices: list[dict[str, object]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [f"data: {json.dumps({**head, 'choices': [choice]})}\r\n\r\n" for choice in choices]
    return (": ping\r\n\r\n" + "".join(events) + end).encode()


def build_tavern_body(model: str, *said: tuple[str, str], control: str = "", **more: object) -> dict[str, object]:
    """`said` are roles and texts of the history; a narrator's are `system`. `control` stands last."""
    prompt = read_table(__file__, "talk_marks.yaml", list[str])
    examples = [
        {"role": "system", "content": "[Example Chat]"},
        {"role": "system", "name": "example_user", "content": "Are you Hob?"},
        {"role": "system", "name": "example_assistant", "content": "So they say."},
    ]
    history = [{"role": role, "content": text} for role, text in said]
    messages = [{"role": "system", "content": text} for text in prompt]
    messages += [*examples, {"role": "system", "content": "[Start a new Chat]"}, *history]
    return {
        "model": model,
        "messages": [*messages, *([{"role": "system", "content": control}] if control else [])],
        "temperature": 1,
        "max_tokens": 300,
        "stream": True,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_p": 1,
        "logit_bias": {},
        "char_name": "Hob",
        **more,
    }
