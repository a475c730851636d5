"""Tools as text, for models whose chat template does not support them."""

import json
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.formats.format import ToolFormat
from app.toolkit.tool_calls.formats.format_registry import FORMATS


def render_tools(tools: Sequence[ToolSpec], form: ToolFormat) -> str:
    """The tools, one JSON object a line, and how to call them."""
    lines = [json.dumps(tool.model_dump(mode="json"), ensure_ascii=False) for tool in tools]
    return "\n".join(["These tools are available, each as a JSON object:", *lines, "", FORMATS[form].instruction])
