"""Instructions about letters: forbidden ones, frequent ones, and the first letters of sentences."""

from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import PROSE, TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText, parse_text
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"


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
        found = reading.folded.count(self.letter)
        return f"the letter {self.letter} occurs {format_count(found, 'time')}" if found else ""

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
        found = reading.folded.count(self.letter)
        wrong = f"the letter {self.letter} {format_count(found, 'time')} where at least {self.count} were asked"
        return wrong if found < self.count else ""

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
        return cls(letter=draws.one(ALPHABET[:17]), count=4 + draws.below(3))

    def find_fault(self, reading: ParsedText) -> str:
        found = _list_initials(reading)
        if len(found) < self.count:
            return f"{format_count(len(found), 'sentence')} where at least {self.count} were asked"
        at = ALPHABET.index(self.letter)
        wanted = [ALPHABET[(at + place) % 26] for place in range(len(found))]
        wrong = next((place for place, pair in enumerate(zip(found, wanted, strict=True), 1) if pair[0] != pair[1]), 0)
        return f"sentence {wrong} begins with another letter than is its turn" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        at = ALPHABET.index(self.letter)
        draft.initials = ALPHABET[at : at + 7]
        draft.sentences = (self.count, len(draft.initials))


class Acrostic(_SentenceStartInstruction):
    kind: Literal["acrostic"] = "acrostic"
    word: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=draws.one(PROSE.acrostics))

    def find_fault(self, reading: ParsedText) -> str:
        found = _list_initials(reading)
        if len(found) != len(self.word):
            return f"{format_count(len(found), 'sentence')} for a word of {len(self.word)} letters"
        wrong = sum(one != other for one, other in zip(found, self.word, strict=True))
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
        found = _list_initials(reading)
        wrong = sum(letter != self.letter for letter in found)
        return (
            f"{wrong} of {format_count(len(found), 'sentence')} begin with another letter" if wrong or not found else ""
        )

    def apply_to(self, draft: TextPlan) -> None:
        draft.initials = self.letter * 20
        draft.sentences = (draft.sentences[0], 20)


class DifferentStarts(_LetterInstruction):
    kind: Literal["different_starts"] = "different_starts"
    claims: ClassVar[frozenset[str]] = frozenset({"sentence starts"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        firsts = [parse_text(sentence).bare[:1] for sentence in reading.sentences]
        again = len(firsts) - len(set(firsts))
        return f"{format_count(again, 'sentence')} beginning with a word that another begins with" if again else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.different_starts = True


def _list_initials(reading: ParsedText) -> list[str]:
    """The first letter of each sentence; a digit where it begins with one."""
    return [word[0][:1] if (word := parse_text(sentence).bare) else "" for sentence in reading.sentences]
