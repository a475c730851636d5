"""Stories of arithmetic word problems: a text with slots, the numbers in them, and the steps that solve it."""

from functools import cached_property
from string import Formatter
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.domain.values import Frozen, Name

Formula = Annotated[str, Field(pattern=r"^\w+ = \w+((?: [-+] \w+)+|(?: [*/] \w+)+)$")]
"""Evaluated from left to right; sums and products are never mixed, so there is only one reading."""

Range = Annotated[tuple[int, ...], Field(min_length=2, max_length=3)]
"""Lowest, highest, and the step between."""


class SolutionStep(Frozen):
    """One line of the worked solution: what is found, and the formula that finds it."""

    says: str
    does: Formula


class Story(Frozen):
    name: Name
    numbers: dict[str, Range]
    words: dict[str, tuple[str, ...]] = {}
    given: tuple[Formula, ...] = ()
    text: str
    steps: Annotated[tuple[SolutionStep, ...], Field(min_length=2)]

    @cached_property
    def slots(self) -> frozenset[str]:
        """Names of what stands in the text."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.text) if name)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        shown = [*"ABC", *self.words, *self.numbers, *(formula.split()[0] for formula in self.given)]
        found = [step.does.split()[0] for step in self.steps]
        if len({*shown, *found}) < len(shown) + len(found):
            raise ValueError(f"{self.name} uses a name twice")
        if not self.slots <= {*shown}:
            raise ValueError(f"the text of {self.name} uses a number that only the solution computes")
        if found[-1] != "answer":
            raise ValueError(f"the last step of {self.name} must compute `answer`")
        return self
