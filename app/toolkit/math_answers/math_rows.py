"""Rows of mathematics data sets: a problem and its answer, or a solution that boxes it.

    problem    (or `question`) the text of the task
    answer     in LaTeX, with or without dollar signs or a box; a number will do; of several parts by `####` the last
    solution   used where there is no answer: what its last box holds; a row without one is left out
    level      optional, text or number: the label of its figures
    topic      optional (or `subject`, `type`): in the metadata

MATH, MATH-500, DeepScaleR, AIME and their like have these columns. Others of a row are ignored.
"""

import re
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.sources import leave_out
from app.toolkit.answers.number_extraction import find_boxes
from app.toolkit.math_answers.boxed_answers import MOST_CHARACTERS
from app.toolkit.math_answers.grading import GoldAnswer
from app.toolkit.math_answers.structures import detect_shape

_UNBRACED_BOX = re.compile(r"\\boxed\s+([^\s{}$\\]{1,50}?)(?=[.,;]?(?:[\s$]|$))")
"""MATH has some rows with `\\boxed 5`."""


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_as_text)]


class MathRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    problem: str = ""
    question: str = ""
    answer: Text = ""
    solution: Text = ""
    level: Text = ""
    topic: str = ""
    subject: str = ""
    type: str = ""

    @model_validator(mode="after")
    def _require_complete(self) -> Self:
        if not self.task_text.strip():
            raise ValueError("there is neither a problem nor a question")
        if not 0 < len(self.right) <= MOST_CHARACTERS:
            raise leave_out("there is neither an answer nor a box in the solution, or it is too long")
        return self

    @property
    def task_text(self) -> str:
        return self.problem or self.question

    @property
    def right(self) -> str:
        if self.answer.strip():
            return (find_boxes(self.answer, MOST_CHARACTERS) or [self.answer])[-1].rpartition("####")[2].strip()
        boxes = find_boxes(self.solution, MOST_CHARACTERS) or _UNBRACED_BOX.findall(self.solution)
        return (boxes or [""])[-1].strip()

    @property
    def gold(self) -> GoldAnswer:
        return GoldAnswer(latex=self.right, shape=detect_shape(self.right), problem=self.task_text)

    @property
    def labels(self) -> dict[str, JsonValue]:
        """Those that there are."""
        topic = self.topic or self.subject or self.type
        return {name: text for name, text in (("level", self.level), ("topic", topic)) if text}
