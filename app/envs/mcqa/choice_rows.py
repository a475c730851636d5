"""Rows of data sets of multiple choice: options in order with the place of the right one, or the right one apart.

    MMLU            question, choices (texts), answer (0 to 3, or a letter), subject
    MMLU-Pro        question, options (up to 10 texts), answer (A to J), answer_index, category
    ARC             question, choices (the lists `text` and `label`), answerKey (one of the labels)
    GPQA            Question, Correct Answer, Incorrect Answer 1 to 3: in an order that a hash of the row chooses

A row is left out where it has no answer, fewer than two options, or two that are the same. No error quotes a row: the
terms of some data sets forbid to show them.
"""

import re
from typing import Annotated, Final, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from app.domain.sources import leave_out
from app.toolkit.answers.choices import ChoiceOptions, ListedOptions, OptionText, build_options
from app.toolkit.seeded import SeededRandom

_BLANKS: Final = re.compile(r"[ \t]{2,}")


class ChoiceRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1)]
    listed: Annotated[ListedOptions, Field(validation_alias=AliasChoices("choices", "options"))]
    answer: Annotated[str | int, Field(validation_alias=AliasChoices("answer", "answerKey"))] = ""
    answer_index: int | None = None
    """Where there is one beside a letter, both must name the same option."""
    topic: Annotated[str, Field(validation_alias=AliasChoices("topic", "subject", "category"))] = ""

    @model_validator(mode="after")
    def _require_right_option(self) -> Self:
        right = self.options
        if self.answer_index is not None and self.listed.choose(self.answer_index) != right:
            raise leave_out("`answer` and `answer_index` name different options")
        return self

    @property
    def options(self) -> ChoiceOptions:
        return self.listed.choose(self.answer)


class UnorderedChoiceRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1, validation_alias="Question")]
    right: Annotated[OptionText, Field(validation_alias="Correct Answer")]
    wrong_1: Annotated[OptionText, Field(validation_alias="Incorrect Answer 1")]
    wrong_2: Annotated[OptionText, Field(validation_alias="Incorrect Answer 2")] = None
    wrong_3: Annotated[OptionText, Field(validation_alias="Incorrect Answer 3")] = None
    topic: Annotated[str, Field(validation_alias="High-level domain")] = ""

    @model_validator(mode="after")
    def _require_right_option(self) -> Self:
        if self.right is None:
            raise leave_out("there is no answer")
        build_options(self._texts, 0)
        return self

    @property
    def options(self) -> ChoiceOptions:
        return shuffle_options(self.question, build_options(self._texts, 0))

    @property
    def _texts(self) -> list[str]:
        """The right one first, with single blanks."""
        texts = (self.right, self.wrong_1, self.wrong_2, self.wrong_3)
        return [_BLANKS.sub(" ", text) for text in texts if text is not None]


def shuffle_options(question: str, options: ChoiceOptions) -> ChoiceOptions:
    """In an order that depends on nothing but what the row says."""
    return options.shuffle(SeededRandom("\n".join(("options", question, *options.texts))))
