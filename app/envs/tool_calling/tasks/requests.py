"""What asks for tool calls, wherever it comes from."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.tasks import Message, ToolSpec
from app.domain.values import Frozen
from app.toolkit.tool_calls.values import ExpectedCall

Category = Literal["simple", "choice", "parallel", "several", "irrelevance"]
"""One tool and one call; one call and several tools; several calls of one tool; calls of several tools; no call."""


class ToolRequest(Frozen):
    category: Category
    domain: str
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    """What the user says, after whatever was said before."""
    tools: tuple[ToolSpec, ...]
    expected: tuple[ExpectedCall, ...] = ()
    """Empty where no tool fits."""
    missing: tuple[str, ...] = ()
    """Words, any of which names what is missing where no tool fits; empty where any words will do."""
    excluded: tuple[str, ...] = ()
    """Words that name something else, which is not missing: a reply with several of them does not say what is."""
