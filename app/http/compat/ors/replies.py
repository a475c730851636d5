"""What clients of the Open Reward Standard get, as `openreward/environments/types.py` of 0.1.167 has it."""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import JsonValue

from app.domain.tasks import Message, ToolSpec
from app.domain.values import FiniteNumber, Frozen
from app.http.compat.task_listing import TaskReply

REPLY: Final = "reply"
ANSWER: Final = "answer"
"""The tool that a harness calls with the model's plain message, which ends the episode."""


class ServerStatus(Frozen):
    status: str = "ok"


class ServerVersion(Frozen):
    version: str = "0.1.167"
    """Of the package whose server this is like."""
    build_sha: str | None = None


class SessionReply(Frozen):
    sid: str


class NamedTask(TaskReply):
    env_name: str


class TextBlock(Frozen):
    text: str
    type: Literal["text"] = "text"


class ToolDescription(Frozen):
    name: str
    description: str
    input_schema: dict[str, JsonValue]


class TerminalTool(Frozen):
    name: str = ANSWER
    arg: str = "text"
    description: str = "Says the last word: the episode ends and is scored."


class ToolListing(Frozen):
    tools: tuple[ToolDescription, ...]
    terminal_tool: TerminalTool = TerminalTool()
    supports_score_group: bool = True
    message_block_types: tuple[str, ...] = ("text", "reasoning", "tool_call", "tool_result")


class ShownMessage(Frozen):
    role: Literal["system", "user", "assistant"]
    blocks: tuple[TextBlock, ...]


class ToolOutput(Frozen):
    blocks: tuple[TextBlock, ...]
    reward: FiniteNumber | None = None
    """Null while the episode goes on, and where there is no score."""
    finished: bool = False
    metadata: dict[str, JsonValue] | None = None


class CallReply(Frozen):
    ok: Literal[True] = True
    output: ToolOutput


class CallError(Frozen):
    ok: Literal[False] = False
    error: str
    reason: Literal["not_found", "input_validation", "episode_finished"] | None = None


class CandidateScore(Frozen):
    reward: FiniteNumber | None
    metadata: dict[str, JsonValue]


class GroupScores(Frozen):
    scores: tuple[CandidateScore, ...]


REPLY_TOOL: Final = ToolDescription(
    name=REPLY,
    description="Says something and returns the answer to it.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "All that is said."}},
        "required": ["text"],
    },
)


def describe_tools(tools: Sequence[ToolSpec]) -> ToolListing:
    """A task's own, and `reply`."""
    own = tuple(
        ToolDescription(
            name=one.function.name, description=one.function.description, input_schema=dict(one.function.parameters)
        )
        for one in tools
    )
    return ToolListing(tools=(*own, REPLY_TOOL))


def show_messages(messages: Sequence[Message]) -> list[ShownMessage]:
    return [
        ShownMessage(
            role=one.role if one.role in {"system", "assistant"} else "user",
            blocks=(TextBlock(text=one.content or ""),),
        )
        for one in messages
    ]


def show_observation(observed: Sequence[Message]) -> tuple[TextBlock, ...]:
    return tuple(TextBlock(text=one.content or "") for one in observed)
