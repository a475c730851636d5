"""Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}]`.

Or, in its later form, `[TOOL_CALLS]name[ARGS]{…}` per call. Servers leave out the tags in brackets where they leave out
special tokens, so that a reply may be the bare list, or begin with a name that an object follows at once."""

import json
import re
from collections.abc import Sequence

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import CallFormat, FormatResult
from app.toolkit.tool_calls.json_text import (
    BLANK,
    MOST_CALLS,
    MOST_NAME,
    MalformedCall,
    build_call,
    parse_call_object,
    read_json,
    read_json_at,
)

TAG = "[TOOL_CALLS]"
ARGUMENTS = "[ARGS]"
_NAMED = re.compile(
    rf"\s{{0,100}}([\w.-]{{1,{MOST_NAME}}})(?:\[CALL_ID\]\w{{1,100}})?(?:\[ARGS\]\s{{0,100}})?(?=\{{)", re.ASCII
)
_BARE_LIST = re.compile(r'\s{0,100}\[\s{0,100}\{\s{0,100}"(?:name|arguments)"')
_BARE_NAME = re.compile(rf'\s{{0,100}}[A-Za-z_][\w.-]{{0,{MOST_NAME}}}\{{\s{{0,100}}["}}]', re.ASCII)


def _attempts_calls(text: str) -> bool:
    return TAG in text or ARGUMENTS in text or _is_bare(text)


def _is_bare(text: str) -> bool:
    return _BARE_NAME.match(text) is not None or (_BARE_LIST.match(text) is not None and '"arguments"' in text)


def _read_calls(text: str, tools: Sequence[ToolSpec]) -> FormatResult:
    said, tag, written = text.partition(TAG)
    if not tag:
        if not _is_bare(text):
            raise MalformedCall(f"{ARGUMENTS} without {TAG}")
        said, written = "", text
    if not written.lstrip(BLANK).startswith(("[", "{")):
        return FormatResult(_read_named(written), said)
    listed = read_json(written)
    if not isinstance(listed, list) or not listed:
        raise MalformedCall(f"after {TAG} there is no list of calls")
    return FormatResult(tuple(map(parse_call_object, listed)), said)


def _read_named(written: str) -> tuple[ParsedCall, ...]:
    calls: list[ParsedCall] = []
    position = 0
    while len(calls) < MOST_CALLS:
        head = _NAMED.match(written, position)
        if head is None:
            raise MalformedCall(f"after {TAG} there is no name with its arguments")
        arguments, position = read_json_at(written, head.end())
        calls.append(build_call(head[1], arguments))
        while position < len(written) and written[position] in BLANK:
            position += 1
        if position == len(written):
            return tuple(calls)
        position += len(TAG) if written.startswith(TAG, position) else 0
    raise MalformedCall(f"there are more than {MOST_CALLS} calls")


def _write_calls(calls: Sequence[ParsedCall]) -> str:
    listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return TAG + json.dumps(listed, ensure_ascii=False)


MISTRAL = CallFormat(
    name="mistral",
    instruction=(
        "To call tools, end your reply with [TOOL_CALLS] and one JSON array of all calls:\n"
        '[TOOL_CALLS][{"name": "<name>", "arguments": {"<argument>": <value>}}]'
    ),
    marks=_attempts_calls,
    read=_read_calls,
    write=_write_calls,
)
