"""Which families are served, and what callers choose among them."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import BeforeValidator, Field, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.domain.values import Frozen, WholeNumber
from app.toolkit.math_answers.grading import LazyFunction
from app.toolkit.templates import read_packaged_data

PACKAGE: Final = "reasoning_gym"
# By name, so that the package is imported only when a task is needed: it takes long.
_ROWS: Final = "app.envs.reasoning_gym.package_rows"
MAKE_ROW: Final = LazyFunction(_ROWS, "make_row")
SCORE_ANSWER: Final = LazyFunction(_ROWS, "score_answer")
_CHECK_CONFIG: Final = LazyFunction(_ROWS, "check_config")
DIGEST_QUESTION: Final = LazyFunction(_ROWS, "digest_question")

PackageLevel = Literal["default", "easy", "medium", "hard"]


class PackageFamily(Frozen):
    category: str
    left_out: str = ""
    """Why it is not served."""
    shared: bool = False
    """It reads words or fonts when it is opened, and its rows depend on the seed alone: it is opened once."""
    held_out: Annotated[WholeNumber, Field(ge=2)] = 10
    """One question in so many is for testing. Fewer where a row takes long, since rows of the other split are drawn in
    vain."""
    malformed: tuple[str, ...] = ()
    """What its scorer raises for texts that are not in the form of an answer."""
    base: PackageLevel = "default"
    """The level of its tasks where another one is asked for than it has. Not the default where that takes long."""
    levels: tuple[PackageLevel, ...] = ()
    """Levels besides the default whose tasks are made quickly, the hardest last."""
    demand: Literal["none", "no_more_words", "same_text"] = "none"
    """What is asked of an answer besides, where the scorer pays too much. `no_more_words`: not more words and numbers
    than the right one has, which would be a list of candidates. `same_text`: the right one, white space and case
    aside."""


FAMILIES: Final[Mapping[str, PackageFamily]] = read_packaged_data(
    Path(__file__).with_name("families.yaml"), TypeAdapter(dict[str, PackageFamily])
)
SERVED: Final = tuple(name for name, family in FAMILIES.items() if not family.left_out)
CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    category: served
    for category in sorted({family.category for family in FAMILIES.values()})
    if (served := tuple(name for name in SERVED if FAMILIES[name].category == category))
}

_Weight = Annotated[WholeNumber, Field(ge=1, le=1_000)]


def _weigh_names(names: Any) -> Any:
    return dict.fromkeys(names, 1) if isinstance(names, list | tuple) and all(map(_is_text, names)) else names


def _is_text(value: object) -> bool:
    return isinstance(value, str)


class ReasoningGymParams(Frozen):
    families: Annotated[dict[str, _Weight], BeforeValidator(_weigh_names), Field(max_length=120)] = {}
    """Families or categories with their weights, `{"chain_sum": 2, "graphs": 1}`, or a list of names. A category shares
    its weight among its families. Without any, all served families are equally frequent."""
    config: Annotated[dict[str, dict[str, JsonValue]], Field(max_length=120)] = {}
    """Values for fields of a family's configuration, `{"chain_sum": {"max_terms": 4}}`. Numbers go up to the larger of
    the default and the value of the hardest level that the family has here."""
    level: PackageLevel = "default"
    """Difficulty by the package's curricula, where a family has the level; the others keep their base level."""

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        for name in self.families:
            if name not in CATEGORIES and (wrong := _find_fault_of_name(name)):
                raise _name_field(wrong, "families", name)
        for name, values in self.config.items():
            if wrong := _find_fault_of_name(name):
                raise _name_field(wrong, "config", name)
            if values and (fault := _check_values(name, self.level, values)) is not None:
                field, wrong = fault
                raise _name_field(wrong, "config", name, field)
        return self


def resolve_level(family: str, level: PackageLevel) -> PackageLevel:
    """The level that the family's tasks have."""
    return level if level in FAMILIES[family].levels else FAMILIES[family].base


def write_config(values: Mapping[str, JsonValue]) -> str:
    """The same text for the same values."""
    return json.dumps(values, sort_keys=True)


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def _check_values(name: str, level: PackageLevel, values: Mapping[str, JsonValue]) -> tuple[str, str] | None:
    """The field and what is wrong with it."""
    hardest = (FAMILIES[name].base, *FAMILIES[name].levels)[-1]
    fault = _CHECK_CONFIG(name, resolve_level(name, level), hardest, write_config(values))
    return None if fault is None else cast("tuple[str, str]", fault)


def _find_fault_of_name(name: str) -> str:
    family = FAMILIES.get(name)
    if family is None:
        return f"reasoning_gym has no family {name!r}; the categories are {', '.join(CATEGORIES)}"
    return f"{name} is left out: {family.left_out}" if family.left_out else ""


def _name_field(wrong: str, *path: str) -> ValidationError:
    detail = InitErrorDetails(
        type=PydanticCustomError("reasoning_gym", "{wrong}", {"wrong": wrong}), loc=path, input=None
    )
    return ValidationError.from_exception_data("ReasoningGymParams", [detail])
