"""Kinds of instructions about layout: beginning and end, division, form."""

import json
import re
from itertools import pairwise
from typing import ClassVar, Final, Literal, Self

from app.envs.instruction_following.instructions import (
    PROSE,
    CountInstruction,
    Instruction,
    ParsedText,
    TextPlan,
    WritingRequest,
    find_bare_words,
    find_count_fault,
    format_count,
    normalise_text,
    parse_text,
    split_words,
)
from app.toolkit.seeded import SeededRandom

# How the reply begins and ends.


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
        is_repeated = first == normalise_text(self.sentence).casefold() and len(reading.lines) > 1
        return "" if is_repeated else "its first line is not the sentence that was to be repeated"

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
        count = reading.text.count(self.emoji)
        if count != 1:
            return f"{self.emoji} occurs {count} times where once was asked"
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
        has_text = last.startswith(mark) and find_bare_words(last[len(mark) :])
        return "" if has_text else f"its last paragraph is no postscript after {self.mark}"

    def apply_to(self, draft: TextPlan) -> None:
        draft.below.append(f"{self.mark} A lot was left out.")


# How the text is divided: paragraphs, lines, sections, answers.


class _DivisionInstruction(Instruction):
    family: ClassVar[str] = "division"
    claims: ClassVar[frozenset[str]] = frozenset({"groups"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})


class Paragraphs(CountInstruction):
    kind: Literal["paragraphs"] = "paragraphs"
    family: ClassVar[str] = "division"
    claims: ClassVar[frozenset[str]] = frozenset({"groups"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})
    noun: ClassVar[str] = "paragraph"
    drawn: ClassVar[tuple[int, int]] = (2, 5)

    def count_in(self, reading: ParsedText) -> int:
        return len(reading.paragraphs)

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups = self.count


class EvenParagraphs(_DivisionInstruction):
    kind: Literal["even_paragraphs"] = "even_paragraphs"
    hard: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"groups", "sentences"})
    count: int
    each: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(3), each=3 + draws.below(2))

    def find_fault(self, reading: ParsedText) -> str:
        count = len(reading.paragraphs)
        if count != self.count:
            return f"{format_count(count, 'paragraph')} where exactly {self.count} were asked"
        lengths = [len(parse_text(paragraph).sentences) for paragraph in reading.paragraphs]
        wrong = next((position for position, length in enumerate(lengths, 1) if length != self.each), 0)
        many = format_count(lengths[wrong - 1], "sentence")
        return f"paragraph {wrong} has {many} where exactly {self.each} were asked" if wrong else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups, draft.each = self.count, self.each


class ParagraphStart(_DivisionInstruction):
    kind: Literal["paragraph_start"] = "paragraph_start"
    hard: ClassVar[bool] = True
    bars: ClassVar[frozenset[str]] = frozenset({"blocks", "sentence starts"})
    count: int
    place: int
    word: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        count = 2 + draws.below(4)
        return cls(count=count, place=2 + draws.below(count - 1), word=draws.one(PROSE.first_words))

    def find_fault(self, reading: ParsedText) -> str:
        count = len(reading.paragraphs)
        if count != self.count:
            return f"{format_count(count, 'paragraph')} where exactly {self.count} were asked"
        first = parse_text(reading.paragraphs[self.place - 1]).bare[:1]
        return "" if first == (self.word,) else f'paragraph {self.place} does not begin with "{self.word}"'

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups = self.count
        draft.first_words[self.place - 1] = self.word


class StarredParagraphs(_DivisionInstruction):
    kind: Literal["starred_paragraphs"] = "starred_paragraphs"
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(4))

    def find_fault(self, reading: ParsedText) -> str:
        parts = reading.split_at("***")
        if len(parts) != self.count:
            return f"{format_count(len(parts), 'part')} between lines of *** where exactly {self.count} were asked"
        return "" if all(map(split_words, parts)) else "a part between lines of *** has no words"

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups, draft.separator = self.count, "\n***\n"


class TwoAnswers(_DivisionInstruction):
    kind: Literal["two_answers"] = "two_answers"
    claims: ClassVar[frozenset[str]] = frozenset({"groups"})
    least: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(least=request.least // 10 * 5)

    def find_fault(self, reading: ParsedText) -> str:
        parts = reading.split_at("******")
        if len(parts) != 2:
            return f"{format_count(len(parts), 'text')} where two with ****** between them were asked"
        shortest = min(len(split_words(part)) for part in parts)
        if shortest < self.least:
            return f"one of the two texts has {format_count(shortest, 'word')} where at least {self.least} were asked"
        one, other = (set(parse_text(part).bare) for part in parts)
        return "the two texts have the same words" if one == other else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups, draft.separator = 2, "\n\n******\n\n"
        draft.words = (max(draft.words[0], 3 * self.least), draft.words[1])


class LineCount(CountInstruction):
    kind: Literal["lines"] = "lines"
    family: ClassVar[str] = "division"
    claims: ClassVar[frozenset[str]] = frozenset({"groups"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})
    noun: ClassVar[str] = "line"
    drawn: ClassVar[tuple[int, int]] = (4, 6)

    def count_in(self, reading: ParsedText) -> int:
        return len(reading.lines)

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups, draft.separator = self.count, "\n"


class Sections(_DivisionInstruction):
    kind: Literal["sections"] = "sections"
    adds: ClassVar[frozenset[str]] = frozenset({"blocks"})
    bars: ClassVar[frozenset[str]] = frozenset({"start", "end", "list"})
    count: int
    heading: str

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(4), heading=draws.one(("Section", "Part", "Chapter", "Day", "Step")))

    def find_fault(self, reading: ParsedText) -> str:
        heading = self.heading.casefold()
        headings = {f"{heading} {number}" for number in range(1, len(reading.lines) + 1)}
        at = [index for index, line in enumerate(reading.lines) if parse_text(line).folded in headings]
        numbers = [reading.lines[index].split()[1] for index in at]
        if numbers != [str(number) for number in range(1, self.count + 1)]:
            return (
                f'{format_count(len(at), "heading")}, which are not "{self.heading}" 1 to {self.count} in their order'
            )
        bare = at[0] != 0 or any(next_ - one < 2 for one, next_ in pairwise([*at, len(reading.lines)]))
        return "text before the first heading, or a heading without text" if bare else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups = self.count
        draft.headings = tuple(f"{self.heading} {number}" for number in range(1, self.count + 1))


# Form: lists, quotation marks, JSON, a palindrome.

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
        words = f'{format_count(len(points), "line")} beginning with "{self.mark} "'
        return find_count_fault(len(points), words, "exactly", self.count)

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
        points = [match for line in reading.lines if (match := _NUMBERED.match(line)) and len(split_words(line)) > 1]
        if len(points) != self.count:
            return f"{format_count(len(points), 'numbered line')} where exactly {self.count} were asked"
        in_order = [point[1] for point in points] == [str(number) for number in range(1, self.count + 1)]
        return "" if in_order else "the numbers of its list are not 1, 2, 3 and so on"

    def apply_to(self, draft: TextPlan) -> None:
        draft.items = tuple(f"{number}. " for number in range(1, self.count + 1))


class Quoted(_FormatInstruction):
    kind: Literal["quoted"] = "quoted"
    claims: ClassVar[frozenset[str]] = frozenset({"start", "end"})

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
            members = json.loads(reading.raw, object_pairs_hook=tuple)  # a dict would hide names that come twice
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
