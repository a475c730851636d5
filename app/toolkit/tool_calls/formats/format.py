"""What every way of writing calls provides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.values import Call

ToolFormat = Literal["hermes", "llama_json", "pythonic", "mistral", "qwen_coder", "anthropic", "mcp"]


@dataclass(frozen=True, slots=True)
class Found:
    """The calls of a text, and its words beside them."""

    calls: tuple[Call, ...]
    said: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """`read` takes a text without thinking that `marks` holds for; Malformed when one of its calls cannot be read. The
    tools are needed where a format leaves values without types. All take time linear in the text."""

    name: ToolFormat
    instruction: str
    """How a model is told to write calls."""
    marks: Callable[[str], bool]
    """Whether a text attempts calls in this format, well or badly."""
    read: Callable[[str, Sequence[ToolSpec]], Found]
    write: Callable[[Sequence[Call]], str]
