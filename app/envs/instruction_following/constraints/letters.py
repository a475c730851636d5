"""Instructions about letters: forbidden ones, frequent ones, and the first letters of sentences."""

from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.constraints.drafts import PROSE, Draft
from app.envs.instruction_following.constraints.instruction import Instruction, counted
from app.envs.instruction_following.constraints.reading import Reading, read
from app.envs.instruction_following.constraints.requests import Request
from app.toolkit.seeded import Draws

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"


class _Letters(Instruction):
    family: ClassVar[str] = "letters"


class NoLetter(_Letters):
    kind: Literal["no_letter"] = "no_letter"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"letter"})
    bars: ClassVar[frozenset[str]] = frozenset({"repeat", "json"})
    letter: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        left = [letter for letter in "bcdfghjklmpquvwxyz" if letter not in request.thing + request.place]
        return cls(letter=draws.one(left))

    def fault(self, reading: Reading) -> str:
        found = reading.folded.count(self.letter)
        return f"the letter {self.letter} occurs {counted(found, 'time')}" if found else ""

    def shape(self, draft: Draft) -> None:
        draft.avoided.add(self.letter)


class LetterAtLeast(_Letters):
    kind: Literal["letter_at_least"] = "letter_at_least"
    claims: ClassVar[frozenset[str]] = frozenset({"letter"})
    letter: str
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(letter=draws.one("bfgkmpvw"), count=5 + draws.below(4))

    def fault(self, reading: Reading) -> str:
        found = reading.folded.count(self.letter)
        wrong = f"the letter {self.letter} {counted(found, 'time')} where at least {self.count} were asked"
        return wrong if found < self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.favoured = self.letter


class ShortWords(_Letters):
    kind: Literal["short_words"] = "short_words"
    hard: ClassVar[bool] = True
    bars: ClassVar[frozenset[str]] = frozenset({"repeat"})
    letters: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(letters=max(len(request.thing), len(request.place), 6 + draws.below(3)))

    def fault(self, reading: Reading) -> str:
        longest = max((len(word.replace("'", "")) for word in reading.bare), default=0)
        return f"a word of {longest} letters where at most {self.letters} were asked" if longest > self.letters else ""

    def shape(self, draft: Draft) -> None:
        draft.longest_word = self.letters


class _SentenceStarts(_Letters):
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"sentence starts", "sentences"})
    bars: ClassVar[frozenset[str]] = frozenset({"start", "phrase", "blocks"})


class AlphabetSentences(_SentenceStarts):
    kind: Literal["alphabet_sentences"] = "alphabet_sentences"
    letter: str
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(letter=draws.one(ALPHABET[:17]), count=4 + draws.below(3))

    def fault(self, reading: Reading) -> str:
        found = _initials(reading)
        if len(found) < self.count:
            return f"{counted(len(found), 'sentence')} where at least {self.count} were asked"
        at = ALPHABET.index(self.letter)
        wanted = [ALPHABET[(at + place) % 26] for place in range(len(found))]
        wrong = next((place for place, pair in enumerate(zip(found, wanted, strict=True), 1) if pair[0] != pair[1]), 0)
        return f"sentence {wrong} begins with another letter than is its turn" if wrong else ""

    def shape(self, draft: Draft) -> None:
        at = ALPHABET.index(self.letter)
        draft.initials = ALPHABET[at : at + 7]
        draft.sentences = (self.count, len(draft.initials))


class Acrostic(_SentenceStarts):
    kind: Literal["acrostic"] = "acrostic"
    word: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(word=draws.one(PROSE.acrostics))

    def fault(self, reading: Reading) -> str:
        found = _initials(reading)
        if len(found) != len(self.word):
            return f"{counted(len(found), 'sentence')} for a word of {len(self.word)} letters"
        wrong = sum(one != other for one, other in zip(found, self.word, strict=True))
        return f"{wrong} of {len(self.word)} sentences begin with another letter" if wrong else ""

    def shape(self, draft: Draft) -> None:
        draft.initials = self.word
        draft.sentences = (len(self.word), len(self.word))


class SameInitial(_SentenceStarts):
    kind: Literal["same_initial"] = "same_initial"
    letter: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(letter=draws.one("abefilmnostuwy"))

    def fault(self, reading: Reading) -> str:
        found = _initials(reading)
        wrong = sum(letter != self.letter for letter in found)
        return f"{wrong} of {counted(len(found), 'sentence')} begin with another letter" if wrong or not found else ""

    def shape(self, draft: Draft) -> None:
        draft.initials = self.letter * 20
        draft.sentences = (draft.sentences[0], 20)


class DifferentStarts(_Letters):
    kind: Literal["different_starts"] = "different_starts"
    claims: ClassVar[frozenset[str]] = frozenset({"sentence starts"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        firsts = [read(sentence).bare[:1] for sentence in reading.sentences]
        again = len(firsts) - len(set(firsts))
        return f"{counted(again, 'sentence')} beginning with a word that another begins with" if again else ""

    def shape(self, draft: Draft) -> None:
        draft.different_starts = True


def _initials(reading: Reading) -> list[str]:
    """The first letter of each sentence; a digit where it begins with one."""
    return [word[0][:1] if (word := read(sentence).bare) else "" for sentence in reading.sentences]
