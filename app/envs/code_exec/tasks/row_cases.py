"""Tests of a row: what is run, what it is to give, and by which rule the two are compared, outside of the program."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic import JsonValue

from app.domain.digests import canonical_json
from app.domain.sources import leave_out
from app.envs.code_exec.tasks.call_harness import harness_mark

Rule = Literal["equal", "json", "close", "true", "false", "output"]
"""`equal`: by Python's equality. `json`: the same, where tuples count as lists and keys as texts. `close`: numbers
within a tolerance. `true`, `false`: what Python takes it for. `output`: line by line, numbers by their value."""

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
SEVERAL_ANSWERS: Final = re.compile(
    r"\b(?:print|output|return|find|give) any\b|\bany (?:one )?of them\b|\b(?:multiple|several|many|more than one) "
    r"(?:possible |valid |correct |optimal )?(?:answers?|solutions?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RowCase:
    """`expected`, and what comes back, have the marks of `call_harness`. `also` is as right."""

    arguments: tuple[JsonValue, ...]
    """What the program is called with: for tests that are expressions `(expression, name, arguments)`."""
    expected: JsonValue
    rule: Rule = "equal"
    absolute: float = 0.0
    relative: float = 0.0
    given: tuple[JsonValue, ...] = ()
    """The arguments of the function, where they are known."""
    also: JsonValue = None

    def is_right(self, value: JsonValue) -> bool:
        """Never raises, whatever a program gave."""
        try:
            if self.rule == "output":
                return is_same_output(str(value), str(self.expected))
            if self.rule in ("true", "false"):
                return _is_true(value) == (self.rule == "true")
            if is_equal(value, self.expected, as_json=self.rule == "json"):
                return True
            if self.also is not None and is_equal(value, self.also, as_json=True):
                return True
            return self.rule == "close" and self._is_close(value, self.expected)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return False

    def _is_close(self, one: Any, other: Any) -> bool:
        if isinstance(one, int | float) and isinstance(other, int | float):
            return abs(one - other) <= max(self.absolute, self.relative * max(abs(one), abs(other)))
        first, second = _get_items(one), _get_items(other)
        if first is None or second is None or len(first) != len(second):
            return is_equal(one, other, as_json=False)
        return all(map(self._is_close, first, second))


@dataclass(frozen=True, slots=True)
class RowTests:
    """`before` and `after` stand around the answer. `function` is empty for a program that reads standard input."""

    function: str
    cases: Sequence[RowCase]
    before: str = ""
    after: str = ""
    gold: str = ""
    """Where what is right is computed: the program that is run for it, with the `check` that calls it."""
    check: str = ""


def mark(value: object) -> JsonValue:
    """Marked as what programs give. ValueError for what JSON cannot hold with these marks."""
    marked: Any = harness_mark(value)
    canonical_json(_normalize(marked, as_json=False))
    return marked  # type: ignore[no-any-return]


def is_equal(one: JsonValue, other: JsonValue, *, as_json: bool) -> bool:
    return canonical_json(_normalize(one, as_json)) == canonical_json(_normalize(other, as_json))


def _normalize(value: Any, as_json: bool) -> Any:
    """The same for values that are equal in Python. ValueError or TypeError for what the harness never writes."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_normalize(one, as_json) for one in value]
    if isinstance(value, dict):
        ((kind, held),) = value.items()
        return _normalize_marked(kind, held, as_json)
    return value


def _normalize_marked(kind: str, held: Any, as_json: bool) -> Any:
    if kind == "float":
        if held not in ("inf", "-inf"):
            raise ValueError("equal to nothing")
        return {kind: held}
    items = [_normalize(one, as_json) for one in held]
    if kind == "tuple":
        return items if as_json else {kind: items}
    if kind == "set":
        return {kind: sorted({canonical_json(one) for one in items})}
    if kind == "dict":
        pairs = [[_name_key(name) if as_json else name, one] for name, one in items]
        return {kind: sorted(pairs, key=canonical_json)}
    real, imaginary = items
    return real if imaginary == 0 else {kind: items}


def _name_key(name: object) -> str:
    return name if isinstance(name, str) else canonical_json(name)


def _is_true(value: JsonValue) -> bool:
    if isinstance(value, dict):
        ((kind, held),) = value.items()
        return held != [0, 0] if kind == "complex" else bool(held)
    return bool(value)


def _get_items(value: object) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("tuple"), list):
        value = value["tuple"]
    return value if isinstance(value, list) else None


def is_same_output(one: str, other: str) -> bool:
    """As many lines, each the same or with words that are the same numbers."""
    first, second = one.strip().split("\n"), other.strip().split("\n")
    return len(first) == len(second) and all(map(_is_same_line, first, second))


def _is_same_line(one: str, other: str) -> bool:
    if one.strip() == other.strip():
        return True
    first, second = one.split(), other.split()
    return len(first) == len(second) and all(map(_is_same_word, first, second))


def _is_same_word(one: str, other: str) -> bool:
    if one == other:
        return True
    return bool(_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)) and Decimal(one) == Decimal(other)


def require_task(cases: Sequence[RowCase]) -> None:
    """Leaves out rows whose tests pay for a constant or for an argument."""
    if len(cases) < 2:
        raise leave_out("it has fewer than two tests, so none is hidden")
    if all(case.is_right(cases[0].expected) for case in cases):
        raise leave_out("all its tests expect the same result")
    if any(
        all(len(case.given) > place and case.is_right(case.given[place]) for case in cases)
        for place in range(len(cases[0].given))
    ):
        raise leave_out("all its tests expect one of the arguments")
