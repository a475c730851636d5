"""A run, or some steps of it, as commands take it: `my-run@100-120`."""

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.runs import StepRange
from app.domain.values import Name

_RUN: Final = TypeAdapter[str](Name)


@dataclass(frozen=True)
class RunSelector:
    run: str
    steps: StepRange | None

    @classmethod
    def parse(cls, text: str) -> "RunSelector":
        """`my-run`, `my-run@120` or `my-run@100-120`. ValueError for anything else."""
        run, separator, steps = text.partition("@")
        try:
            return cls(_RUN.validate_python(run), StepRange.parse(steps) if separator else None)
        except ValidationError as error:
            raise ValueError(f"{text[:100]!r} is no run, such as my-run, my-run@120 or my-run@100-120") from error

    @property
    def name(self) -> str:
        return self.run if self.steps is None else f"{self.run}, {self.steps}"
