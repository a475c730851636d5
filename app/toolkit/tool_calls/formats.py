"""Formats of tool calls: how models write them in text.

A format says whether a text attempts its calls (`marks`), reads them and writes them, all in linear time. So no pattern
has a repetition without a bound that could be tried at every position. `replies` finds the format that a reply is in.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.bare_arguments import ArgumentTags, ValueEnds, read_call, read_first_reading
from app.toolkit.tool_calls.call_lists import read_call_list, write_call_list
from app.toolkit.tool_calls.calls import (
    BLANK,
    MOST_CALLS,
    MOST_NAME,
    MalformedCall,
    ParsedCall,
    build_call,
    parse_call_object,
    read_json,
    read_json_at,
    require_members,
    skip_blank,
)

ToolFormat = Literal[
    "hermes",
    "llama_json",
    "pythonic",
    "mistral",
    "qwen_coder",
    "anthropic",
    "mcp",
    "harmony",
    "glm",
    "kimi",
    "deepseek",
]


@dataclass(frozen=True, slots=True)
class _FormatResult:
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
    read: Callable[[str, Sequence[ToolSpec]], _FormatResult]
    write: Callable[[Sequence[ParsedCall]], str]


NO_PROSE = re.compile(r"[\[\]{}<>|]|\w\(")
"""What words behind a call do not hold: it could be more of a call, or what is left of one."""


def _read_words_behind(text: str) -> str:
    """Words behind the calls. Malformed for what may be no words."""
    if NO_PROSE.search(text) is not None:
        raise MalformedCall("behind the calls there is something else than words")
    return text


# Hermes, Qwen2.5 and Qwen3: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, a pair of tags per call.

OPENS, _CLOSES_HERMES = "<tool_call>", "</tool_call>"
_OBJECT = re.compile(rf"{OPENS}\s{{0,100}}\[?\s{{0,100}}\{{")


def _attempts_hermes(text: str) -> bool:
    """An argument may hold the tags of another format; a call begins with a brace."""
    return _OBJECT.search(text) is not None or (
        (OPENS in text or _CLOSES_HERMES in text) and "<function=" not in text and not _attempts_glm(text)
    )


def _read_hermes(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (start := text.find(OPENS, position)) >= 0:
        said.append(text[position:start])
        end = start + len(OPENS)
        while len(calls) <= MOST_CALLS:  # models put several into one pair of tags, as a list or one after the other
            value, end = read_json_at(text, end)
            calls += map(parse_call_object, value if isinstance(value, list) and value else [value])
            while end < len(text) and text[end] in BLANK:
                end += 1
            if not text.startswith("{", end):
                break
        if not text.startswith(_CLOSES_HERMES, end):
            raise MalformedCall(f"a call does not end in {_CLOSES_HERMES}")
        position = end + len(_CLOSES_HERMES)
    said.append(text[position:])
    words = "".join(said)
    if _CLOSES_HERMES in words:
        raise MalformedCall(f"{_CLOSES_HERMES} stands alone")
    return _FormatResult(tuple(calls), words)


def _write_hermes(calls: Sequence[ParsedCall]) -> str:
    return "\n".join(
        f"{OPENS}\n{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}\n{_CLOSES_HERMES}"
        for call in calls
    )


_HERMES = CallFormat(
    name="hermes",
    instruction=(
        "For each call write a JSON object with the tool's name and its arguments inside <tool_call> tags:\n"
        '<tool_call>\n{"name": "<name>", "arguments": {"<argument>": <value>}}\n</tool_call>'
    ),
    marks=_attempts_hermes,
    read=_read_hermes,
    write=_write_hermes,
)


# Llama 3: `<|python_tag|>{"name": …, "parameters": {…}}; {…}`. The tag may be missing where
# the reply is nothing but calls.

_LLAMA_TAG = "<|python_tag|>"
_BARE = re.compile(r'\s{0,100}\{\s{0,100}"(?:type"\s{0,10}:\s{0,10}"function|name|parameters|arguments)"')
"""Without the tag only an object that begins as a call does: a JSON answer of another form is no call."""
_ARGUMENTS = re.compile('"(?:parameters|arguments)"')


def _attempts_llama(text: str) -> bool:
    return _LLAMA_TAG in text or is_bare_call(text)


def is_bare_call(text: str) -> bool:
    """Some models leave out the tag, or the tags of Hermes, where a reply is nothing but JSON."""
    return _BARE.match(text) is not None and _ARGUMENTS.search(text) is not None


def _read_llama(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    said, _, written = ("", "", text) if _BARE.match(text) else text.partition(_LLAMA_TAG)
    calls: list[ParsedCall] = []
    position = 0
    while True:
        value, position = read_json_at(written, position)
        calls.append(parse_call_object(value))
        while position < len(written) and written[position] in BLANK + ";":
            position += 1
        if not written.startswith("{", position):
            return _FormatResult(tuple(calls), said + _read_words_behind(written[position:]))


def _write_llama(calls: Sequence[ParsedCall]) -> str:
    written = (json.dumps({"name": call.name, "parameters": call.arguments}, ensure_ascii=False) for call in calls)
    return _LLAMA_TAG + "; ".join(written)


_LLAMA_JSON = CallFormat(
    name="llama_json",
    instruction=(
        "To call tools, end your reply with <|python_tag|> and one JSON object per call, with `; ` between them:\n"
        '<|python_tag|>{"name": "<name>", "parameters": {"<argument>": <value>}}'
    ),
    marks=_attempts_llama,
    read=_read_llama,
    write=_write_llama,
)


# Model Context Protocol: a JSON-RPC 2.0 request `tools/call` per call, one after the other or in one array.

_METHOD = "tools/call"
_OPENS = re.compile(r"\s{0,100}[\[{]")


def _attempts_mcp(text: str) -> bool:
    return '"jsonrpc"' in text and _OPENS.match(text) is not None


def _read_mcp(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    requests: list[JsonValue] = []
    written = text.rstrip(BLANK)
    position = 0
    while position < len(written):
        value, position = read_json_at(written, position)
        requests += value if isinstance(value, list) else [value]
    if not requests:
        raise MalformedCall("there is no request")
    return _FormatResult(tuple(_read_request(request) for request in requests))


def _read_request(request: JsonValue) -> ParsedCall:
    members = require_members(request, required=("jsonrpc", "method", "params"), allowed=("id",))
    if (members["jsonrpc"], members["method"]) != ("2.0", _METHOD):
        raise MalformedCall(f"a request is not {_METHOD} of JSON-RPC 2.0")
    params = require_members(members["params"], required=("name",), allowed=("arguments", "_meta"))
    return build_call(params["name"], params.get("arguments", {}))


def _write_mcp(calls: Sequence[ParsedCall]) -> str:
    requests = [
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": _METHOD,
            "params": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(calls, 1)
    ]
    return json.dumps(requests[0] if len(requests) == 1 else requests, ensure_ascii=False)


_MCP = CallFormat(
    name="mcp",
    instruction=(
        "To call tools, reply with one JSON-RPC request per call, several in one JSON array, and nothing else:\n"
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", '
        '"params": {"name": "<name>", "arguments": {"<argument>": <value>}}}'
    ),
    marks=_attempts_mcp,
    read=_read_mcp,
    write=_write_mcp,
)


# Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}]` or, later, `[TOOL_CALLS]name[ARGS]{…}` per call.
# Servers that leave out special tokens leave out the tags, so a reply may be the bare list, or begin with a name.

_MISTRAL_TAG = "[TOOL_CALLS]"
_ARGUMENTS_TAG = "[ARGS]"
_NAMED = re.compile(
    rf"\s{{0,100}}([\w.-]{{1,{MOST_NAME}}})(?:\[CALL_ID\]\w{{1,100}})?(?:\[ARGS\]\s{{0,100}})?(?=\{{)", re.ASCII
)
_BARE_LIST = re.compile(r'\s{0,100}\[\s{0,100}\{\s{0,100}"(?:name|arguments)"')
_BARE_NAME = re.compile(rf'\s{{0,100}}[A-Za-z_][\w.-]{{0,{MOST_NAME}}}\{{\s{{0,100}}["}}]', re.ASCII)


def _attempts_mistral(text: str) -> bool:
    return _MISTRAL_TAG in text or _ARGUMENTS_TAG in text or _is_bare(text)


def _is_bare(text: str) -> bool:
    return _BARE_NAME.match(text) is not None or (_BARE_LIST.match(text) is not None and '"arguments"' in text)


def _read_mistral(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    said, tag, written = ("", "", text) if _is_bare(text) else text.partition(_MISTRAL_TAG)
    if not tag and not _is_bare(text):
        raise MalformedCall(f"{_ARGUMENTS_TAG} without {_MISTRAL_TAG}")
    if not written.lstrip(BLANK).startswith(("[", "{")):
        calls, behind = _read_named(written)
        return _FormatResult(calls, said + behind)
    listed, end = read_json_at(written, 0)
    if not isinstance(listed, list) or not listed:
        raise MalformedCall(f"after {_MISTRAL_TAG} there is no list of calls")
    return _FormatResult(tuple(map(parse_call_object, listed)), said + _read_words_behind(written[end:]))


def _read_named(written: str) -> tuple[tuple[ParsedCall, ...], str]:
    """The calls, and the words behind them."""
    calls: list[ParsedCall] = []
    position = 0
    while len(calls) < MOST_CALLS:
        head = _NAMED.match(written, position)
        if head is None:
            raise MalformedCall(f"after {_MISTRAL_TAG} there is no name with its arguments")
        arguments, position = read_json_at(written, head.end())
        calls.append(build_call(head[1], arguments))
        while position < len(written) and written[position] in BLANK:
            position += 1
        if written.startswith(_MISTRAL_TAG, position):
            position += len(_MISTRAL_TAG)
        elif _NAMED.match(written, position) is None:
            return tuple(calls), _read_words_behind(written[position:])
    raise MalformedCall(f"there are more than {MOST_CALLS} calls")


def _write_mistral(calls: Sequence[ParsedCall]) -> str:
    listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return _MISTRAL_TAG + json.dumps(listed, ensure_ascii=False)


_MISTRAL = CallFormat(
    name="mistral",
    instruction=(
        "To call tools, end your reply with [TOOL_CALLS] and one JSON array of all calls:\n"
        '[TOOL_CALLS][{"name": "<name>", "arguments": {"<argument>": <value>}}]'
    ),
    marks=_attempts_mistral,
    read=_read_mistral,
    write=_write_mistral,
)


# Llama 4, and the prompt mode of the Berkeley Function-Calling Leaderboard: `[f(a=1, b="x"), g()]`.

_STARTS, _ENDS = "<|python_start|>", "<|python_end|>"
_CALLS = re.compile(r"\s{0,100}\[\s{0,100}\w[\w.-]{0,200}\(", re.ASCII)


def _attempts_pythonic(text: str) -> bool:
    return _STARTS in text or _CALLS.match(text) is not None


def _read_pythonic(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    said, _, written = ("", "", text) if _CALLS.match(text) else text.partition(_STARTS)
    calls, end = read_call_list(written)
    behind = written[end:].lstrip().removeprefix(_ENDS)
    return _FormatResult(calls, said + _read_words_behind(behind))


_PYTHONIC = CallFormat(
    name="pythonic",
    instruction=(
        "To call tools, reply with one list of calls with named arguments, as in Python, and nothing else:\n"
        "[<name>(<argument>=<value>), <name>(<argument>=<value>)]"
    ),
    marks=_attempts_pythonic,
    read=_read_pythonic,
    write=write_call_list,
)


# Anthropic: `tool_use` content blocks as JSON, or `<invoke name="…">` tags with values without types.
# The tags around all invokes count for nothing: their end is where sampling was told to stop.

_BLOCKS = re.compile(r"\s*[\[{]")
_BLOCK = re.compile(r'"type"\s{0,10}:\s{0,10}"tool_use"')
_THINKING = ("thinking", "redacted_thinking")
_INVOKE = re.compile(rf'<(?:antml:)?invoke\sname="([^"<>]{{1,{MOST_NAME}}})"\s{{0,10}}>')
_ANTHROPIC_TAGS = ArgumentTags(
    begins=re.compile(rf'<(?:antml:)?parameter\sname="([^"<>]{{1,{MOST_NAME}}})"\s{{0,10}}>'),
    ends=re.compile("</(?:antml:)?parameter>"),
    follows=re.compile(r"\s{0,100}(?:<(?:antml:)?parameter\s|</(?:antml:)?invoke>)"),
    closes=re.compile("</(?:antml:)?invoke>"),
    another=re.compile(
        r"</(?:antml:)?invoke>[^<]{0,300}(?:</?(?:antml:)?function_calls>[^<]{0,300}){0,2}<(?:antml:)?invoke\b"
    ),
)
_ANTHROPIC_WORDS = ("function_calls", "invoke", "parameter")
"""One of them is in every tag."""
_AROUND = re.compile("</?(?:antml:)?function_calls>")
_TAG = re.compile(r"</?(?:antml:)?invoke|<(?:antml:)?parameter\s")


def _attempts_anthropic(text: str) -> bool:
    return _is_blocks(text) or (
        any(word in text for word in _ANTHROPIC_WORDS)
        and (_AROUND.search(text) is not None or _TAG.search(text) is not None)
    )


def _is_blocks(text: str) -> bool:
    return _BLOCKS.match(text) is not None and _BLOCK.search(text) is not None


def _read_anthropic(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    if _is_blocks(text):
        return _read_blocks(text)
    return read_first_reading(text, lambda ends: _read_tags(text, tools, ends))


def _read_blocks(text: str) -> _FormatResult:
    value = read_json(text)
    calls: list[ParsedCall] = []
    said: list[str] = []
    for block in value if isinstance(value, list) else [value]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _THINKING:
            continue
        if kind == "text":
            members = require_members(block, required=("type", "text"), allowed=("citations", "cache_control"))
            said.append(str(members["text"] or ""))
            continue
        members = require_members(block, required=("type", "name", "input"), allowed=("id", "cache_control", "caller"))
        if kind != "tool_use":
            raise MalformedCall("a block is neither text nor tool_use")
        calls.append(build_call(members["name"], members["input"]))
    return _FormatResult(tuple(calls), "\n".join(said))


def _read_tags(text: str, tools: Sequence[ToolSpec], ends: ValueEnds) -> _FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (invoke := _INVOKE.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise MalformedCall(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : invoke.start()])
        call, position = read_call(text, invoke.end(), invoke[1], tools, _ANTHROPIC_TAGS, ends)
        calls.append(call)
    said.append(text[position:])
    words = _AROUND.sub("", "".join(said))
    if not calls or _TAG.search(words) is not None:
        raise MalformedCall("there are tags of a call and no call")
    return _FormatResult(tuple(calls), words)


def _write_anthropic(calls: Sequence[ParsedCall]) -> str:
    blocks = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": call.arguments}
        for number, call in enumerate(calls, 1)
    ]
    return json.dumps(blocks, ensure_ascii=False)


_ANTHROPIC = CallFormat(
    name="anthropic",
    instruction=(
        "To call tools, reply with one JSON array of content blocks and nothing else; words go into a text block:\n"
        '[{"type": "text", "text": "<words>"}, '
        '{"type": "tool_use", "id": "<id>", "name": "<name>", "input": {"<argument>": <value>}}]'
    ),
    marks=_attempts_anthropic,
    read=_read_anthropic,
    write=_write_anthropic,
)


# Qwen3-Coder: `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`. Values have no
# types. The model often forgets the first tag, and its own parser does without.

_FUNCTION = re.compile(rf"(<tool_call>\s*)?<function=([^<>=\s]{{1,{MOST_NAME}}})>")
_QWEN_TAGS = ArgumentTags(
    begins=re.compile(rf"<parameter=([^<>=\s]{{1,{MOST_NAME}}})>"),
    ends=re.compile("</parameter>"),
    follows=re.compile(r"\s{0,100}(?:<parameter=|</function>)"),
    closes=re.compile("</function>"),
    another=re.compile(r"</function>[^<]{0,300}(?:</?tool_call>[^<]{0,300}){0,2}<function="),
)
_CLOSES = re.compile(r"\s*</tool_call>")
_LEFT_OVER = re.compile("<function=|</function>|</?tool_call>")


def _attempts_qwen(text: str) -> bool:
    return "<function=" in text or "</function>" in text


def _read_qwen(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    return read_first_reading(text, lambda ends: _read_functions(text, tools, ends))


def _read_functions(text: str, tools: Sequence[ToolSpec], ends: ValueEnds) -> _FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (function := _FUNCTION.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise MalformedCall(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : function.start()])
        call, position = read_call(text, function.end(), function[2], tools, _QWEN_TAGS, ends)
        calls.append(call)
        closes = _CLOSES.match(text, position)
        if closes is not None:
            position = closes.end()
        elif function[1] is not None:
            raise MalformedCall("<tool_call> is not closed")
    said.append(text[position:])
    words = "".join(said)
    if _LEFT_OVER.search(words) is not None:
        raise MalformedCall("there are tags of a call that are no call")
    return _FormatResult(tuple(calls), words)


def _write_qwen(calls: Sequence[ParsedCall]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={call.name}>\n"
        + "".join(
            f"<parameter={name}>\n{_write_value(value)}\n</parameter>\n" for name, value in call.arguments.items()
        )
        + "</function>\n</tool_call>"
        for call in calls
    )


def _write_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_QWEN_CODER = CallFormat(
    name="qwen_coder",
    instruction=(
        "Write each call like this, with the bare value of each argument on lines of its own:\n"
        "<tool_call>\n<function=<name>>\n<parameter=<argument>>\n<value>\n</parameter>\n</function>\n</tool_call>"
    ),
    marks=_attempts_qwen,
    read=_read_qwen,
    write=_write_qwen,
)


# GLM: `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`. Values have no types.

_GLM_HEAD = re.compile(rf"{OPENS}\s{{0,100}}(\w[\w.-]{{0,{MOST_NAME}}})\s{{0,100}}(?=<arg_key>|{_CLOSES_HERMES})")
_GLM_TAGS = ArgumentTags(
    begins=re.compile(rf"<arg_key>([^<>]{{1,{MOST_NAME}}})</arg_key>\s{{0,100}}<arg_value>"),
    ends=re.compile("</arg_value>"),
    follows=re.compile(rf"\s{{0,100}}(?:<arg_key>|{_CLOSES_HERMES})"),
    closes=re.compile(_CLOSES_HERMES),
    another=re.compile(rf"{_CLOSES_HERMES}[^<]{{0,300}}{OPENS}"),
)
_GLM_LEFT_OVER = re.compile("</?tool_call>|</?arg_(?:key|value)>")


def _attempts_glm(text: str) -> bool:
    """By the first call: an argument may hold the tags of another format."""
    return OPENS in text and _GLM_HEAD.match(text, text.index(OPENS)) is not None


def _read_glm(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    return read_first_reading(text, lambda ends: _read_keyed(text, tools, ends))


def _read_keyed(text: str, tools: Sequence[ToolSpec], ends: ValueEnds) -> _FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (head := _GLM_HEAD.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise MalformedCall(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : head.start()])
        call, position = read_call(text, head.end(), head[1], tools, _GLM_TAGS, ends)
        calls.append(call)
    said.append(text[position:])
    words = "".join(said)
    if not calls or _GLM_LEFT_OVER.search(words) is not None:
        raise MalformedCall("there are tags of a call that are no call")
    return _FormatResult(tuple(calls), words)


def _write_glm(calls: Sequence[ParsedCall]) -> str:
    return "\n".join(
        f"{OPENS}{call.name}\n"
        + "".join(
            f"<arg_key>{name}</arg_key>\n<arg_value>{_keep_line_breaks(_write_value(value))}</arg_value>\n"
            for name, value in call.arguments.items()
        )
        + _CLOSES_HERMES
        for call in calls
    )


def _keep_line_breaks(value: str) -> str:
    """One at either end is taken for typography."""
    return f"\n{value}\n" if value.startswith("\n") or value.endswith("\n") else value


_GLM = CallFormat(
    name="glm",
    instruction=(
        "Write each call like this, with the bare value of each argument:\n"
        "<tool_call><name>\n<arg_key><argument></arg_key>\n<arg_value><value></arg_value>\n</tool_call>"
    ),
    marks=_attempts_glm,
    read=_read_glm,
    write=_write_glm,
)


# Kimi and DeepSeek: special tokens around a name and a JSON object.


@dataclass(frozen=True, slots=True)
class _CallTokens:
    """`head` begins a call and has its name as its one group; `around` stands before and behind all calls."""

    mark: str
    head: re.Pattern[str]
    end: str
    around: re.Pattern[str]


_KIMI_TOKENS = _CallTokens(
    mark="<|tool_call",
    head=re.compile(
        rf"<\|tool_call_begin\|>\s{{0,100}}(?:functions\.)?(\w[\w.-]{{0,{MOST_NAME}}})(?::\d{{1,9}})?\s{{0,100}}"
        r"<\|tool_call_argument_begin\|>"
    ),
    end="<|tool_call_end|>",
    around=re.compile(r"<\|tool_calls_section_(?:begin|end)\|>"),
)
_DEEPSEEK_TOKENS = _CallTokens(
    mark="<｜tool▁call",
    head=re.compile(
        rf"<｜tool▁call▁begin｜>\s{{0,100}}(?:function\s{{0,100}}<｜tool▁sep｜>)?(\w[\w.-]{{0,{MOST_NAME}}})\s{{0,100}}"
        r"(?:<｜tool▁sep｜>|(?=```))\s{0,100}(?:```(?:json)?\s{0,100}(?=\{))?"
    ),
    end="<｜tool▁call▁end｜>",
    around=re.compile("<｜tool▁calls▁(?:begin|end)｜>"),
)


def _read_tokens(text: str, tokens: _CallTokens) -> _FormatResult:
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (head := tokens.head.search(text, position)) is not None:
        if len(calls) == MOST_CALLS:
            raise MalformedCall(f"there are more than {MOST_CALLS} calls")
        said.append(text[position : head.start()])
        arguments, position = read_json_at(text, head.end())
        calls.append(build_call(head[1], arguments))
        position = skip_blank(text, position)
        if "```" in head[0] and text.startswith("```", position):
            position = skip_blank(text, position + 3)
        if not text.startswith(tokens.end, position):
            raise MalformedCall(f"a call does not end in {tokens.end}")
        position += len(tokens.end)
    said.append(text[position:])
    words = tokens.around.sub("", "".join(said))
    if not calls or tokens.mark in words:
        raise MalformedCall("there are tokens of a call that are no call")
    return _FormatResult(tuple(calls), words)


def _write_kimi(calls: Sequence[ParsedCall]) -> str:
    written = (
        f"<|tool_call_begin|>functions.{call.name}:{number}<|tool_call_argument_begin|>{_write_value(call.arguments)}"
        "<|tool_call_end|>"
        for number, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{''.join(written)}<|tool_calls_section_end|>"


def _write_deepseek(calls: Sequence[ParsedCall]) -> str:
    written = (
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{_write_value(call.arguments)}<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{''.join(written)}<｜tool▁calls▁end｜>"


_KIMI = CallFormat(
    name="kimi",
    instruction=(
        "End your reply with all calls, each with a JSON object of its arguments:\n"
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.<name>:<number><|tool_call_argument_begin|>"
        '{"<argument>": <value>}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    marks=lambda text: _KIMI_TOKENS.mark in text,
    read=lambda text, tools: _read_tokens(text, _KIMI_TOKENS),
    write=_write_kimi,
)
_DEEPSEEK = CallFormat(
    name="deepseek",
    instruction=(
        "End your reply with all calls, each with a JSON object of its arguments:\n"
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><name><｜tool▁sep｜>"
        '{"<argument>": <value>}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    marks=lambda text: _DEEPSEEK_TOKENS.mark in text,
    read=lambda text, tools: _read_tokens(text, _DEEPSEEK_TOKENS),
    write=_write_deepseek,
)


# Harmony, of gpt-oss: a message a call, in the channel for commentary and with the tool as its recipient.

_HARMONY_MESSAGE = "<|message|>"
_HARMONY_RECIPIENT = re.compile(rf"\bto=(?:functions\.)?(\w[\w.-]{{0,{MOST_NAME}}})")
_HARMONY_END = re.compile(r"<\|(?:end|call|return)\|>")
_HARMONY_HEAD = re.compile(
    r"<\|(?:start|channel)\|>[^<>\n]{0,300}(?:<\|(?:channel|constrain)\|>[^<>\n]{0,300}){0,2}<\|message\|>"
)
_HARMONY_THINKING = re.compile(r"<\|channel\|>\s{0,10}analysis\b")
_HARMONY_CALL = re.compile(r"<\|(?:start|channel)\|>[^<>\n]{0,300}(?:<\|channel\|>[^<>\n]{0,300})?\bto=\w")


def _attempts_harmony(text: str) -> bool:
    return "<|channel|>" in text and _HARMONY_CALL.search(text) is not None


def _read_harmony(text: str, tools: Sequence[ToolSpec]) -> _FormatResult:
    """Of a whole reply: its thinking is a message in a channel of its own."""
    calls: list[ParsedCall] = []
    said: list[str] = []
    position = 0
    while (head := _HARMONY_HEAD.search(text, position)) is not None:
        said.append(text[position : head.start()])
        recipient = _HARMONY_RECIPIENT.search(head[0])
        thinks = _HARMONY_THINKING.search(head[0]) is not None
        if recipient is not None:
            if len(calls) == MOST_CALLS or thinks:
                raise MalformedCall("there are too many calls, or a call stands in the channel for thinking")
            arguments, position = read_json_at(text, head.end())
            calls.append(build_call(recipient[1], arguments))
            position = skip_blank(text, position)
            end = _HARMONY_END.match(text, position)
            if end is None and position < len(text):
                raise MalformedCall("a call does not end in <|call|>")
            position = len(text) if end is None else end.end()
            continue
        end = _HARMONY_END.search(text, head.end())
        if not thinks:
            said.append(text[head.end() : end.start() if end else len(text)])
        position = end.end() if end else len(text)
    said.append(text[position:])
    words = "\n".join(part.strip() for part in said if part.strip())
    if not calls or "<|" in words:
        raise MalformedCall("there are tokens of a call that are no call")
    return _FormatResult(tuple(calls), words)


def _write_harmony(calls: Sequence[ParsedCall]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
        f"{_write_value(call.arguments)}<|call|>"
        for call in calls
    )


_HARMONY = CallFormat(
    name="harmony",
    instruction=(
        "Write each call as a message in the commentary channel, with a JSON object of its arguments:\n"
        '<|channel|>commentary to=functions.<name> <|constrain|>json<|message|>{"<argument>": <value>}<|call|>'
    ),
    marks=_attempts_harmony,
    read=_read_harmony,
    write=_write_harmony,
)


# All formats, in the order of the documentation

FORMATS: Final[Mapping[ToolFormat, CallFormat]] = {
    form.name: form
    for form in (
        *(_HERMES, _LLAMA_JSON, _PYTHONIC, _MISTRAL, _QWEN_CODER, _ANTHROPIC, _MCP, _HARMONY, _GLM, _KIMI, _DEEPSEEK),
    )
}


def find_declared_format(name: object) -> ToolFormat | None:
    """The format with this name; None for other values, such as `native`."""
    return next((form for form in FORMATS if form == name), None)


# Tools as text, for models whose chat template does not support them


def render_tools(tools: Sequence[ToolSpec], form: ToolFormat) -> str:
    """The tools, one JSON object a line, and how to call them."""
    lines = [json.dumps(tool.model_dump(mode="json"), ensure_ascii=False) for tool in tools]
    return "\n".join(["These tools are available, each as a JSON object:", *lines, "", FORMATS[form].instruction])
