"""A list of calls as Python writes it: `[f(a=1, b="x"), g()]`.

A grammar of our own: Python's parser takes time and memory of the writer's choosing, and nothing may be evaluated. It
walks over the text once.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

from pydantic import JsonValue

from app.domain.values import MAX_JSON_DEPTH
from app.toolkit.tool_calls.calls import MOST_DIGITS, MalformedCall, ParsedCall, build_call, read_json

_ItemT = TypeVar("_ItemT")

_MOST_ITEMS: Final = 5_000
"""Calls, arguments and values of one reply together: each is read in Python."""

_CALL_NAME = re.compile(r"\s*(\w[\w.-]*)", re.ASCII)
"""Of a tool or an argument: those that servers allow, which may hold hyphens and begin with a digit."""
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][\w.-]*)"
    r"|(?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<mark>\*\*|[\[\](){},:=]))"
)
"""Texts end at a line break, so an open quotation mark costs one line."""
_UNPACKED = re.compile(r"\s*\*\*(?=\s*\{)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|[\s\S])")
"""Escapes of Python's texts, up to the last code point of Unicode."""
_PLAIN: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_PYTHON_WORDS: Final[dict[str, JsonValue]] = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}


def read_call_list(text: str) -> tuple[tuple[ParsedCall, ...], int]:
    """The calls of the list with which the text begins, and where it ends. Malformed for anything else, and for an
    empty list."""
    reader = _CallListReader(text)
    calls = tuple(reader.read_items("[", "]", reader.read_call))
    if not calls:
        raise MalformedCall("the list of calls is empty")
    return calls, reader.position


def read_call_at(text: str, position: int) -> tuple[ParsedCall, int]:
    """The call that begins there, and where it ends. Malformed for anything else."""
    reader = _CallListReader(text, position)
    return reader.read_call(), reader.position


@dataclass
class _CallListReader:
    """One walk over the text, a token at a time."""

    text: str
    position: int = 0
    depth: int = 0
    items: int = 0
    ahead: re.Match[str] | None = None

    def read_call(self) -> ParsedCall:
        name = self._take_name()
        arguments: dict[str, JsonValue] = {}
        for argument, value in chain.from_iterable(self.read_items("(", ")", self._read_argument)):
            if argument in arguments:
                raise MalformedCall("an argument is given twice")
            arguments[argument] = value
        return build_call(name, arguments)

    def read_items(self, opens: str, closes: str, item: Callable[[], _ItemT]) -> list[_ItemT]:
        """What stands between two marks, by commas; one may follow the last."""
        self._take_mark(opens)
        items: list[_ItemT] = []
        while not self._is_at(closes):
            self.items += 1
            if self.items > _MOST_ITEMS:
                raise MalformedCall(f"there are more than {_MOST_ITEMS} calls, arguments and values")
            items.append(item())
            if not self._is_at(closes):
                self._take_mark(",")
        self._take_mark(closes)
        return items

    def _read_argument(self) -> list[tuple[str, JsonValue]]:
        """One, or those of `**{"any name": value}`."""
        unpacked = _UNPACKED.match(self.text, self.position)
        if unpacked is not None:
            self.position = unpacked.end()
            members = self._read_value()
            if not isinstance(members, dict):
                raise MalformedCall("behind `**` there is no object")
            return [*members.items()]
        name = self._take_name()
        self._take_mark("=")
        return [(name, self._read_value())]

    def _read_value(self) -> JsonValue:
        token = self._peek()
        if token["text"] is not None:
            self.position = token.end()
            return _unescape(token["text"][1:-1])
        if token["number"] is not None:
            self.position = token.end()
            return _parse_number(token["number"])
        if token["name"] is not None:
            self.position = token.end()
            if token["name"] not in _PYTHON_WORDS:
                raise MalformedCall("a value is neither a literal nor a list of them")
            return _PYTHON_WORDS[token["name"]]
        return self._read_collection(token["mark"])

    def _read_collection(self, opens: str) -> JsonValue:
        if self.depth >= MAX_JSON_DEPTH:
            raise MalformedCall("values are nested too deep")
        self.depth += 1
        try:
            if opens == "{":
                pairs = self.read_items("{", "}", self._read_dict_entry)
                members = dict(pairs)
                if len(members) < len(pairs):
                    raise MalformedCall("an object names a member twice")
                return members
            if opens == "[":
                return self.read_items("[", "]", self._read_value)
            if opens == "(":
                return self.read_items("(", ")", self._read_value)
        finally:
            self.depth -= 1
        raise MalformedCall("a value is missing")

    def _read_dict_entry(self) -> tuple[str, JsonValue]:
        key = self._read_value()
        if not isinstance(key, str):
            raise MalformedCall("a member's name is no text")
        self._take_mark(":")
        return key, self._read_value()

    def _peek(self) -> re.Match[str]:
        if self.ahead is None or self.ahead.pos != self.position:
            self.ahead = _TOKEN.match(self.text, self.position)
        if self.ahead is None:
            raise MalformedCall("the list of calls ends early or holds what is no literal")
        return self.ahead

    def _take_name(self) -> str:
        name = _CALL_NAME.match(self.text, self.position)
        if name is None:
            raise MalformedCall("a name is missing")
        self.position = name.end()
        return name[1]

    def _is_at(self, mark: str) -> bool:
        return self._peek()["mark"] == mark

    def _take_mark(self, mark: str) -> None:
        if not self._is_at(mark):
            raise MalformedCall(f"`{mark}` is missing")
        self.position = self._peek().end()


def _parse_number(written: str) -> JsonValue:
    digits = written.replace("_", "").removeprefix("+")
    if len(digits) > MOST_DIGITS:
        raise MalformedCall(f"a number has more than {MOST_DIGITS} digits")
    if digits.lstrip("-").isdigit():
        return int(digits)
    number = float(digits)
    return read_json(repr(number))


def _unescape(written: str) -> str:
    """As Python reads a literal, but that an escape it does not know stays as it is, as it always did."""
    return _ESCAPE.sub(lambda escape: _decode_escape(escape[1], escape[0]), written) if "\\" in written else written


def _decode_escape(code: str, written: str) -> str:
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _PLAIN.get(code, written)


def write_call_list(calls: Sequence[ParsedCall]) -> str:
    return "[" + ", ".join(f"{call.name}({_format_arguments(call)})" for call in calls) + "]"


def _format_arguments(call: ParsedCall) -> str:
    plain = {
        name: value for name, value in call.arguments.items() if _CALL_NAME.fullmatch(name) and name == name.strip()
    }
    others = {name: value for name, value in call.arguments.items() if name not in plain}
    return ", ".join([*(f"{name}={value!r}" for name, value in plain.items()), *([f"**{others!r}"] if others else [])])
