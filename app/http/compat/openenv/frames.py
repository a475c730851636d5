"""Frames of OpenEnv's web socket: JSON objects with a `type`, one answer to each."""

import json
from collections.abc import Mapping, Sequence
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
"""The error codes of OpenEnv's own server."""

TYPES: Final = ("reset", "step", "state", "close", "mcp")


class FrameRefused(Exception):
    """An error that is sent to the client; the session continues."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Frame:
    type: str
    data: dict[str, JsonValue]


class Observation(Frozen):
    """The model's next observation."""

    messages: tuple[Message, ...] = ()
    """After a reset the prompt; after a step only the messages that follow the model's."""
    text: str = ""
    """The contents of `messages` joined by empty lines, for clients that need one string."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call; sent only after a reset."""
    task_id: str
    turns_left: int
    """Maximum number of further messages of the model."""
    metadata: dict[str, JsonValue] = {}
    """After a reset the task's public metadata; at the end the score. The same as the outer `metadata`."""


class StepResult(Frozen):
    """The response to a reset or a step."""

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
    """Parses a frame. Raises FrameRefused if it is invalid. NaN and lone surrogates are accepted, because a model may
    have written them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FrameRefused("INVALID_JSON", f"invalid JSON{where}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise FrameRefused("VALIDATION_ERROR", 'a frame must be an object such as {"type": "reset", "data": {}}')
    if value["type"] not in TYPES:
        raise FrameRefused("UNKNOWN_TYPE", f"unknown type; the types are {', '.join(TYPES)}")
    data = value.get("data", {})
    if not isinstance(data, dict):
        raise FrameRefused("VALIDATION_ERROR", "data: expected an object")
    return Frame(value["type"], cast("dict[str, JsonValue]", data))


def asks_for_tools(action: Mapping[str, JsonValue]) -> bool:
    """Whether a step asks which tools there are. It is no message of the model and uses up no turn."""
    return action.get("type") == "list_tools" and action.keys() <= {"type", "metadata"}


def build_observation_frame(stepped: StepResult) -> str:
    return f'{{"type":"observation","data":{stepped.model_dump_json()}}}'


def write_tool_listing(tools: Sequence[ToolSpec]) -> str:
    """The data of the answer: an observation with `tools`, in the form that OpenEnv gives them."""
    listed = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in (one.function for one in tools)
    ]
    return json.dumps({"observation": {"tools": listed}, "reward": None, "done": False, "metadata": {}})


def build_listing_frame(tools: Sequence[ToolSpec]) -> str:
    return f'{{"type":"observation","data":{write_tool_listing(tools)}}}'


def build_state_frame(state: State) -> str:
    return f'{{"type":"state","data":{state.model_dump_json()}}}'


def build_rpc_frame(answer: str) -> str:
    return f'{{"type":"mcp","data":{answer}}}'


def build_error_frame(code: Code, message: str, **more: int) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})
