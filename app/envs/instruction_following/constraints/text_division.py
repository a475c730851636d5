"""Instructions about how the text is divided: paragraphs, lines, sections, answers."""

from itertools import pairwise
from typing import ClassVar, Literal, Self

from app.envs.instruction_following.constraints.instruction import Instruction, format_count
from app.envs.instruction_following.constraints.text_plan import PROSE, TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText, parse_text, split_words
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.seeded import SeededRandom


class _DivisionInstruction(Instruction):
    family: ClassVar[str] = "division"
    claims: ClassVar[frozenset[str]] = frozenset({"groups"})
    bars: ClassVar[frozenset[str]] = frozenset({"blocks"})


class Paragraphs(_DivisionInstruction):
    kind: Literal["paragraphs"] = "paragraphs"
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=2 + draws.below(5))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.paragraphs)
        return (
            f"{format_count(found, 'paragraph')} where exactly {self.count} were asked" if found != self.count else ""
        )

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
        found = len(reading.paragraphs)
        if found != self.count:
            return f"{format_count(found, 'paragraph')} where exactly {self.count} were asked"
        lengths = [len(parse_text(paragraph).sentences) for paragraph in reading.paragraphs]
        wrong = next((place for place, length in enumerate(lengths, 1) if length != self.each), 0)
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
        found = len(reading.paragraphs)
        if found != self.count:
            return f"{format_count(found, 'paragraph')} where exactly {self.count} were asked"
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


class LineCount(_DivisionInstruction):
    kind: Literal["lines"] = "lines"
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        return cls(count=4 + draws.below(6))

    def find_fault(self, reading: ParsedText) -> str:
        found = len(reading.lines)
        return f"{format_count(found, 'line')} where exactly {self.count} were asked" if found != self.count else ""

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
        at = [place for place, line in enumerate(reading.lines) if parse_text(line).folded in headings]
        said = [reading.lines[place].split()[1] for place in at]
        if said != [str(number) for number in range(1, self.count + 1)]:
            return (
                f'{format_count(len(at), "heading")}, which are not "{self.heading}" 1 to {self.count} in their order'
            )
        bare = at[0] != 0 or any(next_ - one < 2 for one, next_ in pairwise([*at, len(reading.lines)]))
        return "text before the first heading, or a heading without text" if bare else ""

    def apply_to(self, draft: TextPlan) -> None:
        draft.groups = self.count
        draft.headings = tuple(f"{self.heading} {number}" for number in range(1, self.count + 1))
