"""Instructions about length: words and sentences."""

from itertools import pairwise
from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText, split_words
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom

ROOM = 25
"""How many words a limit lies above the minimum of every reply."""


class _LengthInstruction(Instruction):
    family: ClassVar[str] = "length"


class WordsAtLeast(_LengthInstruction):
    kind: Literal["words_at_least"] = "words_at_least"
    claims: ClassVar[frozenset[str]] = frozenset({"words"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=request.least + ROOM + 5 * draws.below(18))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.words)
        return f"{format_count(found, 'word')} where at least {self.count} were asked" if found < self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.words = (self.count, self.count + 20)


class WordsAtMost(_LengthInstruction):
    kind: Literal["words_at_most"] = "words_at_most"
    claims: ClassVar[frozenset[str]] = frozenset({"words"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=request.least + ROOM + draws.below(30))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.words)
        return f"{format_count(found, 'word')} where at most {self.count} were asked" if found > self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.words = (self.count - 10, self.count)


class WordsBetween(_LengthInstruction):
    kind: Literal["words_between"] = "words_between"
    claims: ClassVar[frozenset[str]] = frozenset({"words"})
    low: int
    high: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        low = request.least + ROOM + draws.below(60)
        return cls(low=low, high=low + 5 + draws.below(16))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.words)
        wrong = not self.low <= found <= self.high
        return f"{format_count(found, 'word')} where {self.low} to {self.high} were asked" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.words = (self.low, self.high)


class WordsExactly(_LengthInstruction):
    kind: Literal["words_exactly"] = "words_exactly"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"words"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=request.least + ROOM + draws.below(40))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.words)
        return f"{format_count(found, 'word')} where exactly {self.count} were asked" if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.words = (self.count, self.count)


class SentencesExactly(_LengthInstruction):
    kind: Literal["sentences_exactly"] = "sentences_exactly"
    claims: ClassVar[frozenset[str]] = frozenset({"sentences"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=request.least // 8 + draws.below(7))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.sentences)
        return f"{format_count(found, 'sentence')} where exactly {self.count} were asked" if found != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.sentences = (self.count, self.count)


class SentencesAtLeast(_LengthInstruction):
    kind: Literal["sentences_at_least"] = "sentences_at_least"
    claims: ClassVar[frozenset[str]] = frozenset({"sentences"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=request.least // 8 + draws.below(9))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.sentences)
        return f"{format_count(found, 'sentence')} where at least {self.count} were asked" if found < self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.sentences = (self.count, draft.sentences[1])


class ShortSentences(_LengthInstruction):
    kind: Literal["short_sentences"] = "short_sentences"
    claims: ClassVar[frozenset[str]] = frozenset({"sentence length"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=8 + draws.below(7))

    def find_fault(self, reading: ParsedText) -> str:
        longest = max((len(split_words(sentence)) for sentence in reading.sentences), default=0)
        return f"a sentence of {longest} words where at most {self.count} were asked" if longest > self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.longest_sentence = self.count


class RisingSentences(_LengthInstruction):
    kind: Literal["rising_sentences"] = "rising_sentences"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"sentence length", "sentences"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks", "words", "phrase", "groups"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=5 + draws.below(2))

    def find_fault(self, reading: ParsedText) -> str:
        lengths = [len(split_words(sentence)) for sentence in reading.sentences]
        if len(lengths) < self.count:
            return f"{format_count(len(lengths), 'sentence')} where at least {self.count} were asked"
        at = next((place for place, (one, next_) in enumerate(pairwise(lengths), 2) if next_ <= one), 0)
        return f"sentence {at} is no longer than the one before it" if at else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.sentences = (self.count, self.count)
        draft.rising = True
