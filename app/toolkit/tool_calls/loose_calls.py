"""Calls among words, in no format that a chat template has: as models write them that were never shown one.

    `Here. {"name": "give_item", "arguments": {"item": "rope"}}`    an object among the words, be it in a fence
    `{"say": "Here.", "action": {"type": "give_item", "item": "rope"}}`
    `Here. ACTION: give_item {"item": "rope"}`
    `Here. give_item(item="rope")`, `Here. [give_item(item="rope")]`
    `Here. [ring_bell]`                                             a name alone

Only names of tools that are there are looked for: `[sighs]` and `the guest(s)` are words. A call that cannot be read
takes the rest of the text with it, since that may be the rest of the call. All of it is linear in the text.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from pydantic import JsonValue

from app.toolkit.tool_calls.call_lists import read_call_at
from app.toolkit.tool_calls.calls import MalformedCall, ParsedCall, build_call, read_json, read_json_at

_NAME: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
_ANNOUNCED: Final = r"\*{0,2}\b(?:ACTION|Action)[ *]{0,4}:[ *`]{0,4}"
_NAMED_ARGUMENT: Final = r"(?=\s{0,4}(?:\)|[A-Za-z_]\w{0,63}\s{0,4}=))"
_BEGINS: Final = re.compile(
    rf"(?P<object>(?:\[\s{{0,10}})?\{{\s{{0,20}}\"(?:name|type|action|tool|function)\"\s{{0,10}}:)"
    rf"(?:\s{{0,10}}\"(?P<titled>{_NAME})\")?"
    rf"|(?P<opens>\[ ?)?(?:{_ANNOUNCED}|(?<![\w.-]))(?P<called>{_NAME})\({_NAMED_ARGUMENT}"
    rf"|{_ANNOUNCED}(?P<announced>{_NAME})(?![a-z0-9_-])[ *`]{{0,4}}(?:PARAMS: ?)?"
    rf"|\[ ?(?P<bracketed>{_NAME}) ?\](?!\()"
    rf"|\[ ?(?P<filled>{_NAME})[: (][^\[\]\n]{{1,500}}\]"
)
"""Where a call may begin. Links do not match."""
_MOST_READ: Final = 100_000
"""Characters of a text that may hold such calls. No line of a character is near as long."""
_MOST_TRIED: Final = 16
"""Calls that are read of one text, names in brackets aside: each may cost a walk over the rest of it."""
_EMPTY_FENCE: Final = re.compile(r"```[A-Za-z_]{0,20}\s{0,100}(?:```|\Z)")
"""What is left around a call that stood in a fence of its own."""
_FENCED: Final = re.compile(r"\s{0,100}```[A-Za-z_]{0,20}\s{1,20}(?P<inside>\{.*\})\s{0,100}```\s{0,100}\Z", re.DOTALL)
_NAMED: Final = ("name", "type", "action", "tool")
_ARGUMENTS: Final = ("arguments", "parameters", "params")


@dataclass
class LooseReading:
    said: str = ""
    """The words without the calls."""
    calls: list[ParsedCall] = field(default_factory=list)
    bracketed: list[ParsedCall] = field(default_factory=list)
    """Those that are a name in brackets and no more."""
    faults: list[str] = field(default_factory=list)
    """Of calls that cannot be read."""


def read_loose_calls(text: str, known: Collection[str]) -> LooseReading:
    """`known`: the names of the tools that are there."""
    if len(text) > _MOST_READ:
        return LooseReading(text)
    reading = LooseReading()
    words = _open_say(text, known, reading)
    pieces: list[str] = []
    position = start = tried = 0
    while tried < _MOST_TRIED and (match := _BEGINS.search(words, position)) is not None:
        end = _take_call(words, match, known, reading)
        tried += match["bracketed"] is None and (end is not None or match["object"] is not None)
        if end is None:
            position = match.start() + 1
            continue
        pieces.append(words[start : match.start()])
        position = start = end
    reading.said = _join_pieces([*pieces, words[start:]])
    return reading


def _take_call(words: str, match: re.Match[str], known: Collection[str], reading: LooseReading) -> int | None:
    """Where the call ends that begins there; None where no call begins."""
    name = match["called"] or match["announced"] or match["bracketed"] or match["filled"]
    if name is not None and name not in known:
        return None
    if match["bracketed"] is not None:
        reading.bracketed.append(ParsedCall(name=match["bracketed"]))
        return match.end()
    try:
        calls, end = _read_call(words, match, known)
    except MalformedCall as fault:
        if name is None and match["titled"] not in known:
            return None
        reading.faults.append(str(fault))
        return len(words) if match["filled"] is None else match.end()
    reading.calls += calls
    return end if calls else None


def _read_call(words: str, match: re.Match[str], known: Collection[str]) -> tuple[Sequence[ParsedCall], int]:
    """The calls and where they end; none where an object is no call."""
    if match["object"] is not None:
        value, end = read_json_at(words, match.start())
        calls = [_convert_object(one, known) for one in (value if isinstance(value, list) else [value])]
        read = [call for call in calls if call is not None]
        return read if len(read) == len(calls) else (), end
    if (name := match["announced"]) is not None:
        has_arguments = words.startswith("{", match.end())
        arguments, end = read_json_at(words, match.end()) if has_arguments else ({}, match.end("announced"))
        return [build_call(name, arguments)], end
    if match["filled"] is not None:
        raise MalformedCall("a call in brackets is a name, or a name with named arguments in parentheses")
    call, end = read_call_at(words, match.start("called"))
    closes = match["opens"] is not None and words.startswith("]", end)
    return [call], end + closes


def _convert_object(value: JsonValue, known: Collection[str]) -> ParsedCall | None:
    """A call with its arguments in an object of their own or beside its name; None for an object that is no call.
    MalformedCall for arguments that are none."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    members = inner if isinstance(inner, dict) else value
    key = next((key for key in _NAMED if isinstance(members.get(key), str) and members[key] in known), None)
    own = next((key for key in _ARGUMENTS if key in members), None)
    if key is None and not ("name" in members and own is not None):
        return None
    name = members[key or "name"]
    if own is not None:
        arguments = members[own]
        return build_call(name, read_json(arguments) if isinstance(arguments, str) else arguments)
    return build_call(name, {one: members[one] for one in members if one != key})


def _open_say(text: str, known: Collection[str], reading: LooseReading) -> str:
    """The words of a text that is one object of `say` and `action`, whose calls are noted."""
    fenced = _FENCED.match(text) if text.lstrip().startswith("```") else None
    inside = (text if fenced is None else fenced["inside"]).strip()
    if not inside.startswith("{") or '"say"' not in inside:
        return text
    try:
        value = read_json(inside)
    except MalformedCall:
        return text
    if not isinstance(value, dict) or value.keys() - {"say", "action", "actions"}:
        return text
    said = value.get("say")
    if not isinstance(said, str):
        return text
    for given in (value.get("action"), value.get("actions")):
        for one in given if isinstance(given, list) else [given]:
            if one is not None:
                _note_action({"name": one} if isinstance(one, str) else one, known, reading)
    return said


def _note_action(action: JsonValue, known: Collection[str], reading: LooseReading) -> None:
    try:
        call = _convert_object(action, known)
    except MalformedCall as fault:
        reading.faults.append(str(fault))
        return
    if call is None:
        reading.faults.append("`action` is no call of a tool that is there")
    else:
        reading.calls.append(call)


def _join_pieces(pieces: Sequence[str]) -> str:
    """The words around calls, without marks that stood between two of them."""
    kept = [piece for piece in pieces if any(map(str.isalnum, piece))] if len(pieces) > 1 else pieces
    joined = [*kept[:1]]
    for before, after in pairwise(kept):
        joined += [" " if before[-1] in " \t" or after[0] in " \t" else "", after.strip(" \t")]
    joined[:1] = [piece.strip(" \t") for piece in joined[:1]]
    text = "".join(joined)
    return (_EMPTY_FENCE.sub("", text) if len(pieces) > 1 else text).strip()
