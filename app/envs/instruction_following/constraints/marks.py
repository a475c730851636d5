"""Instructions about marks and numbers: commas, question marks, brackets, stars, digits."""

import re
from functools import partial
from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.constraints.drafts import PROSE, Draft
from app.envs.instruction_following.constraints.instruction import Instruction, counted
from app.envs.instruction_following.constraints.reading import Reading, bare_words
from app.envs.instruction_following.constraints.requests import Request
from app.toolkit.seeded import Draws

_COMMAS: Final = frozenset(",،、‚⹁꓾")
_SQUARE: Final = re.compile(r"\[([^\[\]\n]+)\]")
_ROUND: Final = re.compile(r"\(([^()\n]+)\)")
_STARRED: Final = re.compile(r"(?<!\*)\*(?![\s*])([^*\n]+)\*(?!\*)")


class _Marks(Instruction):
    family: ClassVar[str] = "marks and numbers"


class NoCommas(_Marks):
    kind: Literal["no_commas"] = "no_commas"
    claims: ClassVar[frozenset[str]] = frozenset({"commas"})
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        found = sum(character in _COMMAS for character in reading.text)
        return f"{counted(found, 'comma')} where none was asked" if found else ""

    def shape(self, draft: Draft) -> None:
        """No part of a text has one."""


class MarkTimes(_Marks):
    kind: Literal["mark_times"] = "mark_times"
    claims: ClassVar[frozenset[str]] = frozenset({"ends of sentences"})
    mark: str
    name: str
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        mark, name = draws.one((("?", "question mark"), ("!", "exclamation mark")))
        return cls(mark=mark, name=name, count=2 + draws.below(4))

    def fault(self, reading: Reading) -> str:
        found = reading.text.count(self.mark)
        return f"{counted(found, self.name)} where exactly {self.count} were asked" if found != self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.marks[self.mark] = self.count


class Placeholders(_Marks):
    kind: Literal["placeholders"] = "placeholders"
    claims: ClassVar[frozenset[str]] = frozenset({"square brackets"})
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(4))

    def fault(self, reading: Reading) -> str:
        found = len(set(_insides(_SQUARE, reading)))
        wrong = f"{counted(found, 'different placeholder')} where at least {self.count} were asked"
        return wrong if found < self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.wraps += [partial("[{} {}]".format, letter) for letter in "abcdef"[: self.count]]


class Highlights(_Marks):
    kind: Literal["highlights"] = "highlights"
    claims: ClassVar[frozenset[str]] = frozenset({"stars"})
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(4))

    def fault(self, reading: Reading) -> str:
        found = len(_insides(_STARRED, reading))
        wrong = f"{counted(found, 'highlighted part')} where exactly {self.count} were asked"
        return wrong if found != self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.wraps += [lambda word: f"*{word}*"] * self.count


class Brackets(_Marks):
    kind: Literal["brackets"] = "brackets"
    claims: ClassVar[frozenset[str]] = frozenset({"round brackets"})
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(3))

    def fault(self, reading: Reading) -> str:
        found = len(_insides(_ROUND, reading))
        wrong = f"{counted(found, 'remark')} in round brackets where exactly {self.count} were asked"
        return wrong if found != self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.wraps += [lambda word: f"({word})"] * self.count


class NumberWords(_Marks):
    kind: Literal["number_words"] = "number_words"
    claims: ClassVar[frozenset[str]] = frozenset({"digits"})
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(3))

    def fault(self, reading: Reading) -> str:
        digits = sum(map(str.isdigit, reading.text))
        if digits:
            return f"{counted(digits, 'digit')} where none was asked"
        found = len(set(reading.bare).intersection(PROSE.numbers))
        wrong = f"{counted(found, 'different number')} in words where at least {self.count} were asked"
        return wrong if found < self.count else ""

    def shape(self, draft: Draft) -> None:
        usable = [word for word in PROSE.numbers if draft.permits(word)]
        draft.said += _counting(usable[: self.count])


class Digits(_Marks):
    kind: Literal["digits"] = "digits"
    claims: ClassVar[frozenset[str]] = frozenset({"digits"})
    bars: ClassVar[frozenset[str]] = frozenset({"list"})
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(4))

    def fault(self, reading: Reading) -> str:
        found = len({word for word in reading.bare if word.isdecimal()})
        wrong = f"{counted(found, 'different number')} in digits where exactly {self.count} were asked"
        return wrong if found != self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.said += _counting([str(12 + 3 * place) for place in range(self.count)])


def _counting(numbers: list[str]) -> list[str]:
    return [clause.format(word=number) for clause, number in zip(PROSE.counted, numbers, strict=False)]


def _insides(form: re.Pattern[str], reading: Reading) -> list[str]:
    """What stands between the marks, where it has words."""
    return [inside for inside in form.findall(reading.folded) if bare_words(inside)]
