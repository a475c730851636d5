"""Rows of mathematics data sets: a problem and its answer, or a solution that boxes it.

    problem    (or `question`) the text of the task
    answer     in LaTeX, with or without dollar signs; a number will do
    solution   used where there is no answer: what its last box holds
    level      optional, text or number: the label of its figures
    topic      optional (or `subject`, `type`): in the metadata

MATH, MATH-500, DeepScaleR, AIME and their like have these columns. Others of a row are ignored.
"""

from typing import Annotated, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from app.grading.numbers import boxes
from app.math_answers.checking import Gold
from app.math_answers.committing import MOST_CHARACTERS
from app.math_answers.structures import shape_of


class MathRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    problem: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("problem", "question"))]
    answer: str = ""
    solution: str = ""
    level: str = ""
    topic: Annotated[str, Field(validation_alias=AliasChoices("topic", "subject", "type"))] = ""

    @field_validator("answer", "solution", "level", "topic", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if value is None:
            return ""
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _commits(self) -> Self:
        if not 0 < len(self.right) <= MOST_CHARACTERS:
            raise ValueError("there is neither an answer nor a box at the end of the solution")
        return self

    @property
    def right(self) -> str:
        found = boxes(self.answer, MOST_CHARACTERS) or [self.answer]
        return (found if self.answer.strip() else boxes(self.solution, MOST_CHARACTERS) or [""])[-1].strip()

    @property
    def gold(self) -> Gold:
        return Gold(latex=self.right, shape=shape_of(self.right), problem=self.problem)

    @property
    def labels(self) -> dict[str, JsonValue]:
        """Those that there are."""
        return {name: text for name, text in (("level", self.level), ("topic", self.topic)) if text}
