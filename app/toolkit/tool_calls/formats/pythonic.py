"""Llama 4, and the prompt mode of the Berkeley Function-Calling Leaderboard: `[f(a=1, b="x"), g()]`.

A grammar of our own: Python's parser takes time and memory of the writer's choosing, and nothing may be evaluated."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.domain.values import MAX_JSON_DEPTH
from app.toolkit.tool_calls.formats.format import Format, Found
from app.toolkit.tool_calls.json_text import MOST_DIGITS, Malformed, call_of, read_json
from app.toolkit.tool_calls.values import Call

ItemT = TypeVar("ItemT")

MOST_ITEMS: Final = 5_000
"""Calls, arguments and values of one reply together: each is read in Python."""

_STARTS, _ENDS = "<|python_start|>", "<|python_end|>"
_CALLS = re.compile(r"\s{0,100}\[\s{0,100}[A-Za-z_][\w.]{0,200}\(")
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][\w.-]*)"
    r"|(?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<mark>[\[\](){},:=]))"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|[\s\S])")
_PLAIN: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_WORDS: Final[dict[str, JsonValue]] = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}


def _marks(text: str) -> bool:
    return _STARTS in text or _CALLS.match(text) is not None


def _read(text: str, tools: Sequence[ToolSpec]) -> Found:
    said, tag, written = text.partition(_STARTS)
    if tag:
        written = written.rstrip().removesuffix(_ENDS)
    reader = _Reader(written if tag else text)
    calls = tuple(reader.items("[", "]", reader.call))
    if not calls:
        raise Malformed("the list of calls is empty")
    reader.end()
    return Found(calls, said if tag else "")


@dataclass
class _Reader:
    """One walk over the text, a token at a time."""

    text: str
    position: int = 0
    depth: int = 0
    read: int = 0
    ahead: re.Match[str] | None = None

    def call(self) -> Call:
        name = self._next("name")
        arguments: dict[str, JsonValue] = {}
        for argument, value in self.items("(", ")", self._argument):
            if argument in arguments:
                raise Malformed("an argument is given twice")
            arguments[argument] = value
        return call_of(name, arguments)

    def items(self, opens: str, closes: str, item: Callable[[], ItemT]) -> list[ItemT]:
        """What stands between two marks, by commas; one may follow the last."""
        self._mark(opens)
        found: list[ItemT] = []
        while not self._at(closes):
            self.read += 1
            if self.read > MOST_ITEMS:
                raise Malformed(f"there are more than {MOST_ITEMS} calls, arguments and values")
            found.append(item())
            if not self._at(closes):
                self._mark(",")
        self._mark(closes)
        return found

    def end(self) -> None:
        if self.text[self.position :].strip():
            raise Malformed("there is text after the list of calls")

    def _argument(self) -> tuple[str, JsonValue]:
        name = self._next("name")
        self._mark("=")
        return name, self._value()

    def _value(self) -> JsonValue:
        token = self._peek()
        if token["text"] is not None:
            self.position = token.end()
            return _unescaped(token["text"][1:-1])
        if token["number"] is not None:
            self.position = token.end()
            return _number(token["number"])
        if token["name"] is not None:
            self.position = token.end()
            if token["name"] not in _WORDS:
                raise Malformed("a value is neither a literal nor a list of them")
            return _WORDS[token["name"]]
        return self._collection(token["mark"])

    def _collection(self, opens: str) -> JsonValue:
        if self.depth >= MAX_JSON_DEPTH:
            raise Malformed("values are nested too deep")
        self.depth += 1
        try:
            if opens == "{":
                pairs = self.items("{", "}", self._pair)
                members = dict(pairs)
                if len(members) < len(pairs):
                    raise Malformed("an object names a member twice")
                return members
            if opens == "[":
                return self.items("[", "]", self._value)
            if opens == "(":
                return self.items("(", ")", self._value)
        finally:
            self.depth -= 1
        raise Malformed("a value is missing")

    def _pair(self) -> tuple[str, JsonValue]:
        key = self._value()
        if not isinstance(key, str):
            raise Malformed("a member's name is no text")
        self._mark(":")
        return key, self._value()

    def _peek(self) -> re.Match[str]:
        if self.ahead is None or self.ahead.pos != self.position:
            self.ahead = _TOKEN.match(self.text, self.position)
        if self.ahead is None:
            raise Malformed("the list of calls ends early or holds what is no literal")
        return self.ahead

    def _next(self, kind: str) -> str:
        token = self._peek()
        if token[kind] is None:
            raise Malformed("a name is missing")
        self.position = token.end()
        return token[kind]

    def _at(self, mark: str) -> bool:
        return self._peek()["mark"] == mark

    def _mark(self, mark: str) -> None:
        if not self._at(mark):
            raise Malformed(f"`{mark}` is missing")
        self.position = self._peek().end()


def _number(written: str) -> JsonValue:
    digits = written.replace("_", "").removeprefix("+")
    if len(digits) > MOST_DIGITS:
        raise Malformed(f"a number has more than {MOST_DIGITS} digits")
    if digits.lstrip("-").isdigit():
        return int(digits)
    number = float(digits)
    return read_json(repr(number))


def _unescaped(written: str) -> str:
    """As Python reads a literal, but that an escape it does not know stays as it is, as it always did."""
    return _ESCAPE.sub(lambda escape: _character(escape[1], escape[0]), written) if "\\" in written else written


def _character(code: str, written: str) -> str:
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _PLAIN.get(code, written)


def _write(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(f"{call.name}({_keywords(call)})" for call in calls) + "]"


def _keywords(call: Call) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())


PYTHONIC = Format(
    name="pythonic",
    instruction=(
        "To call tools, reply with one list of calls with named arguments, as in Python, and nothing else:\n"
        "[<name>(<argument>=<value>), <name>(<argument>=<value>)]"
    ),
    marks=_marks,
    read=_read,
    write=_write,
)
