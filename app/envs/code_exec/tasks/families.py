"""Families of tasks: a function of ours is the reference, its keyword arguments are the parameters of the family.

Beside each module of references a YAML file says, by the function's name, how hard it is, what is asked (with `{slots}`
for the parameters), what the parameters may be, what its arguments look like, and which cases are always tried.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, StrictBool, StrictInt, StrictStr, TypeAdapter

from app.domain.values import FiniteJson, Frozen
from app.envs.code_exec.tasks.shapes import Chosen, Shape
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

Interval: TypeAlias = Annotated[StrictStr, Field(pattern=r"^-?[0-9]+\.\.-?[0-9]+$")]
"""`2..9`: every whole number from the one to the other."""
Words: TypeAlias = dict[StrictBool | StrictInt | StrictStr, str]
"""What a parameter may be, each with what the statement says of it."""

_COUNTED = "bracket|character|column|desk|digit|item|minute|number|order|place|road|step"
_ONE_OF_SEVERAL = re.compile(rf"(?<![-+*] )\b1 ({_COUNTED})s\b")


class Spec(Frozen):
    level: Literal["easy", "medium", "hard"]
    says: str
    choices: dict[str, Interval | tuple[FiniteJson, ...] | Words]
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

    def combinations(self) -> Iterator[Chosen]:
        for values in product(*self.choices.values()):
            yield dict(zip(self.choices, values, strict=True))

    def neighbours(self, chosen: Chosen) -> Iterator[Chosen]:
        """The combinations that differ from this one in a single parameter."""
        for name, values in self.choices.items():
            yield from ({**chosen, name: value} for value in values if value != chosen[name])

    def choose(self, draws: SeededRandom) -> dict[str, JsonValue]:
        return {name: draws.one(values) for name, values in self.choices.items()}

    def arguments(self, draws: SeededRandom, chosen: Chosen) -> list[JsonValue]:
        return [shape.draw(draws, chosen) for shape in self.spec.inputs.values()]

    def compute_expected(self, arguments: list[JsonValue], chosen: Chosen) -> JsonValue:
        return self.function(*arguments, **chosen)

    def statement(self, chosen: Chosen) -> str:
        plain = {name: _plain(value) for name, value in chosen.items()}
        words = {name: _describe_value(self.spec.choices[name], value) for name, value in chosen.items()}
        said = {name: word.format_map(plain) for name, word in words.items() if word is not None}
        return _in_english(self.spec.says.format_map({**plain, **said}).strip())

    @cached_property
    def signature(self) -> str:
        """As it is asked for: `def name(arguments) -> result`."""
        signature = inspect.signature(self.function)
        asked = [one for one in signature.parameters.values() if one.kind is not one.KEYWORD_ONLY]
        return f"def {self.name}{signature.replace(parameters=asked)}"

    def solution(self, chosen: Chosen) -> str:
        """The reference as a program, with the parameters written into it."""
        program = copy(_parse_functions(self.function.__module__)[self.name])
        program.args = copy(program.args)
        program.args.kwonlyargs, program.args.kw_defaults = [], []
        given = ast.parse("\n".join(f"{name} = {value!r}" for name, value in chosen.items()))
        program.body = [*given.body, *program.body]
        return ast.unparse(program)


@cache
def _parse_functions(module: str) -> Mapping[str, ast.FunctionDef]:
    """The functions of a module by name. A module at once, since finding where each function ends takes much longer."""
    nodes = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def read_families(module: ModuleType) -> list[Family]:
    """Those of a module of references, in the order of the YAML file beside it. AttributeError for one that the module
    does not have."""
    specs = read_packaged_data(Path(str(module.__file__)).with_suffix(".yaml"), TypeAdapter(dict[str, Spec]))
    return [Family(getattr(module, name), spec) for name, spec in specs.items()]


def _values(choice: str | tuple[JsonValue, ...] | Words) -> tuple[JsonValue, ...]:
    if isinstance(choice, str):
        least, most = map(int, choice.split(".."))
        return tuple(range(least, most + 1))
    return tuple(choice)


def _in_english(statement: str) -> str:
    """Texts are written for numbers of two and more."""
    return _ONE_OF_SEVERAL.sub(r"1 \1", statement.replace("1 times in all", "once"))


def _plain(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe_value(choice: str | tuple[JsonValue, ...] | Words, value: JsonValue) -> str | None:
    return choice[value] if isinstance(choice, dict) and isinstance(value, str | int) else None
