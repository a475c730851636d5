"""Instructions about form: lists, quotation marks, JSON, a palindrome."""

import json
import re
from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.constraints.drafts import PROSE, Draft
from app.envs.instruction_following.constraints.instruction import Instruction, counted
from app.envs.instruction_following.constraints.reading import Reading, bare_words, read, words_of
from app.envs.instruction_following.constraints.requests import Request
from app.toolkit.seeded import Draws

_NUMBERED: Final = re.compile(r"([0-9]{1,3})[.)]\s")
_PALINDROME_LETTERS: Final = 7


class _Shape(Instruction):
    family: ClassVar[str] = "form"


class Bullets(_Shape):
    kind: Literal["bullets"] = "bullets"
    claims: ClassVar[frozenset[str]] = frozenset({"list"})
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    count: int
    mark: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(5), mark=draws.one(("-", "*", "+")))

    def fault(self, reading: Reading) -> str:
        points = [line for line in reading.lines if line.startswith(f"{self.mark} ") and words_of(line)]
        wrong = f'{counted(len(points), "line")} beginning with "{self.mark} " where exactly {self.count} were asked'
        return wrong if len(points) != self.count else ""

    def shape(self, draft: Draft) -> None:
        draft.items = (f"{self.mark} ",) * self.count


class NumberedList(_Shape):
    kind: Literal["numbered_list"] = "numbered_list"
    claims: ClassVar[frozenset[str]] = frozenset({"list"})
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    bars: ClassVar[frozenset[str]] = frozenset({"digits"})
    count: int

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls(count=2 + draws.below(5))

    def fault(self, reading: Reading) -> str:
        points = [found for line in reading.lines if (found := _NUMBERED.match(line)) and len(words_of(line)) > 1]
        if len(points) != self.count:
            return f"{counted(len(points), 'numbered line')} where exactly {self.count} were asked"
        in_order = [point[1] for point in points] == [str(number) for number in range(1, self.count + 1)]
        return "" if in_order else "the numbers of its list are not 1, 2, 3 and so on"

    def shape(self, draft: Draft) -> None:
        draft.items = tuple(f"{number}. " for number in range(1, self.count + 1))


class Quoted(_Shape):
    kind: Literal["quoted"] = "quoted"
    claims: ClassVar[frozenset[str]] = frozenset({"start", "end"})

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        text = reading.text
        framed = len(text) > 1 and text.startswith('"') and text.endswith('"')
        if not framed:
            return "it does not stand in double quotation marks"
        more = text.count('"') - 2
        return f"{counted(more, 'more double quotation mark')} inside" if more else ""

    def shape(self, draft: Draft) -> None:
        draft.finishes.append(lambda text: f'"{text}"')


class JsonOnly(_Shape):
    kind: Literal["json_only"] = "json_only"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"json", "start", "end", "groups", "list", "case"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks", "sentences", "sentence starts", "sentence length", "commas"})
    first: str
    second: str

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        pairs = (("title", "text"), ("headline", "body"), ("subject", "content"), ("name", "story"))
        first, second = draws.one(pairs)
        return cls(first=first, second=second)

    def fault(self, reading: Reading) -> str:
        try:
            members = json.loads(reading.raw, object_pairs_hook=tuple)
        except (ValueError, RecursionError):
            return "it is no JSON"
        if not reading.raw.startswith("{"):
            return "it is no JSON object"
        if [name for name, _ in members] != [self.first, self.second]:
            return "the names of its members are others, or in another order"
        texts = [value for _, value in members if isinstance(value, str)]
        if len(texts) < 2 or not all(map(words_of, texts)):
            return "a member is no text with words"
        return "a text has a line break" if any("\n" in text or "\r" in text for text in texts) else ""

    def shape(self, draft: Draft) -> None:
        draft.finishes.append(
            lambda text: json.dumps({self.first: "A day", self.second: " ".join(text.split())}, ensure_ascii=False)
        )


class Palindrome(_Shape):
    kind: Literal["palindrome"] = "palindrome"
    hard: ClassVar[bool] = True
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    claims: ClassVar[frozenset[str]] = frozenset({"end"})

    @classmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        return cls()

    def fault(self, reading: Reading) -> str:
        return (
            "" if reading.lines and _mirrored(reading.lines[-1]) else "its last line does not read the same backwards"
        )

    def shape(self, draft: Draft) -> None:
        fitting = [line for line in PROSE.palindromes if draft.permits(line.casefold())]
        draft.below.append(fitting[0] if fitting else PROSE.palindromes[0])


def _mirrored(line: str) -> bool:
    words = bare_words(read(line).folded)
    letters = "".join(words).replace("'", "")
    return len(words) > 1 and len(letters) >= _PALINDROME_LETTERS and len(set(letters)) > 2 and letters == letters[::-1]
