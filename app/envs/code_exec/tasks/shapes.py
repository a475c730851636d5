"""Input shapes: how an argument is generated, such as `{whole: [0, 9]}` or `{list: {whole: [0, 9]}, length: [0, 12]}`.

All chance comes from the seed, so the same seed gives the same arguments everywhere."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from app.domain.values import FiniteJson, Frozen
from app.toolkit.seeded import SeededRandom

Chosen: TypeAlias = Mapping[str, JsonValue]
"""A family's parameters by name."""

MOST_REPEATS = 40
"""Extra draws for a list of distinct items, to replace items that are drawn twice."""


def _check_bounds(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError("the lower bound is above the upper one")
    return bounds


Bounds = Annotated[tuple[int, int], AfterValidator(_check_bounds)]
"""Least and most, both included."""


class IntegerShape(Frozen):
    whole: Bounds

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return _draw_within(self.whole, draws)


class NearParameterShape(Frozen):
    """A whole number about as large as a parameter."""

    near: str
    within: int

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        middle = chosen[self.near]
        if not isinstance(middle, int):
            raise ValueError(f"parameter {self.near} is not a whole number")
        return _draw_within((middle - self.within, middle + self.within), draws)


class ParameterShape(Frozen):
    """The value of a parameter, or one item of it if it is a list."""

    parameter: str

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        value = chosen[self.parameter]
        return draws.one(value) if isinstance(value, list) else value


class OneOfShape(Frozen):
    one_of: Annotated[tuple[FiniteJson, ...], Field(min_length=1)]

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return draws.one(self.one_of)


class NumeralShape(Frozen):
    """A whole number in digits, padded with zeros to `width`."""

    numeral: Bounds
    width: int = 1

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return str(_draw_within(self.numeral, draws)).zfill(self.width)


class TextShape(Frozen):
    """A text of these characters."""

    text: Annotated[str, Field(min_length=1)]
    length: Bounds

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return "".join(draws.one(self.text) for _ in range(_draw_within(self.length, draws)))


class JoinedShape(Frozen):
    """A text of parts with a separator between them."""

    joined: "Shape"
    by: "Shape | str" = ""
    length: Bounds

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        text = ""
        for place in range(_draw_within(self.length, draws)):
            between = self.by if isinstance(self.by, str) else str(self.by.draw(draws, chosen))
            text += between * (place > 0) + str(self.joined.draw(draws, chosen))
        return text


class ConcatenatedShape(Frozen):
    """These parts, concatenated."""

    parts: tuple["Shape | str", ...]

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return "".join(part if isinstance(part, str) else str(part.draw(draws, chosen)) for part in self.parts)


class ListShape(Frozen):
    items: "Shape" = Field(alias="list")
    length: Bounds
    distinct: bool = False
    ordered: bool = False
    """Sorted; for numbers, texts, or lists of these only."""

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        count = _draw_within(self.length, draws)
        found: list[JsonValue] = []
        for _ in range(count + MOST_REPEATS * self.distinct):
            item = self.items.draw(draws, chosen)
            if len(found) < count and not (self.distinct and item in found):
                found.append(item)
        return sorted(found, key=_make_sort_key) if self.ordered else found


class RowShape(Frozen):
    row: tuple["Shape", ...]

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return [one.draw(draws, chosen) for one in self.row]


class SpanShape(Frozen):
    """A start and an end. The end is larger than the start by `least` to `most`."""

    span: Bounds
    most: int
    least: int = 0

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        start = _draw_within(self.span, draws)
        return [start, start + _draw_within((self.least, self.most), draws)]


class GridShape(Frozen):
    """Rows of equal length."""

    grid: "Shape"
    rows: Bounds
    columns: Bounds

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        width = _draw_within(self.columns, draws)
        rows = _draw_within(self.rows, draws)
        return [[self.grid.draw(draws, chosen) for _ in range(width)] for _ in range(rows)]


class TextGridShape(Frozen):
    """Texts of equal length."""

    lines: Annotated[str, Field(min_length=1)]
    rows: Bounds
    columns: Bounds

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        width = _draw_within(self.columns, draws)
        return ["".join(draws.one(self.lines) for _ in range(width)) for _ in range(_draw_within(self.rows, draws))]


class MappingShape(Frozen):
    """An object with generated names and values."""

    names: "Shape"
    to: "Shape"
    length: Bounds

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        count = _draw_within(self.length, draws)
        return {str(self.names.draw(draws, chosen)): self.to.draw(draws, chosen) for _ in range(count)}


class EitherShape(Frozen):
    """One of these shapes, weighted by how often it is listed."""

    either: Annotated[tuple["Shape", ...], Field(min_length=1)]

    def draw(self, draws: SeededRandom, chosen: Chosen) -> JsonValue:
        return draws.one(self.either).draw(draws, chosen)


Shape: TypeAlias = (
    IntegerShape
    | NearParameterShape
    | ParameterShape
    | OneOfShape
    | NumeralShape
    | TextShape
    | JoinedShape
    | ConcatenatedShape
    | ListShape
    | RowShape
    | SpanShape
    | GridShape
    | TextGridShape
    | MappingShape
    | EitherShape
)

for _model in (JoinedShape, ConcatenatedShape, ListShape, RowShape, GridShape, MappingShape, EitherShape):
    _model.model_rebuild()


def _draw_within(bounds: tuple[int, int], draws: SeededRandom) -> int:
    least, most = bounds
    return least + draws.below(most - least + 1)


def _make_sort_key(value: JsonValue) -> tuple[list[int], str]:
    """Sort key: numbers and rows of numbers by value, everything else as text."""
    numbers = value if isinstance(value, list) else [value]
    return [number for number in numbers if isinstance(number, int)], str(value)
