"""The interface of tool call formats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall

ToolFormat = Literal["hermes", "llama_json", "pythonic", "mistral", "qwen_coder", "anthropic", "mcp"]


@dataclass(frozen=True, slots=True)
class FormatResult:
    """The calls of a text, and the text around them."""

    calls: tuple[ParsedCall, ...]
    said: str = ""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """`read` parses a text without thinking for which `marks` is true; Malformed for an invalid call. It uses the tools
    in formats without value types. All functions take linear time."""

    name: ToolFormat
    instruction: str
    """Instruction for the model."""
    marks: Callable[[str], bool]
    """Whether a text attempts calls in this format, valid or not."""
    read: Callable[[str, Sequence[ToolSpec]], FormatResult]
    write: Callable[[Sequence[ParsedCall]], str]
