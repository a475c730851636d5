"""Instructions about upper and lower case."""

from itertools import count
from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText, split_words
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom


class _CaseInstruction(Instruction):
    family: ClassVar[str] = "case"
    claims: ClassVar[frozenset[str]] = frozenset({"case"})


class LowerCase(_CaseInstruction):
    kind: Literal["lower_case"] = "lower_case"

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        found = sum(map(str.isupper, reading.text))
        return f"{format_count(found, 'capital letter')} where none was asked" if found else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(str.lower)


class UpperCase(_CaseInstruction):
    kind: Literal["upper_case"] = "upper_case"

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        found = sum(map(str.islower, reading.text))
        return f"{format_count(found, 'small letter')} where none was asked" if found else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(str.upper)


class CapitalWords(_CaseInstruction):
    kind: Literal["capital_words"] = "capital_words"
    number: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(number=2 + draws.below(5))

    def find_fault(self, reading: ParsedText) -> str:
        found = count_capital_words(reading)
        wrong = f"{format_count(found, 'word')} in capital letters where exactly {self.number} were asked"
        return wrong if found != self.number else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [_write_capitals] * self.number


class AlternatingCase(_CaseInstruction):
    kind: Literal["alternating_case"] = "alternating_case"
    hard: ClassVar[bool] = True

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        with_letters = [word for word in reading.words if _count_letters(word)]
        turns = (word.isupper() if place % 2 else word.islower() for place, word in enumerate(with_letters, 1))
        wrong = next((place for place, right in enumerate(turns, 1) if not right), 0)
        return f"word {wrong} is not in the case whose turn it is" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(_alternate_case_by_word)


def count_capital_words(reading: ParsedText) -> int:
    return sum(_count_letters(word) > 1 and word.isupper() for word in reading.words)


def _count_letters(word: str) -> int:
    return sum(map(str.isalpha, word))


def _write_capitals(word: str) -> str:
    """Of one letter there would be nothing to see."""
    return word.upper() if len(word) > 1 else "ALL"


def _alternate_case_by_word(text: str) -> str:
    turn = count()
    lines = text.split("\n")
    return "\n".join(" ".join(_alternate_word(word, turn) for word in line.split(" ")) for line in lines)


def _alternate_word(word: str, turn: "count[int]") -> str:
    if not split_words(word) or not _count_letters(word):
        return word
    return word.lower() if next(turn) % 2 else word.upper()
