"""Instructions about which words occur, and how often."""

from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import PROSE, TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom


class _KeywordInstruction(Instruction):
    family: ClassVar[str] = "keywords"


class IncludedWords(_KeywordInstruction):
    kind: Literal["included_words"] = "included_words"
    claims: ClassVar[frozenset[str]] = frozenset({"keywords"})
    words: tuple[str, ...]

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(words=tuple(_draw_keywords(draws, request, 2 + draws.below(4))))

    def find_fault(self, reading: ParsedText) -> str:
        missing = set(self.words).difference(reading.bare)
        return f"{len(missing)} of {len(self.words)} words that must occur do not" if missing else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.said += _write_clauses(self.words, 0)


class WordTimes(_KeywordInstruction):
    kind: Literal["word_times"] = "word_times"
    claims: ClassVar[frozenset[str]] = frozenset({"keywords"})
    word: str
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=_draw_keywords(draws, request, 1)[0], count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        found = reading.bare.count(self.word)
        wrong = f'"{self.word}" {format_count(found, "time")} where exactly {self.count} were asked'
        return wrong if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.said += _write_clauses((self.word,) * self.count, len(self.word))


class WordsInOrder(_KeywordInstruction):
    kind: Literal["words_in_order"] = "words_in_order"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"keywords"})
    words: tuple[str, ...]

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(words=tuple(_draw_keywords(draws, request, 3 + draws.below(3))))

    def find_fault(self, reading: ParsedText) -> str:
        wanted = set(self.words)
        found = tuple(word for word in reading.bare if word in wanted)
        if set(found) != wanted:
            return f"{len(wanted.difference(found))} of {len(wanted)} words that must occur do not"
        if len(found) > len(wanted):
            return "a word that must occur once occurs more often"
        return "" if found == self.words else "the words that must occur are in another order"

    def apply_to(self, draft: TextPlan) -> None:
        draft.said += _write_clauses(self.words, 1)


class ForbiddenWords(_KeywordInstruction):
    kind: Literal["forbidden_words"] = "forbidden_words"
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})
    words: tuple[str, ...]

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(words=tuple(draws.some(PROSE.forbidden, 2 + draws.below(4))))

    def find_fault(self, reading: ParsedText) -> str:
        banned = set(self.words)
        found = sorted({word for word in reading.bare if word in banned})
        return f"words that must not occur do: {', '.join(found)}" if found else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.forbidden |= set(self.words)


class RationedWords(_KeywordInstruction):
    kind: Literal["rationed_words"] = "rationed_words"
    hard: ClassVar[bool] = True
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})
    word: str
    most: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=draws.one(("the", "a", "and", "of", "it", "was", "in", "to")), most=2 + draws.below(2))

    def find_fault(self, reading: ParsedText) -> str:
        found = reading.bare.count(self.word)
        wrong = f'"{self.word}" {format_count(found, "time")} where at most {self.most} were asked'
        return wrong if found > self.most else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.forbidden.add(self.word)


def _draw_keywords(draws: SeededRandom, request: WritingRequest, count: int) -> list[str]:
    return draws.some([word for word in PROSE.keywords if word not in {request.thing, request.place}], count)


def _write_clauses(words: tuple[str, ...], shift: int) -> list[str]:
    """One for each word, all different."""
    templates = [*PROSE.about[shift % len(PROSE.about) :], *PROSE.about]
    return [template.format(word=word) for template, word in zip(templates, words, strict=False)]
