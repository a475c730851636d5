"""What is right, by kind: how a reply is graded, what is said of it in the prompt, and a right reply.

exact     one of several texts; case and white space aside
number    a number, within a margin
math      an expression in a box, as the environment `math` grades it
choice    the letter of one option
set       the same texts in any order, none of them twice; case and white space aside
regex     a text that a pattern matches as a whole
json      a JSON value that is valid by a schema, or the one value that is right
"""

import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from app.domain.scores import Score
from app.domain.values import Frozen
from app.toolkit.answers.choices import ChoiceOptions, find_choice_fault
from app.toolkit.answers.committed import grade_committed
from app.toolkit.answers.number_extraction import grade_number
from app.toolkit.json_answers import find_fault, find_validity_fault
from app.toolkit.math_answers.grading import GoldAnswer
from app.toolkit.safe_regex import compile_pattern

Separator = Literal[",", ";", "\n"]
SEPARATORS: Final[Mapping[Separator, str]] = {
    ",": "commas",
    ";": "semicolons",
    "\n": "line breaks, with one to a line",
}
MOST_MATCHED: Final = 1_000
"""Characters of an answer that a pattern is tried on."""
OTHER: Final = "it is another answer"


def fold_text(text: str) -> str:
    """In one case, without white space around it, with single blanks within."""
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())


class AnswerKey(Frozen, ABC):
    @property
    def slots(self) -> Mapping[str, str]:
        """Values for the words that say in the prompt how to commit."""
        return {}

    @property
    @abstractmethod
    def gold(self) -> str | None:
        """A right reply, if one is known."""

    def grade(self, reply: str) -> Score:
        return grade_committed(reply, self.find_fault)

    def find_fault(self, answer: str) -> str:
        """What is wrong with a committed answer, in words that do not reveal the right one; empty for a right one."""
        raise NotImplementedError


class ExactAnswerKey(AnswerKey):
    kind: Literal["exact"] = "exact"
    accepted: Annotated[tuple[str, ...], Field(min_length=1)]

    @property
    def gold(self) -> str:
        return _tag(self.accepted[0])

    def find_fault(self, answer: str) -> str:
        return "" if fold_text(answer) in map(fold_text, self.accepted) else OTHER


class NumberAnswerKey(AnswerKey):
    kind: Literal["number"] = "number"
    value: str
    """A fraction, like `margin`."""
    margin: str = "0"

    @property
    def gold(self) -> str:
        return f"#### {self.value}"

    def grade(self, reply: str) -> Score:
        return grade_number(reply, Fraction(self.value), Fraction(self.margin))


class MathAnswerKey(AnswerKey):
    """`app.toolkit.math_answers.boxed_scoring` grades it, since algebra takes a worker."""

    kind: Literal["math"] = "math"
    right: GoldAnswer

    @property
    def gold(self) -> str:
        return f"\\boxed{{{self.right.latex}}}"


class ChoiceAnswerKey(AnswerKey):
    kind: Literal["choice"] = "choice"
    options: ChoiceOptions

    @property
    def slots(self) -> Mapping[str, str]:
        return {"options": self.options.listed}

    @property
    def gold(self) -> str:
        return _tag(self.options.letter)

    def find_fault(self, answer: str) -> str:
        return find_choice_fault(answer, self.options.letter)


class SetAnswerKey(AnswerKey):
    kind: Literal["set"] = "set"
    items: Annotated[tuple[str, ...], Field(min_length=1)]
    separator: Separator = ","

    @property
    def slots(self) -> Mapping[str, str]:
        return {"separator": SEPARATORS[self.separator]}

    @property
    def gold(self) -> str:
        between = self.separator if self.separator == "\n" else f"{self.separator} "
        return _tag(between.join(self.items))

    def find_fault(self, answer: str) -> str:
        said = sorted(map(fold_text, answer.split(self.separator)))
        if "" in said:
            return "a part of it is empty"
        return "" if said == sorted(map(fold_text, self.items)) else OTHER


class PatternAnswerKey(AnswerKey):
    kind: Literal["regex"] = "regex"
    pattern: str
    example: str | None = None

    @property
    def gold(self) -> str | None:
        return None if self.example is None else _tag(self.example)

    def find_fault(self, answer: str) -> str:
        if len(answer) > MOST_MATCHED:
            return f"it has more than {MOST_MATCHED:,} characters"
        try:
            return "" if _compile_once(self.pattern).matches(answer) else "it does not have the form that is asked for"
        except UnicodeEncodeError:
            return "it holds what is no text"


class JsonAnswerKey(AnswerKey):
    kind: Literal["json"] = "json"
    form: dict[str, JsonValue]
    """The schema."""
    right: tuple[JsonValue, ...] = ()
    """The only right value; without it every valid one is right."""
    example: tuple[JsonValue, ...] = ()
    """A valid value, where one is known."""

    @property
    def slots(self) -> Mapping[str, str]:
        return {"schema": json.dumps(self.form, ensure_ascii=False)}

    @property
    def gold(self) -> str | None:
        known = self.right or self.example
        return _tag(json.dumps(known[0], ensure_ascii=False)) if known else None

    def find_fault(self, answer: str) -> str:
        if self.right:
            return find_fault(answer, self.form, self.right[0])
        return find_validity_fault(answer, self.form)


AnyAnswerKey = Annotated[
    ExactAnswerKey
    | NumberAnswerKey
    | MathAnswerKey
    | ChoiceAnswerKey
    | SetAnswerKey
    | PatternAnswerKey
    | JsonAnswerKey,
    Field(discriminator="kind"),
]


_compile_once = lru_cache(maxsize=1024)(compile_pattern)


def _tag(answer: str) -> str:
    return f"<answer>{answer}</answer>"
