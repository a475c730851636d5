"""Frames of OpenEnv's web socket: JSON objects with a `type`, one answer to each."""

import json
from dataclasses import dataclass
from typing import Annotated, Final, Literal, cast

from pydantic import Field, JsonValue

from app.domain.tasks import Message, ToolSpec
from app.domain.values import Frozen, Unit

Code = Literal[
    "INVALID_JSON",
    "UNKNOWN_TYPE",
    "VALIDATION_ERROR",
    "EXECUTION_ERROR",
    "CAPACITY_REACHED",
    "FACTORY_ERROR",
    "SESSION_ERROR",
]
"""The words of OpenEnv's own server."""

TYPES: Final = ("reset", "step", "state", "close", "mcp")


class FrameRefused(Exception):
    """What its sender is told; the session goes on."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Frame:
    type: str
    data: dict[str, JsonValue]


class Observation(Frozen):
    """What the model sees next."""

    messages: tuple[Message, ...] = ()
    """The prompt after a reset; after a step what followed the model's message, without what was there before."""
    text: str = ""
    """The contents of `messages`, with an empty line between them, for clients that want one string."""
    tools: tuple[ToolSpec, ...] = ()
    """What the model may call; said once, after a reset."""
    task_id: str
    turns_left: int
    """Messages of the model at most until the end of the episode."""
    metadata: dict[str, JsonValue] = {}
    """The task's public facts after a reset; how it was scored at the end. The same as `metadata` beside it."""


class Stepped(Frozen):
    """What a reset and a step are answered with."""

    observation: Observation
    reward: Annotated[Unit | None, Field(description="Null before the end of the episode.")] = None
    done: bool = False
    metadata: dict[str, JsonValue] = {}


class State(Frozen):
    episode_id: str | None = None
    step_count: int = 0
    environment: str
    task_id: str | None = None
    turns_left: int | None = None
    done: bool = False


def read_frame(text: str | bytes) -> Frame:
    """FrameRefused for what is no frame. What JSON alone forbids, NaN and halves of surrogate pairs, is let through:
    it stands in what a model wrote."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FrameRefused("INVALID_JSON", f"this is not JSON{where}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise FrameRefused("VALIDATION_ERROR", 'a frame is an object such as {"type": "reset", "data": {}}')
    if value["type"] not in TYPES:
        raise FrameRefused("UNKNOWN_TYPE", f"the types of frames are {', '.join(TYPES)}")
    data = value.get("data", {})
    if not isinstance(data, dict):
        raise FrameRefused("VALIDATION_ERROR", "data: expected an object")
    return Frame(value["type"], cast("dict[str, JsonValue]", data))


def observation_frame(stepped: Stepped) -> str:
    return f'{{"type":"observation","data":{stepped.model_dump_json()}}}'


def state_frame(state: State) -> str:
    return f'{{"type":"state","data":{state.model_dump_json()}}}'


def rpc_frame(answer: str) -> str:
    return f'{{"type":"mcp","data":{answer}}}'


def error_frame(code: Code, message: str, **more: int) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})
