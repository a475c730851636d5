"""All formats, in the order of the documentation."""

from collections.abc import Mapping
from typing import Final

from app.toolkit.tool_calls.formats.anthropic import ANTHROPIC
from app.toolkit.tool_calls.formats.format import CallFormat, ToolFormat
from app.toolkit.tool_calls.formats.hermes import HERMES
from app.toolkit.tool_calls.formats.llama_json import LLAMA_JSON
from app.toolkit.tool_calls.formats.mcp import MCP
from app.toolkit.tool_calls.formats.mistral import MISTRAL
from app.toolkit.tool_calls.formats.pythonic import PYTHONIC
from app.toolkit.tool_calls.formats.qwen_coder import QWEN_CODER

FORMATS: Final[Mapping[ToolFormat, CallFormat]] = {
    form.name: form for form in (HERMES, LLAMA_JSON, PYTHONIC, MISTRAL, QWEN_CODER, ANTHROPIC, MCP)
}


def find_declared_format(name: object) -> ToolFormat | None:
    """The format with this name; None for other values, such as `native`."""
    return next((form for form in FORMATS if form == name), None)
