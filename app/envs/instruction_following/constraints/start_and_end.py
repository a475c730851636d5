"""Instructions about how the reply begins and ends."""

from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction
from app.envs.instruction_following.constraints.text_plan import PROSE, TextPlan
from app.envs.instruction_following.constraints.text_units import (
    ParsedText,
    find_bare_words,
    normalise_text,
    parse_text,
)
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom


class _StartInstruction(Instruction):
    family: ClassVar[str] = "beginning and end"
    claims: ClassVar[frozenset[str]] = frozenset({"start"})


class _EndInstruction(Instruction):
    family: ClassVar[str] = "beginning and end"
    claims: ClassVar[frozenset[str]] = frozenset({"end"})


class StartsWith(_StartInstruction):
    kind: Literal["starts_with"] = "starts_with"
    adds: ClassVar[frozenset[str]] = frozenset({"phrase"})
    phrase: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(phrase=draws.one(PROSE.beginnings))

    def find_fault(self, reading: ParsedText) -> str:
        begins = reading.folded.startswith(self.phrase.casefold())
        return "" if begins else "it does not begin with the sentence that was asked for"

    def apply_to(self, draft: TextPlan) -> None:
        draft.beginning = self.phrase


class FirstWord(_StartInstruction):
    kind: Literal["first_word"] = "first_word"
    word: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=draws.one(PROSE.first_words))

    def find_fault(self, reading: ParsedText) -> str:
        return "" if reading.bare[:1] == (self.word,) else f'its first word is not "{self.word}"'

    def apply_to(self, draft: TextPlan) -> None:
        draft.first_words[0] = self.word


class Title(_StartInstruction):
    kind: Literal["title"] = "title"
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        first = reading.lines[0] if reading.lines else ""
        framed = first.startswith("<<") and first.endswith(">>") and bool(find_bare_words(first.casefold()))
        return "" if framed and len(reading.lines) > 1 else "its first line is no title in << and >>"

    def apply_to(self, draft: TextPlan) -> None:
        draft.above.append("<<A day>>")


class RepeatedRequest(_StartInstruction):
    kind: Literal["repeated_request"] = "repeated_request"
    claims: ClassVar[frozenset[str]] = frozenset({"start", "repeat"})
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    sentence: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(sentence=request.sentence)

    def find_fault(self, reading: ParsedText) -> str:
        first = parse_text(reading.lines[0]).folded if reading.lines else ""
        said = first == normalise_text(self.sentence).casefold() and len(reading.lines) > 1
        return "" if said else "its first line is not the sentence that was to be repeated"

    def apply_to(self, draft: TextPlan) -> None:
        draft.above.append(self.sentence)


class EndsWith(_EndInstruction):
    kind: Literal["ends_with"] = "ends_with"
    adds: ClassVar[frozenset[str]] = frozenset({"phrase"})
    phrase: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(phrase=draws.one(PROSE.endings))

    def find_fault(self, reading: ParsedText) -> str:
        ends = reading.folded.endswith(self.phrase.casefold())
        return "" if ends else "it does not end with the sentence that was asked for"

    def apply_to(self, draft: TextPlan) -> None:
        draft.ending = self.phrase


class LastWord(_EndInstruction):
    kind: Literal["last_word"] = "last_word"
    word: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(word=draws.one(PROSE.last_words))

    def find_fault(self, reading: ParsedText) -> str:
        return "" if reading.bare[-1:] == (self.word,) else f'its last word is not "{self.word}"'

    def apply_to(self, draft: TextPlan) -> None:
        draft.last_word = self.word


class EndsWithEmoji(_EndInstruction):
    kind: Literal["ends_with_emoji"] = "ends_with_emoji"
    emoji: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(emoji=draws.one(PROSE.emoji))

    def find_fault(self, reading: ParsedText) -> str:
        found = reading.text.count(self.emoji)
        if found != 1:
            return f"{self.emoji} occurs {found} times where once was asked"
        return "" if reading.text.endswith(self.emoji) else f"it does not end with {self.emoji}"

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(lambda text: f"{text} {self.emoji}")


class Postscript(_EndInstruction):
    kind: Literal["postscript"] = "postscript"
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    mark: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(mark=draws.one(("P.S.", "P.P.S.", "N.B.")))

    def find_fault(self, reading: ParsedText) -> str:
        mark = self.mark.casefold()
        last = reading.paragraphs[-1].casefold() if len(reading.paragraphs) > 1 else ""
        said = last.startswith(mark) and find_bare_words(last[len(mark) :])
        return "" if said else f"its last paragraph is no postscript after {self.mark}"

    def apply_to(self, draft: TextPlan) -> None:
        draft.below.append(f"{self.mark} A lot was left out.")
