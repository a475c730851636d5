"""Instructions about form: lists, quotation marks, JSON, a palindrome."""

import json
import re
from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import PROSE, TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText, find_bare_words, parse_text, split_words
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom

_NUMBERED: Final = re.compile(r"([0-9]{1,3})[.)]\s")
_PALINDROME_LETTERS: Final = 7


class _FormatInstruction(Instruction):
    family: ClassVar[str] = "form"


class Bullets(_FormatInstruction):
    kind: Literal["bullets"] = "bullets"
    claims: ClassVar[frozenset[str]] = frozenset({"list"})
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    count: int
    mark: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(5), mark=draws.one(("-", "*", "+")))

    def find_fault(self, reading: ParsedText) -> str:
        points = [line for line in reading.lines if line.startswith(f"{self.mark} ") and split_words(line)]
        wrong = (
            f'{format_count(len(points), "line")} beginning with "{self.mark} " where exactly {self.count} were asked'
        )
        return wrong if len(points) != self.count else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.items = (f"{self.mark} ",) * self.count


class NumberedList(_FormatInstruction):
    kind: Literal["numbered_list"] = "numbered_list"
    claims: ClassVar[frozenset[str]] = frozenset({"list"})
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    bars: ClassVar[frozenset[str]] = frozenset({"digits"})
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(5))

    def find_fault(self, reading: ParsedText) -> str:
        points = [found for line in reading.lines if (found := _NUMBERED.match(line)) and len(split_words(line)) > 1]
        if len(points) != self.count:
            return f"{format_count(len(points), 'numbered line')} where exactly {self.count} were asked"
        in_order = [point[1] for point in points] == [str(number) for number in range(1, self.count + 1)]
        return "" if in_order else "the numbers of its list are not 1, 2, 3 and so on"

    def apply_to(self, draft: TextPlan) -> None:
        draft.items = tuple(f"{number}. " for number in range(1, self.count + 1))


class Quoted(_FormatInstruction):
    kind: Literal["quoted"] = "quoted"
    claims: ClassVar[frozenset[str]] = frozenset({"start", "end"})

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        text = reading.text
        framed = len(text) > 1 and text.startswith('"') and text.endswith('"')
        if not framed:
            return "it does not stand in double quotation marks"
        more = text.count('"') - 2
        return f"{format_count(more, 'more double quotation mark')} inside" if more else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(lambda text: f'"{text}"')


class JsonOnly(_FormatInstruction):
    kind: Literal["json_only"] = "json_only"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"json", "start", "end", "groups", "list", "case"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks", "sentences", "sentence starts", "sentence length", "commas"})
    first: str
    second: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        pairs = (("title", "text"), ("headline", "body"), ("subject", "content"), ("name", "story"))
        first, second = draws.one(pairs)
        return cls(first=first, second=second)

    def find_fault(self, reading: ParsedText) -> str:
        try:
            members = json.loads(reading.raw, object_pairs_hook=tuple)
        except (ValueError, RecursionError):
            return "it is no JSON"
        if not reading.raw.startswith("{"):
            return "it is no JSON object"
        if [name for name, _ in members] != [self.first, self.second]:
            return "the names of its members are others, or in another order"
        texts = [value for _, value in members if isinstance(value, str)]
        if len(texts) < 2 or not all(map(split_words, texts)):
            return "a member is no text with words"
        return "a text has a line break" if any("\n" in text or "\r" in text for text in texts) else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.finishes.append(
            lambda text: json.dumps({self.first: "A day", self.second: " ".join(text.split())}, ensure_ascii=False)
        )


class Palindrome(_FormatInstruction):
    kind: Literal["palindrome"] = "palindrome"
    hard: ClassVar[bool] = True
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    claims: ClassVar[frozenset[str]] = frozenset({"end"})

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls()

    def find_fault(self, reading: ParsedText) -> str:
        return (
            ""
            if reading.lines and _is_palindrome(reading.lines[-1])
            else "its last line does not read the same backwards"
        )

    def apply_to(self, draft: TextPlan) -> None:
        fitting = [line for line in PROSE.palindromes if draft.permits(line.casefold())]
        draft.below.append(fitting[0] if fitting else PROSE.palindromes[0])


def _is_palindrome(line: str) -> bool:
    words = find_bare_words(parse_text(line).folded)
    letters = "".join(words).replace("'", "")
    return len(words) > 1 and len(letters) >= _PALINDROME_LETTERS and len(set(letters)) > 2 and letters == letters[::-1]
