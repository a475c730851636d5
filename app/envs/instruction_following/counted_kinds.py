"""Kinds of instructions that count: length, letters, case, words, marks and numbers."""

import re
from functools import partial
from itertools import count, pairwise
from string import ascii_lowercase
from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.instructions import (
    PROSE,
    Asked,
    CountInstruction,
    Instruction,
    ParsedText,
    TextPlan,
    WritingRequest,
    find_bare_words,
    find_count_fault,
    format_count,
    parse_text,
    split_words,
)
from app.toolkit.seeded import SeededRandom

_ROOM = 25
"""How many words a limit lies above the minimum of every reply."""


# Words and sentences.


class _WordInstruction(CountInstruction):
    family: ClassVar[str] = "length"
    claims: ClassVar[frozenset[str]] = frozenset({"words"})
    noun: ClassVar[str] = "word"
    step: ClassVar[int] = 1
    numbers: ClassVar[int]
    """How many limits can be drawn, each `step` above the one before it."""
    written: ClassVar[tuple[int, int]] = (0, 0)
    """Of the gold text: words beyond the limit, at least and at most."""

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls.model_validate({"count": request.least + _ROOM + cls.step * draws.below(cls.numbers)})

    def count_in(self, reading: ParsedText) -> int:
        return len(reading.words)

    def apply_to(self, draft: TextPlan) -> None:
        draft.words = (self.count + self.written[0], self.count + self.written[1])


class WordsAtLeast(_WordInstruction):
    kind: Literal["words_at_least"] = "words_at_least"
    asked: ClassVar[Asked] = "at least"
    step: ClassVar[int] = 5
    numbers: ClassVar[int] = 18
    written: ClassVar[tuple[int, int]] = (0, 20)


class WordsAtMost(_WordInstruction):
    kind: Literal["words_at_most"] = "words_at_most"
    asked: ClassVar[Asked] = "at most"
    numbers: ClassVar[int] = 30
    written: ClassVar[tuple[int, int]] = (-10, 0)


class WordsExactly(_WordInstruction):
    kind: Literal["words_exactly"] = "words_exactly"
    hard: ClassVar[bool] = True
    numbers: ClassVar[int] = 40


class WordsBetween(Instruction):
    kind: Literal["words_between"] = "words_between"
    family: ClassVar[str] = "length"
    claims: ClassVar[frozenset[str]] = frozenset({"words"})
    low: int
    high: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        low = request.least + _ROOM + draws.below(60)
        return cls(low=low, high=low + 5 + draws.below(16))

    def find_fault(self, reading: ParsedText) -> str:
        count = len(reading.words)
        wrong = not self.low <= count <= self.high
        return f"{format_count(count, 'word')} where {self.low} to {self.high} were asked" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.words = (self.low, self.high)


class _SentenceInstruction(CountInstruction):
    family: ClassVar[str] = "length"
    claims: ClassVar[frozenset[str]] = frozenset({"sentences"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})
    noun: ClassVar[str] = "sentence"
    numbers: ClassVar[int]

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls.model_validate({"count": request.least // 8 + draws.below(cls.numbers)})

    def count_in(self, reading: ParsedText) -> int:
        return len(reading.sentences)

    def apply_to(self, draft: TextPlan) -> None:
        draft.sentences = (self.count, self.count if self.asked == "exactly" else draft.sentences[1])


class SentencesExactly(_SentenceInstruction):
    kind: Literal["sentences_exactly"] = "sentences_exactly"
    numbers: ClassVar[int] = 7


class SentencesAtLeast(_SentenceInstruction):
    kind: Literal["sentences_at_least"] = "sentences_at_least"
    asked: ClassVar[Asked] = "at least"
    numbers: ClassVar[int] = 9


class _SentenceLengthInstruction(Instruction):
    family: ClassVar[str] = "length"


class ShortSentences(_SentenceLengthInstruction):
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


class RisingSentences(_SentenceLengthInstruction):
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
        at = next((position for position, (one, next_) in enumerate(pairwise(lengths), 2) if next_ <= one), 0)
        return f"sentence {at} is no longer than the one before it" if at else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.sentences = (self.count, self.count)
        draft.rising = True


# Letters: forbidden ones, frequent ones, and the first letters of sentences.


class _LetterInstruction(Instruction):
    family: ClassVar[str] = "letters"


class NoLetter(_LetterInstruction):
    kind: Literal["no_letter"] = "no_letter"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"letter"})
    bars: ClassVar[frozenset[str]] = frozenset({"repeat", "json"})
    letter: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        left = [letter for letter in "bcdfghjklmpquvwxyz" if letter not in request.thing + request.place]
        return cls(letter=draws.one(left))

    def find_fault(self, reading: ParsedText) -> str:
        count = reading.folded.count(self.letter)
        return f"the letter {self.letter} occurs {format_count(count, 'time')}" if count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.avoided.add(self.letter)


class LetterAtLeast(_LetterInstruction):
    kind: Literal["letter_at_least"] = "letter_at_least"
    claims: ClassVar[frozenset[str]] = frozenset({"letter"})
    letter: str
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(letter=draws.one("bfgkmpvw"), count=5 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        count = reading.folded.count(self.letter)
        return find_count_fault(
            count, f"the letter {self.letter} {format_count(count, 'time')}", "at least", self.count
        )

    def apply_to(self, draft: TextPlan) -> None:
        draft.favoured = self.letter


class ShortWords(_LetterInstruction):
    kind: Literal["short_words"] = "short_words"
    hard: ClassVar[bool] = True
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})
    letters: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(letters=max(len(request.thing), len(request.place), 6 + draws.below(3)))

    def find_fault(self, reading: ParsedText) -> str:
        longest = max((len(word.replace("'", "")) for word in reading.bare), default=0)
        return f"a word of {longest} letters where at most {self.letters} were asked" if longest > self.letters else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.longest_word = self.letters


class _SentenceStartInstruction(_LetterInstruction):
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"sentence starts", "sentences"})
    bars: ClassVar[frozenset[str]] = frozenset({"start", "phrase", "blocks"})


class AlphabetSentences(_SentenceStartInstruction):
    kind: Literal["alphabet_sentences"] = "alphabet_sentences"
    letter: str
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(letter=draws.one(ascii_lowercase[:17]), count=4 + draws.below(3))

    def find_fault(self, reading: ParsedText) -> str:
        initials = _list_initials(reading)
        if len(initials) < self.count:
            return f"{format_count(len(initials), 'sentence')} where at least {self.count} were asked"
        at = ascii_lowercase.index(self.letter)
        expected = [ascii_lowercase[(at + step) % 26] for step in range(len(initials))]
        pairs = enumerate(zip(initials, expected, strict=True), 1)
        wrong = next((position for position, (one, other) in pairs if one != other), 0)
        return f"sentence {wrong} begins with another letter than is its turn" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        at = ascii_lowercase.index(self.letter)
        draft.initials = ascii_lowercase[at : at + 7]
        draft.sentences = (self.count, len(draft.initials))


class Acrostic(_SentenceStartInstruction):
    kind: Literal["acrostic"] = "acrostic"
    word: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=draws.one(PROSE.acrostics))

    def find_fault(self, reading: ParsedText) -> str:
        initials = _list_initials(reading)
        if len(initials) != len(self.word):
            return f"{format_count(len(initials), 'sentence')} for a word of {len(self.word)} letters"
        wrong = sum(one != other for one, other in zip(initials, self.word, strict=True))
        return f"{wrong} of {len(self.word)} sentences begin with another letter" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.initials = self.word
        draft.sentences = (len(self.word), len(self.word))


class SameLetterSentences(_SentenceStartInstruction):
    kind: Literal["same_initial"] = "same_initial"
    letter: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(letter=draws.one("abefilmnostuwy"))

    def find_fault(self, reading: ParsedText) -> str:
        initials = _list_initials(reading)
        wrong = sum(letter != self.letter for letter in initials)
        return (
            f"{wrong} of {format_count(len(initials), 'sentence')} begin with another letter"
            if wrong or not initials
            else ""
        )

    def apply_to(self, draft: TextPlan) -> None:
        draft.initials = self.letter * 20
        draft.sentences = (draft.sentences[0], 20)


class DifferentStarts(_LetterInstruction):
    kind: Literal["different_starts"] = "different_starts"
    claims: ClassVar[frozenset[str]] = frozenset({"sentence starts"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})

    def find_fault(self, reading: ParsedText) -> str:
        firsts = [parse_text(sentence).bare[:1] for sentence in reading.sentences]
        again = len(firsts) - len(set(firsts))
        return f"{format_count(again, 'sentence')} beginning with a word that another begins with" if again else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.different_starts = True


def _list_initials(reading: ParsedText) -> list[str]:
    """The first letter of each sentence; a digit where it begins with one."""
    return [word[0][:1] if (word := parse_text(sentence).bare) else "" for sentence in reading.sentences]


# Upper and lower case.


class _CaseInstruction(Instruction):
    family: ClassVar[str] = "case"
    claims: ClassVar[frozenset[str]] = frozenset({"case"})


class LowerCase(_CaseInstruction):
    kind: Literal["lower_case"] = "lower_case"

    def find_fault(self, reading: ParsedText) -> str:
        count = sum(map(str.isupper, reading.text))
        return f"{format_count(count, 'capital letter')} where none was asked" if count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(str.lower)


class UpperCase(_CaseInstruction):
    kind: Literal["upper_case"] = "upper_case"

    def find_fault(self, reading: ParsedText) -> str:
        count = sum(map(str.islower, reading.text))
        return f"{format_count(count, 'small letter')} where none was asked" if count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(str.upper)


class CapitalWords(_CaseInstruction):
    kind: Literal["capital_words"] = "capital_words"
    number: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(number=2 + draws.below(5))

    def find_fault(self, reading: ParsedText) -> str:
        count = count_capital_words(reading)
        return find_count_fault(count, f"{format_count(count, 'word')} in capital letters", "exactly", self.number)

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [_write_capitals] * self.number


class AlternatingCase(_CaseInstruction):
    kind: Literal["alternating_case"] = "alternating_case"
    hard: ClassVar[bool] = True

    def find_fault(self, reading: ParsedText) -> str:
        with_letters = [word for word in reading.words if _count_letters(word)]
        turns = (word.isupper() if position % 2 else word.islower() for position, word in enumerate(with_letters, 1))
        wrong = next((position for position, right in enumerate(turns, 1) if not right), 0)
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


# Which words occur, and how often.


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
        draft.clauses += _write_clauses(self.words, 0)


class WordTimes(_KeywordInstruction):
    kind: Literal["word_times"] = "word_times"
    claims: ClassVar[frozenset[str]] = frozenset({"keywords"})
    word: str
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=_draw_keywords(draws, request, 1)[0], count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        count = reading.bare.count(self.word)
        return find_count_fault(count, f'"{self.word}" {format_count(count, "time")}', "exactly", self.count)

    def apply_to(self, draft: TextPlan) -> None:
        draft.clauses += _write_clauses((self.word,) * self.count, len(self.word))


class WordsInOrder(_KeywordInstruction):
    kind: Literal["words_in_order"] = "words_in_order"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"keywords"})
    words: tuple[str, ...]

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(words=tuple(_draw_keywords(draws, request, 3 + draws.below(3))))

    def find_fault(self, reading: ParsedText) -> str:
        words = set(self.words)
        occurrences = tuple(word for word in reading.bare if word in words)
        if set(occurrences) != words:
            return f"{len(words.difference(occurrences))} of {len(words)} words that must occur do not"
        if len(occurrences) > len(words):
            return "a word that must occur once occurs more often"
        return "" if occurrences == self.words else "the words that must occur are in another order"

    def apply_to(self, draft: TextPlan) -> None:
        draft.clauses += _write_clauses(self.words, 1)


class ForbiddenWords(_KeywordInstruction):
    kind: Literal["forbidden_words"] = "forbidden_words"
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})
    words: tuple[str, ...]

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(words=tuple(draws.some(PROSE.forbidden, 2 + draws.below(4))))

    def find_fault(self, reading: ParsedText) -> str:
        banned = set(self.words)
        occurrences = sorted({word for word in reading.bare if word in banned})
        return f"words that must not occur do: {', '.join(occurrences)}" if occurrences else ""

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
        count = reading.bare.count(self.word)
        return find_count_fault(count, f'"{self.word}" {format_count(count, "time")}', "at most", self.most)

    def apply_to(self, draft: TextPlan) -> None:
        draft.forbidden.add(self.word)


def _draw_keywords(draws: SeededRandom, request: WritingRequest, count: int) -> list[str]:
    return draws.some([word for word in PROSE.keywords if word not in {request.thing, request.place}], count)


def _write_clauses(words: tuple[str, ...], shift: int) -> list[str]:
    """One for each word, all different."""
    templates = [*PROSE.about[shift % len(PROSE.about) :], *PROSE.about]
    return [template.format(word=word) for template, word in zip(templates, words, strict=False)]


# Marks and numbers: commas, question marks, brackets, stars, digits.

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

    def find_fault(self, reading: ParsedText) -> str:
        count = sum(character in _COMMAS for character in reading.text)
        return f"{format_count(count, 'comma')} where none was asked" if count else ""

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
        count = reading.text.count(self.mark)
        return find_count_fault(count, format_count(count, self.name), "exactly", self.count)

    def apply_to(self, draft: TextPlan) -> None:
        draft.marks[self.mark] = self.count


class Placeholders(CountInstruction):
    kind: Literal["placeholders"] = "placeholders"
    claims: ClassVar[frozenset[str]] = frozenset({"square brackets"})
    family: ClassVar[str] = "marks and numbers"
    asked: ClassVar[Asked] = "at least"
    noun: ClassVar[str] = "different placeholder"

    def count_in(self, reading: ParsedText) -> int:
        return len(set(_find_enclosed(_SQUARE, reading)))

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [partial("[{} {}]".format, letter) for letter in "abcdef"[: self.count]]


class Highlights(CountInstruction):
    kind: Literal["highlights"] = "highlights"
    claims: ClassVar[frozenset[str]] = frozenset({"stars"})
    family: ClassVar[str] = "marks and numbers"
    noun: ClassVar[str] = "highlighted part"

    def count_in(self, reading: ParsedText) -> int:
        return len(_find_enclosed(_STARRED, reading))

    def apply_to(self, draft: TextPlan) -> None:
        draft.wraps += [lambda word: f"*{word}*"] * self.count


class Brackets(CountInstruction):
    kind: Literal["brackets"] = "brackets"
    claims: ClassVar[frozenset[str]] = frozenset({"round brackets"})
    family: ClassVar[str] = "marks and numbers"
    noun: ClassVar[str] = "remark"
    behind: ClassVar[str] = " in round brackets"
    drawn: ClassVar[tuple[int, int]] = (2, 3)

    def count_in(self, reading: ParsedText) -> int:
        return len(_find_enclosed(_ROUND, reading))

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
        count = len(set(reading.bare).intersection(PROSE.numbers))
        return find_count_fault(count, f"{format_count(count, 'different number')} in words", "at least", self.count)

    def apply_to(self, draft: TextPlan) -> None:
        usable = [word for word in PROSE.numbers if draft.permits(word)]
        draft.clauses += _write_counting_clauses(usable[: self.count])


class Digits(CountInstruction):
    kind: Literal["digits"] = "digits"
    claims: ClassVar[frozenset[str]] = frozenset({"digits"})
    bars: ClassVar[frozenset[str]] = frozenset({"list"})
    family: ClassVar[str] = "marks and numbers"
    noun: ClassVar[str] = "different number"
    behind: ClassVar[str] = " in digits"

    def count_in(self, reading: ParsedText) -> int:
        return len({word for word in reading.bare if word.isdecimal()})

    def apply_to(self, draft: TextPlan) -> None:
        draft.clauses += _write_counting_clauses([str(12 + 3 * position) for position in range(self.count)])


def _write_counting_clauses(numbers: list[str]) -> list[str]:
    return [clause.format(word=number) for clause, number in zip(PROSE.counted, numbers, strict=False)]


def _find_enclosed(form: re.Pattern[str], reading: ParsedText) -> list[str]:
    """What stands between the marks, where it has words."""
    return [inside for inside in form.findall(reading.folded) if find_bare_words(inside)]
