"""Requests for tool calls, from whatever source."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.tasks import Message, ToolSpec
from app.domain.values import Frozen
from app.toolkit.tool_calls.calls import ExpectedCall

Category = Literal["simple", "choice", "parallel", "several", "irrelevance"]
"""One tool and one call; one call and several tools; several calls of one tool; calls of several tools; no call."""


class ToolRequest(Frozen):
    category: Category
    domain: str
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    """The conversation, which ends with the user's request."""
    tools: tuple[ToolSpec, ...]
    expected: tuple[ExpectedCall, ...] = ()
    """Empty if no tool fits."""
    missing: tuple[str, ...] = ()
    """If no tool fits: words that name what is missing, of which one is enough; empty if any words will do."""
    subject: tuple[str, ...] = ()
    """Words for what the missing thing is needed for, of which a refusal has one too; empty if none is asked for."""
    excluded: tuple[str, ...] = ()
    """Words for things that are not missing: a reply may contain only few of them."""
