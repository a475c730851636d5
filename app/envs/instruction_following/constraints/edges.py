"""Instructions about how the reply begins and ends."""

from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.drafts import PROSE, Draft
from app.envs.instruction_following.constraints.instruction import Instruction
from app.envs.instruction_following.constraints.reading import Reading, bare_words, plain, read
from app.envs.instruction_following.constraints.requests import Request
from app.toolkit.seeded import Draws


class _Start(Instruction):
    family: ClassVar[str] = "beginning and end"
    claims: ClassVar[frozenset[str]] = frozenset({"start"})


class _End(Instruction):
    family: ClassVar[str] = "beginning and end"
    claims: ClassVar[frozenset[str]] = frozenset({"end"})


class StartsWith(_Start):
    kind: Literal["starts_with"] = "starts_with"
    adds: ClassVar[frozenset[str]] = frozenset({"phrase"})
    phrase: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(phrase=draws.one(PROSE.beginnings))

    def fault(self, reading: Reading) -> str:
        begins = reading.folded.startswith(self.phrase.casefold())
        return "" if begins else "it does not begin with the sentence that was asked for"

    def shape(self, draft: Draft) -> None:
        draft.beginning = self.phrase


class FirstWord(_Start):
    kind: Literal["first_word"] = "first_word"
    word: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(word=draws.one(PROSE.first_words))

    def fault(self, reading: Reading) -> str:
        return "" if reading.bare[:1] == (self.word,) else f'its first word is not "{self.word}"'

    def shape(self, draft: Draft) -> None:
        draft.first_words[0] = self.word


class Title(_Start):
    kind: Literal["title"] = "title"
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        first = reading.lines[0] if reading.lines else ""
        framed = first.startswith("<<") and first.endswith(">>") and bool(bare_words(first.casefold()))
        return "" if framed and len(reading.lines) > 1 else "its first line is no title in << and >>"

    def shape(self, draft: Draft) -> None:
        draft.above.append("<<A day>>")


class RepeatedRequest(_Start):
    kind: Literal["repeated_request"] = "repeated_request"
    claims: ClassVar[frozenset[str]] = frozenset({"start", "repeat"})
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    sentence: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(sentence=request.said)

    def fault(self, reading: Reading) -> str:
        first = read(reading.lines[0]).folded if reading.lines else ""
        said = first == plain(self.sentence).casefold() and len(reading.lines) > 1
        return "" if said else "its first line is not the sentence that was to be repeated"

    def shape(self, draft: Draft) -> None:
        draft.above.append(self.sentence)


class EndsWith(_End):
    kind: Literal["ends_with"] = "ends_with"
    adds: ClassVar[frozenset[str]] = frozenset({"phrase"})
    phrase: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(phrase=draws.one(PROSE.endings))

    def fault(self, reading: Reading) -> str:
        ends = reading.folded.endswith(self.phrase.casefold())
        return "" if ends else "it does not end with the sentence that was asked for"

    def shape(self, draft: Draft) -> None:
        draft.ending = self.phrase


class LastWord(_End):
    kind: Literal["last_word"] = "last_word"
    word: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(word=draws.one(PROSE.last_words))

    def fault(self, reading: Reading) -> str:
        return "" if reading.bare[-1:] == (self.word,) else f'its last word is not "{self.word}"'

    def shape(self, draft: Draft) -> None:
        draft.last_word = self.word


class EndsWithEmoji(_End):
    kind: Literal["ends_with_emoji"] = "ends_with_emoji"
    emoji: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(emoji=draws.one(PROSE.emoji))

    def fault(self, reading: Reading) -> str:
        found = reading.text.count(self.emoji)
        if found != 1:
            return f"{self.emoji} occurs {found} times where once was asked"
        return "" if reading.text.endswith(self.emoji) else f"it does not end with {self.emoji}"

    def shape(self, draft: Draft) -> None:
        draft.finishes.append(lambda text: f"{text} {self.emoji}")


class Postscript(_End):
    kind: Literal["postscript"] = "postscript"
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    mark: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(mark=draws.one(("P.S.", "P.P.S.", "N.B.")))

    def fault(self, reading: Reading) -> str:
        mark = self.mark.casefold()
        last = reading.paragraphs[-1].casefold() if len(reading.paragraphs) > 1 else ""
        said = last.startswith(mark) and bare_words(last[len(mark) :])
        return "" if said else f"its last paragraph is no postscript after {self.mark}"

    def shape(self, draft: Draft) -> None:
        draft.below.append(f"{self.mark} A lot was left out.")
