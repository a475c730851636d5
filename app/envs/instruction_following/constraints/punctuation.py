"""Instructions about marks and numbers: commas, question marks, brackets, stars, digits."""

import re
from functools import partial
from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import PROSE, TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText, find_bare_words
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom

_COMMAS: Final = frozenset(",،、‚⹁꓾")
_SQUARE: Final = re.compile(r"\[([^\[\]\n]+)\]")
_ROUND: Final = re.compile(r"\(([^()\n]+)\)")
_STARRED: Final = re.compile(r"(?<!\*)\*(?![\s*])([^*\n]+)\*(?!\*)")


class _PunctuationInstruction(Instruction):
    family: ClassVar[str] = "marks and numbers"


class NoCommas(_PunctuationInstruction):
    kind: Literal["no_commas"] = "no_commas"
    claims: ClassVar[frozenset[str]] = frozenset({"commas"})
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        found = sum(character in _COMMAS for character in reading.text)
        return f"{format_count(found, 'comma')} where none was asked" if found else ""

    def apply_to(self, draft: TextPlan) -> None:
        """No part of a text has one."""


class MarkTimes(_PunctuationInstruction):
    kind: Literal["mark_times"] = "mark_times"
    claims: ClassVar[frozenset[str]] = frozenset({"ends of sentences"})
    mark: str
    name: str
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        mark, name = draws.one((("?", "question mark"), ("!", "exclamation mark")))
        return cls(mark=mark, name=name, count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        found = reading.text.count(self.mark)
        return f"{format_count(found, self.name)} where exactly {self.count} were asked" if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.marks[self.mark] = self.count


class Placeholders(_PunctuationInstruction):
    kind: Literal["placeholders"] = "placeholders"
    claims: ClassVar[frozenset[str]] = frozenset({"square brackets"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(set(_find_enclosed(_SQUARE, reading)))
        wrong = f"{format_count(found, 'different placeholder')} where at least {self.count} were asked"
        return wrong if found < self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [partial("[{} {}]".format, letter) for letter in "abcdef"[: self.count]]


class Highlights(_PunctuationInstruction):
    kind: Literal["highlights"] = "highlights"
    claims: ClassVar[frozenset[str]] = frozenset({"stars"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(_find_enclosed(_STARRED, reading))
        wrong = f"{format_count(found, 'highlighted part')} where exactly {self.count} were asked"
        return wrong if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [lambda word: f"*{word}*"] * self.count


class Brackets(_PunctuationInstruction):
    kind: Literal["brackets"] = "brackets"
    claims: ClassVar[frozenset[str]] = frozenset({"round brackets"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(3))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(_find_enclosed(_ROUND, reading))
        wrong = f"{format_count(found, 'remark')} in round brackets where exactly {self.count} were asked"
        return wrong if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [lambda word: f"({word})"] * self.count


class NumberWords(_PunctuationInstruction):
    kind: Literal["number_words"] = "number_words"
    claims: ClassVar[frozenset[str]] = frozenset({"digits"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(3))

    def find_fault(self, reading: ParsedText) -> str:
        digits = sum(map(str.isdigit, reading.text))
        if digits:
            return f"{format_count(digits, 'digit')} where none was asked"
        found = len(set(reading.bare).intersection(PROSE.numbers))
        wrong = f"{format_count(found, 'different number')} in words where at least {self.count} were asked"
        return wrong if found < self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        usable = [word for word in PROSE.numbers if draft.permits(word)]
        draft.said += _write_counting_clauses(usable[: self.count])


class Digits(_PunctuationInstruction):
    kind: Literal["digits"] = "digits"
    claims: ClassVar[frozenset[str]] = frozenset({"digits"})
    bars: ClassVar[frozenset[str]] = frozenset({"list"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        found = len({word for word in reading.bare if word.isdecimal()})
        wrong = f"{format_count(found, 'different number')} in digits where exactly {self.count} were asked"
        return wrong if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.said += _write_counting_clauses([str(12 + 3 * place) for place in range(self.count)])


def _write_counting_clauses(numbers: list[str]) -> list[str]:
    return [clause.format(word=number) for clause, number in zip(PROSE.counted, numbers, strict=False)]


def _find_enclosed(form: re.Pattern[str], reading: ParsedText) -> list[str]:
    """What stands between the marks, where it has words."""
    return [inside for inside in form.findall(reading.folded) if find_bare_words(inside)]
