"""Instructions about upper and lower case."""

from itertools import count
from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.drafts import Draft
from app.envs.instruction_following.constraints.instruction import Instruction, counted
from app.envs.instruction_following.constraints.reading import Reading, words_of
from app.envs.instruction_following.constraints.requests import Request
from app.toolkit.seeded import Draws


class _Case(Instruction):
    family: ClassVar[str] = "case"
    claims: ClassVar[frozenset[str]] = frozenset({"case"})


class LowerCase(_Case):
    kind: Literal["lower_case"] = "lower_case"

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        found = sum(map(str.isupper, reading.text))
        return f"{counted(found, 'capital letter')} where none was asked" if found else ""

    def shape(self, draft: Draft) -> None:
        draft.finishes.append(str.lower)


class UpperCase(_Case):
    kind: Literal["upper_case"] = "upper_case"

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        found = sum(map(str.islower, reading.text))
        return f"{counted(found, 'small letter')} where none was asked" if found else ""

    def shape(self, draft: Draft) -> None:
        draft.finishes.append(str.upper)


class CapitalWords(_Case):
    kind: Literal["capital_words"] = "capital_words"
    number: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(number=2 + draws.below(5))

    def fault(self, reading: Reading) -> str:
        found = sum(_letters(word) > 1 and word.isupper() for word in reading.words)
        wrong = f"{counted(found, 'word')} in capital letters where exactly {self.number} were asked"
        return wrong if found != self.number else ""

    def shape(self, draft: Draft) -> None:
        draft.wraps += [_capital] * self.number


class AlternatingCase(_Case):
    kind: Literal["alternating_case"] = "alternating_case"
    hard: ClassVar[bool] = True

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        with_letters = [word for word in reading.words if _letters(word)]
        turns = (word.isupper() if place % 2 else word.islower() for place, word in enumerate(with_letters, 1))
        wrong = next((place for place, right in enumerate(turns, 1) if not right), 0)
        return f"word {wrong} is not in the case whose turn it is" if wrong else ""

    def shape(self, draft: Draft) -> None:
        draft.finishes.append(_alternated)


def _letters(word: str) -> int:
    return sum(map(str.isalpha, word))


def _capital(word: str) -> str:
    """Of one letter there would be nothing to see."""
    return word.upper() if len(word) > 1 else "ALL"


def _alternated(text: str) -> str:
    turn = count()
    lines = text.split("\n")
    return "\n".join(" ".join(_turned(word, turn) for word in line.split(" ")) for line in lines)


def _turned(word: str, turn: "count[int]") -> str:
    if not words_of(word) or not _letters(word):
        return word
    return word.lower() if next(turn) % 2 else word.upper()
