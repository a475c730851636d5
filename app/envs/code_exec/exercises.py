"""Exercises: a family of functions, parameters for it, and a seed for its examples and hidden tests.

A family has a function of ours as its reference, whose keyword arguments are the parameters. Beside each module of
`references` a YAML file says, by the function's name, how hard it is, what is asked (with `{slots}` for parameters),
what the parameters may be, what its arguments look like, and which cases are always tried. The reference, written as a
program, is the right answer, so the text of those modules is part of the digest of the families.

All chance comes from the seed, so the same seed gives the same arguments everywhere. Tests are chosen so that a
constant passes few of them, and a program for another value of a parameter fails one.
"""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice, product
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import AfterValidator, Field, JsonValue, StrictBool, StrictInt, StrictStr, TypeAdapter

from app.domain.tasks import CallResult
from app.domain.values import FiniteJson, Frozen, canonical_json, digest
from app.envs.code_exec.references import dates, formats, grids, lists, machines, numbers, ordering, searches, strings
from app.toolkit.procedural import MIXED, Level
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import read_packaged_data

# Input shapes: how an argument is generated, such as `{whole: [0, 9]}` or `{list: {whole: [0, 9]}, length: [0, 12]}`.

_Chosen: TypeAlias = Mapping[str, JsonValue]
"""A family's parameters by name."""

_MOST_REPEATS = 40
"""Extra draws for a list of distinct items, to replace items that are drawn twice."""


def _check_bounds(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError("the lower bound is above the upper one")
    return bounds


_Bounds = Annotated[tuple[int, int], AfterValidator(_check_bounds)]
"""Least and most, both included."""


class IntegerShape(Frozen):
    whole: _Bounds

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        return _draw_within(self.whole, draws)


class NearParameterShape(Frozen):
    """A whole number about as large as a parameter."""

    near: str
    within: int

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        middle = chosen[self.near]
        if not isinstance(middle, int):
            raise ValueError(f"parameter {self.near} is not a whole number")
        return _draw_within((middle - self.within, middle + self.within), draws)


class ParameterShape(Frozen):
    """The value of a parameter, or one item of it if it is a list."""

    parameter: str

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        value = chosen[self.parameter]
        return draws.one(value) if isinstance(value, list) else value


class OneOfShape(Frozen):
    one_of: Annotated[tuple[FiniteJson, ...], Field(min_length=1)]

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        return draws.one(self.one_of)


class NumeralShape(Frozen):
    """A whole number in digits, padded with zeros to `width`."""

    numeral: _Bounds
    width: int = 1

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        return str(_draw_within(self.numeral, draws)).zfill(self.width)


class TextShape(Frozen):
    """A text of these characters."""

    text: Annotated[str, Field(min_length=1)]
    length: _Bounds

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        return "".join(draws.one(self.text) for _ in range(_draw_within(self.length, draws)))


class JoinedShape(Frozen):
    """A text of parts with a separator between them."""

    joined: "Shape"
    by: "Shape | str" = ""
    length: _Bounds

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        text = ""
        for index in range(_draw_within(self.length, draws)):
            between = self.by if isinstance(self.by, str) else str(self.by.draw(draws, chosen))
            text += between * (index > 0) + str(self.joined.draw(draws, chosen))
        return text


class ConcatenatedShape(Frozen):
    """These parts, concatenated."""

    parts: tuple["Shape | str", ...]

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        return "".join(part if isinstance(part, str) else str(part.draw(draws, chosen)) for part in self.parts)


class ListShape(Frozen):
    items: "Shape" = Field(alias="list")
    length: _Bounds
    distinct: bool = False
    ordered: bool = False
    """Sorted; for numbers, texts, or lists of these only."""

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        count = _draw_within(self.length, draws)
        items: list[JsonValue] = []
        for _ in range(count + _MOST_REPEATS * self.distinct):
            item = self.items.draw(draws, chosen)
            if len(items) < count and not (self.distinct and item in items):
                items.append(item)
        return sorted(items, key=_make_sort_key) if self.ordered else items


class RowShape(Frozen):
    row: tuple["Shape", ...]

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        return [one.draw(draws, chosen) for one in self.row]


class SpanShape(Frozen):
    """A start and an end. The end is larger than the start by `least` to `most`."""

    span: _Bounds
    most: int
    least: int = 0

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        start = _draw_within(self.span, draws)
        return [start, start + _draw_within((self.least, self.most), draws)]


class GridShape(Frozen):
    """Rows of equal length."""

    grid: "Shape"
    rows: _Bounds
    columns: _Bounds

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        width = _draw_within(self.columns, draws)
        rows = _draw_within(self.rows, draws)
        return [[self.grid.draw(draws, chosen) for _ in range(width)] for _ in range(rows)]


class TextGridShape(Frozen):
    """Texts of equal length."""

    lines: Annotated[str, Field(min_length=1)]
    rows: _Bounds
    columns: _Bounds

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        width = _draw_within(self.columns, draws)
        return ["".join(draws.one(self.lines) for _ in range(width)) for _ in range(_draw_within(self.rows, draws))]


class MappingShape(Frozen):
    """An object with generated names and values."""

    names: "Shape"
    to: "Shape"
    length: _Bounds

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
        count = _draw_within(self.length, draws)
        return {str(self.names.draw(draws, chosen)): self.to.draw(draws, chosen) for _ in range(count)}


class EitherShape(Frozen):
    """One of these shapes, weighted by how often it is listed."""

    either: Annotated[tuple["Shape", ...], Field(min_length=1)]

    def draw(self, draws: SeededRandom, chosen: _Chosen) -> JsonValue:
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

# They name `Shape`, which is made of them.
for _model in (JoinedShape, ConcatenatedShape, ListShape, RowShape, GridShape, MappingShape, EitherShape):
    _model.model_rebuild()


def _draw_within(bounds: tuple[int, int], draws: SeededRandom) -> int:
    least, most = bounds
    return least + draws.below(most - least + 1)


def _make_sort_key(value: JsonValue) -> tuple[list[int], str]:
    """Numbers and rows of numbers by value, everything else as text."""
    numbers = value if isinstance(value, list) else [value]
    return [number for number in numbers if isinstance(number, int)], str(value)


# Families.

_Interval: TypeAlias = Annotated[StrictStr, Field(pattern=r"^-?[0-9]+\.\.-?[0-9]+$")]
"""`2..9`: every whole number from the one to the other."""
_Words: TypeAlias = dict[StrictBool | StrictInt | StrictStr, str]
"""What a parameter may be, each with what the statement says of it."""

_SHORT_PROGRAM = 260
"""Characters of a solution at most, for level `first`."""

_COUNTED = "bracket|character|column|desk|digit|item|minute|number|order|place|road|step"
_ONE_OF_SEVERAL = re.compile(rf"(?<![-+*] )\b1 ({_COUNTED})s\b")


class Spec(Frozen):
    level: Literal["easy", "medium", "hard"]
    says: str
    choices: dict[str, _Interval | tuple[FiniteJson, ...] | _Words]
    inputs: dict[str, Shape]
    edges: tuple[tuple[FiniteJson, ...], ...] = ()
    """Arguments that are tried whatever is drawn."""


@dataclass(frozen=True)
class Family:
    function: Callable[..., JsonValue]
    spec: Spec

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def choices(self) -> Mapping[str, tuple[JsonValue, ...]]:
        """What each parameter may be."""
        return {name: _values(choice) for name, choice in self.spec.choices.items()}

    @property
    def size(self) -> int:
        """How many combinations of parameters there are."""
        return prod(map(len, self.choices.values()))

    def combinations(self) -> Iterator[_Chosen]:
        for values in product(*self.choices.values()):
            yield dict(zip(self.choices, values, strict=True))

    def neighbours(self, chosen: _Chosen) -> Iterator[_Chosen]:
        """The combinations that differ from this one in a single parameter."""
        for name, values in self.choices.items():
            yield from ({**chosen, name: value} for value in values if value != chosen[name])

    def choose(self, draws: SeededRandom) -> dict[str, JsonValue]:
        return {name: draws.one(values) for name, values in self.choices.items()}

    def arguments(self, draws: SeededRandom, chosen: _Chosen) -> list[JsonValue]:
        return [shape.draw(draws, chosen) for shape in self.spec.inputs.values()]

    def compute_expected(self, arguments: list[JsonValue], chosen: _Chosen) -> JsonValue:
        return self.function(*arguments, **chosen)

    def statement(self, chosen: _Chosen) -> str:
        plain = {name: _plain(value) for name, value in chosen.items()}
        words = {name: _describe_value(self.spec.choices[name], value) for name, value in chosen.items()}
        phrases = {name: word.format_map(plain) for name, word in words.items() if word is not None}
        return _in_english(self.spec.says.format_map({**plain, **phrases}).strip())

    @cached_property
    def signature(self) -> str:
        """As it is asked for: `def name(arguments) -> result`."""
        signature = inspect.signature(self.function)
        asked = [one for one in signature.parameters.values() if one.kind is not one.KEYWORD_ONLY]
        return f"def {self.name}{signature.replace(parameters=asked)}"

    def solution(self, chosen: _Chosen) -> str:
        """The reference as a program, with the parameters written into it."""
        program = copy(_parse_functions(self.function.__module__)[self.name])
        program.args = copy(program.args)
        program.args.kwonlyargs, program.args.kw_defaults = [], []
        assignments = ast.parse("\n".join(f"{name} = {value!r}" for name, value in chosen.items()))
        program.body = [*assignments.body, *program.body]
        return ast.unparse(program)


@cache
def _parse_functions(module: str) -> Mapping[str, ast.FunctionDef]:
    """The functions of a module by name. A module at once, since finding where each function ends takes much longer."""
    nodes = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def _read_families(module: ModuleType) -> list[Family]:
    """Those of a module of references, in the order of the YAML file beside it. AttributeError for one that the module
    does not have."""
    specs = read_packaged_data(Path(str(module.__file__)).with_suffix(".yaml"), TypeAdapter(dict[str, Spec]))
    return [Family(getattr(module, name), spec) for name, spec in specs.items()]


def _values(choice: str | tuple[JsonValue, ...] | _Words) -> tuple[JsonValue, ...]:
    if isinstance(choice, str):
        least, most = map(int, choice.split(".."))
        return tuple(range(least, most + 1))
    return tuple(choice)


def _in_english(statement: str) -> str:
    """Texts are written for numbers of two and more."""
    return _ONE_OF_SEVERAL.sub(r"1 \1", statement.replace("1 times in all", "once"))


def _plain(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe_value(choice: str | tuple[JsonValue, ...] | _Words, value: JsonValue) -> str | None:
    return choice[value] if isinstance(choice, dict) and isinstance(value, str | int) else None


_MODULES = (strings, lists, machines, numbers, dates, grids, formats, machines, ordering, searches)


@cache
def read_all_families() -> Mapping[str, Family]:
    """By name. Checking their specifications takes a while, and most services ask for no programs."""
    return {family.name: family for module in _MODULES for family in _read_families(module)}


@cache
def group_by_level() -> Mapping[Level, tuple[Family, ...]]:
    families = read_all_families().values()
    by_level = {level: tuple(family for family in families if family.spec.level == level) for level in MIXED}
    short = tuple(family for family in by_level["easy"] if len(family.solution({})) <= _SHORT_PROGRAM)
    return {"first": short, **by_level}


@cache
def digest_families() -> str:
    """Of all that tasks and their tests are made from. Reading the source of every function takes a while."""
    return digest(
        [[family.spec.model_dump(mode="json"), family.solution({})] for family in read_all_families().values()]
    )


# Exercises.

_EXAMPLES = 2
_CANDIDATES = 24
"""Cases from which the examples are chosen."""
TESTS = 36
"""Fewer only if there are not enough different arguments."""
_MOST_DRAWN = 180
"""Cases from which the tests are chosen."""
_MOST_DRAWN_ON = 600
"""More cases, where a task is not told apart from its neighbours yet."""
_MOST_ALIKE = 8
"""Tests with the same result, before other results are preferred."""


class CodeExercise(Frozen):
    family: str
    chosen: dict[str, FiniteJson]
    seed: int

    @property
    def definition(self) -> Family:
        return read_all_families()[self.family]


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    arguments: list[JsonValue]
    expected: JsonValue

    @property
    def key(self) -> str:
        return canonical_json(self.arguments)

    def is_right(self, value: JsonValue) -> bool:
        return is_same_json(value, self.expected)


def choose_examples(exercise: CodeExercise) -> list[ReferenceCase]:
    """The examples of the prompt, with different and informative results where possible."""
    drawn = list(islice(_draw_cases(exercise, "examples"), _CANDIDATES))
    telling = [case for case in drawn if case.expected and case.expected not in case.arguments] or drawn
    others = [case for case in telling[1:] if not is_same_json(case.expected, telling[0].expected)]
    return [telling[0], *[*others, *drawn][: _EXAMPLES - 1]]


def choose_hidden_tests(exercise: CodeExercise) -> list[ReferenceCase]:
    """Tests with different arguments, none of them an example's. Rare results are preferred, so that a constant answer
    passes few tests. Cases are added that a program for other parameters gets wrong."""
    shown = {case.key for case in choose_examples(exercise)}
    tests, spare = dict[str, ReferenceCase](), list[ReferenceCase]()
    results = Counter[str]()
    for number, case in enumerate(islice(_iterate_tests(exercise), _MOST_DRAWN)):
        always = number < len(exercise.definition.spec.edges)
        if case.key in shown or case.key in tests or (len(tests) >= TESTS and not always):
            continue
        results[canonical_json(case.expected)] += 1
        if always or results[canonical_json(case.expected)] <= _MOST_ALIKE:
            tests[case.key] = case
        else:
            spare.append(case)
    for case in spare[: max(0, TESTS - len(tests))]:
        tests.setdefault(case.key, case)
    return [*tests.values(), *_find_telling_cases(exercise, list(tests.values()), shown)]


def _find_telling_cases(
    exercise: CodeExercise, tests: Sequence[ReferenceCase], shown: Collection[str]
) -> list[ReferenceCase]:
    """Extra cases that tell the task from those with another parameter value that the tests alone do not tell apart."""
    family, added = exercise.definition, list[ReferenceCase]()
    same = [
        other
        for other in family.neighbours(exercise.chosen)
        if not any(_has_other_result(family, one, other) for one in tests)
    ]
    for case in islice(_draw_cases(exercise, "more tests"), _MOST_DRAWN_ON if same else 0):
        told_apart = [other for other in same if _has_other_result(family, case, other)]
        if told_apart and case.key not in shown:
            added.append(case)
            same = [other for other in same if other not in told_apart]
        if not same:
            break
    return added


def _has_other_result(family: Family, case: ReferenceCase, chosen: _Chosen) -> bool:
    return not is_same_json(family.compute_expected(case.arguments, chosen), case.expected)


class Test(Protocol):
    def is_right(self, value: JsonValue) -> bool: ...


def check_results(tests: Sequence[Test], returned: Sequence[CallResult]) -> list[bool]:
    """For each test whether the result is right. A missing result is wrong."""
    results = [not one.fault and test.is_right(one.value) for test, one in zip(tests, returned, strict=False)]
    return [*results, *[False] * (len(tests) - len(results))]


def is_same_json(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are the same JSON: neither `true` nor `1.0` is 1. A number too long to be written equals nothing."""
    try:
        return canonical_json(one) == canonical_json(other)
    except ValueError:
        return False


def _iterate_tests(exercise: CodeExercise) -> Iterator[ReferenceCase]:
    """The fixed edge cases, then drawn ones without end."""
    family = exercise.definition
    for edge in family.spec.edges:
        yield ReferenceCase(list(edge), family.compute_expected(list(edge), exercise.chosen))
    yield from _draw_cases(exercise, "tests")


def _draw_cases(exercise: CodeExercise, purpose: str) -> Iterator[ReferenceCase]:
    family, draws = exercise.definition, SeededRandom(f"{exercise.model_dump_json()} {purpose}")
    while True:
        arguments = family.arguments(draws, exercise.chosen)
        yield ReferenceCase(arguments, family.compute_expected(arguments, exercise.chosen))
