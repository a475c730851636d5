"""The notation of the tables in docs/semantics.md: rows, requests, claims, and values with references in them."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

COLUMNS = ("rule", "requests", "reply holds")

T = TypeVar("T")


class Unreadable(ValueError):
    """Something in the page that is not in its notation."""


@dataclass(frozen=True)
class Row:
    section: str
    rule: str
    requests: tuple[str, ...]
    holds: tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """`$name` followed by `.field`, `[index]` or `[*]`, which is every element."""

    name: str
    steps: tuple[str | int, ...]


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple["Value", ...]


@dataclass(frozen=True)
class Fields:
    values: tuple[tuple[str, "Value"], ...]


@dataclass(frozen=True)
class Items:
    values: tuple["Value", ...]


@dataclass(frozen=True)
class Plain:
    value: str | int | float | bool | None


Value = Reference | Call | Fields | Items | Plain


@dataclass(frozen=True)
class Sent:
    """A request: how often at once, what, and under which name its reply is kept."""

    times: int
    method: str
    path: str
    body: Value | None
    key: str | None
    status: int
    name: str


@dataclass(frozen=True)
class Claim:
    left: Value
    relation: str
    right: Value


def rows_of(page: str) -> list[Row]:
    """Every row of the tables with the columns `rule | requests | reply holds`, in order."""
    return list(_rows(page.splitlines()))


def _rows(lines: list[str]) -> Iterator[Row]:
    section, inside = "", False
    for number, line in enumerate(lines, start=1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            inside = False
            continue
        cells = tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
        if cells == COLUMNS:
            inside = True
        elif inside and not set(line) <= set("|- :"):
            if len(cells) != len(COLUMNS):
                raise Unreadable(f"line {number} has {len(cells)} cells")
            yield Row(section, cells[0], _parts(cells[1], number), _parts(cells[2], number))


def _parts(cell: str, number: int) -> tuple[str, ...]:
    parts = [part.strip() for part in cell.split("<br>")]
    for part in parts:
        if not re.fullmatch(r"`[^`]+`|\([^`()]+\)", part):
            raise Unreadable(f"line {number}: neither code nor a remark in brackets: {part!r}")
    return tuple(part.strip("`") for part in parts)


_SENT = re.compile(
    r"(?:(?P<times>\d+) times at once: )?(?P<method>GET|POST|PUT|DELETE) (?P<path>/\S*)(?: (?P<body>\{.*\}))?"
    r"(?: with Idempotency-Key (?P<key>\S+))? -> (?:(?P<status>\d{3}) )?\$(?P<name>\w+)"
)


def sent(text: str) -> Sent:
    found = _SENT.fullmatch(text)
    if found is None:
        raise Unreadable(f"not a request: {text}")
    return Sent(
        times=int(found["times"] or 1),
        method=found["method"],
        path=found["path"],
        body=None if found["body"] is None else value(found["body"]),
        key=found["key"],
        status=int(found["status"] or 200),
        name=found["name"],
    )


RELATIONS = ("==", "!=", "<", ">", "has no", "has")


def claim(text: str) -> Claim:
    reader = _Reader(text)
    left = reader.value()
    relation = next((one for one in RELATIONS if reader.takes(one)), None)
    if relation is None:
        reader.refuse(f"none of {', '.join(RELATIONS)}")
    right = reader.value()
    reader.ends()
    return Claim(left, relation, right)


def value(text: str) -> Value:
    reader = _Reader(text)
    read = reader.value()
    reader.ends()
    return read


REFERENCE = re.compile(r"\$(\w+)((?:\.\w+|\[(?:-?\d+|\*)\])*)")
_STEP = re.compile(r"\.(\w+)|\[(-?\d+|\*)\]")


def reference(found: re.Match[str]) -> Reference:
    steps = [field or ("*" if index == "*" else int(index)) for field, index in _STEP.findall(found[2])]
    return Reference(found[1], tuple(steps))


class _Reader:
    """JSON in which references and calls are values too."""

    _CALL = re.compile(r"([a-z]+)\(")
    _SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e-?\d+)?|true|false|null')

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Value:
        if self.takes("{"):
            return Fields(tuple(self._separated("}", self._field)))
        if self.takes("["):
            return Items(tuple(self._separated("]", self.value)))
        if found := REFERENCE.match(self._text, self._at):
            self._at = found.end()
            return reference(found)
        if found := self._CALL.match(self._text, self._at):
            self._at = found.end()
            return Call(found[1], tuple(self._separated(")", self.value)))
        if found := self._SCALAR.match(self._text, self._at):
            self._at = found.end()
            return Plain(json.loads(found[0]))
        self.refuse("not a value")

    def takes(self, mark: str) -> bool:
        """Steps over the mark and the spaces around it, if it is next."""
        self._skip()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        self._skip()
        return True

    def ends(self) -> None:
        self._skip()
        if self._at < len(self._text):
            self.refuse("something follows")

    def refuse(self, why: str) -> NoReturn:
        raise Unreadable(f"{why} at {self._text[self._at :]!r} in {self._text!r}")

    def _skip(self) -> None:
        while self._text.startswith(" ", self._at):
            self._at += 1

    def _field(self) -> tuple[str, Value]:
        name = self.value()
        if not isinstance(name, Plain) or not isinstance(name.value, str) or not self.takes(":"):
            self.refuse("not a field")
        return name.value, self.value()

    def _separated(self, end: str, read: Callable[[], T]) -> Iterator[T]:
        if self.takes(end):
            return
        yield read()
        while self.takes(","):
            yield read()
        if not self.takes(end):
            self.refuse(f"no {end}")
