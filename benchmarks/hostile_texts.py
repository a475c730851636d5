"""Texts that a model might write to keep whoever reads its tool calls busy: about fifty kinds, of any length."""

from collections.abc import Mapping
from typing import Final

from app.domain.tasks import FunctionSpec, ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats import FORMATS

TOOLS: Final = (
    ToolSpec(
        function=FunctionSpec(
            name="f",
            parameters={
                "type": "object",
                "properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}},
            },
        )
    ),
)

_REPEATED: Final = (
    *("<tool_call>", "</tool_call>", "<tool_call>{", "<function=", "<tool_call><function=f>", "<parameter=a>"),
    *("[TOOL_CALLS]", "[ARGS]", "[TOOL_CALLS]f[ARGS]{}", "<|python_tag|>", "<|python_start|>", "<|python_end|>"),
    *('<invoke name="f">', "<invoke", '<parameter name="a">', "<function_calls>", '"type" ', '{"type":"tool_use"'),
    *('"jsonrpc"', '{"jsonrpc":', '{"name":', '{"name":"f","parameters":', "[f(a=", "f(", "f(a=1),"),
    *("<think>", "</think>", "<|im_end|>", "```", "```json\n", "{", "[", "(", '"', "\\", "'", "<", ";"),
    *(" ", "\n", "\t", "9", "-", "1,111", "_.", "a,", "- ", "\u00a0", "\u202e", "\ufdfa", "e\u0301"),
)

_WRAPPED: Final[Mapping[str, tuple[str, str, str]]] = {
    "tag, then blanks": ("<tool_call>", " ", "x"),
    "digits of one number": ('<tool_call>{"name":"f","arguments":{"n":', "9", "}}</tool_call>"),
    "one long text": ('<tool_call>{"name":"f","arguments":{"a":"', "1,111. ", '"}}</tool_call>'),
    "escapes of one text": ('<tool_call>{"name":"f","arguments":{"a":"', "\\u0041", '"}}</tool_call>'),
    "half escapes": ('<tool_call>{"name":"f","arguments":{"a":"', "\\ud800", '"}}</tool_call>'),
    "a deep object": ('<tool_call>{"name":"f","arguments":{"o":', '{"a":', ""),
    "a deep list": ('<tool_call>{"name":"f","arguments":{"o":', "[", ""),
    "a wide list": ('<tool_call>{"name":"f","arguments":{"o":[', "1,", "1]}}</tool_call>"),
    "lists in a list": ('<tool_call>{"name":"f","arguments":{"o":[', "[],", "1]}}</tool_call>"),
    "objects in a list": ('<tool_call>{"name":"f","arguments":{"o":[', '{"a":{}},', "1]}}</tool_call>"),
    "a wide object": ('<tool_call>{"name":"f","arguments":{"o":{', '"a":1,', '"b":1}}}</tool_call>'),
    "parameters without an end": ("<tool_call><function=f>", "<parameter=a>", ""),
    "parameters with one end": ("<tool_call><function=f>", "<parameter=a>", "</parameter></function></tool_call>"),
    "invoke without an end": ('<invoke name="f">', '<parameter name="a">x', ""),
    "a deep literal": ("[f(a=", "[", ""),
    "escapes of a literal": ("[f(a='", "\\x41", "')]"),
    "half escapes of a literal": ("[f(a='", "\\", ""),
    "a literal without an end": ("[f(a='", "a", ""),
    "a wide literal": ("[f(a=[", "1,", "])]"),
    "wide lists in a literal": ("[f(a=[", "[" + "[]," * 300 + "],", "])]"),
    "wide objects in a literal": ("[f(a=[", "{" + "".join(f"'{key}':1," for key in range(100)) + "},", "])]"),
    "arguments twice": ("[f(", "a=1,", ")]"),
    "calls of a list": ("[", "f(a=1),", "]"),
    "ticks within a fence": ("```json\n", "a`", "```"),
    "blocks": ("[", '{"type": "tool_use", "name": "f", "input": {}},', '{"type": "text", "text": ""}]'),
    "requests": (
        "[",
        '{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "f"}},',
        '{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "f"}}]',
    ),
    "after a tag": ("<|python_tag|>", '{"name":"f","parameters":{}};', '{"name":"f","parameters":{}}'),
    "a Mistral list": ("[TOOL_CALLS][", '{"name":"f","arguments":{}},', '{"name":"f","arguments":{}}]'),
    "words, then a call": ("", "word ", '<tool_call>{"name":"f","arguments":{}}</tool_call>'),
}


def hostile_texts(length: int) -> dict[str, str]:
    """By kind, each of about this length; among them right calls in every format, over and over."""
    texts = {repr(piece): _of(length, piece) for piece in _REPEATED}
    texts |= {
        kind: begins + _of(length - len(begins) - len(ends), piece) + ends
        for kind, (begins, piece, ends) in _WRAPPED.items()
    }
    right = ParsedCall(name="f", arguments={"a": "x", "n": 1, "o": {"b": [1, 2.5, None]}})
    many = {name: form.write([right] * (length // len(form.write([right])))) for name, form in FORMATS.items()}
    return texts | {f"right calls, {name}": text for name, text in many.items()}


def _of(length: int, piece: str) -> str:
    """Whole pieces, so that what should be well-formed is."""
    return piece * (length // len(piece))
