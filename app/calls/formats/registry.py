"""Every format, in the order in which they are described."""

from collections.abc import Mapping
from typing import Final

from app.calls.formats.anthropic import ANTHROPIC
from app.calls.formats.format import Format, ToolFormat
from app.calls.formats.hermes import HERMES
from app.calls.formats.llama_json import LLAMA_JSON
from app.calls.formats.mcp import MCP
from app.calls.formats.mistral import MISTRAL
from app.calls.formats.pythonic import PYTHONIC
from app.calls.formats.qwen_coder import QWEN_CODER

FORMATS: Final[Mapping[ToolFormat, Format]] = {
    form.name: form for form in (HERMES, LLAMA_JSON, PYTHONIC, MISTRAL, QWEN_CODER, ANTHROPIC, MCP)
}


def declared(name: object) -> ToolFormat | None:
    """The format of that name; None for any other value, such as `native`."""
    return next((form for form in FORMATS if form == name), None)
