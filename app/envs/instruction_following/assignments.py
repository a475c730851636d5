"""Assignments: a request with compatible instructions of any kind, proved by a text that follows all of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, SerializeAsAny

from app.domain.values import Frozen
from app.envs.instruction_following.counted_kinds import (
    Acrostic,
    AlphabetSentences,
    AlternatingCase,
    Brackets,
    CapitalWords,
    DifferentStarts,
    Digits,
    ForbiddenWords,
    Highlights,
    IncludedWords,
    LetterAtLeast,
    LowerCase,
    MarkTimes,
    NoCommas,
    NoLetter,
    NumberWords,
    Placeholders,
    RationedWords,
    RisingSentences,
    SameLetterSentences,
    SentencesAtLeast,
    SentencesExactly,
    ShortSentences,
    ShortWords,
    UpperCase,
    WordsAtLeast,
    WordsAtMost,
    WordsBetween,
    WordsExactly,
    WordsInOrder,
    WordTimes,
)
from app.envs.instruction_following.instructions import (
    Instruction,
    ParsedText,
    TextPlan,
    WritingRequest,
    draw_request,
    is_conflict,
    parse_text,
)
from app.envs.instruction_following.layout_kinds import (
    Bullets,
    EndsWith,
    EndsWithEmoji,
    EvenParagraphs,
    FirstWord,
    JsonOnly,
    LastWord,
    LineCount,
    NumberedList,
    Palindrome,
    Paragraphs,
    ParagraphStart,
    Postscript,
    Quoted,
    RepeatedRequest,
    Sections,
    StarredParagraphs,
    StartsWith,
    Title,
    TwoAnswers,
)
from app.envs.instruction_following.texts import find_prose_fault, write_text
from app.toolkit.seeded import SeededRandom

# The order decides what a seed draws.
_ALL: Final[tuple[type[Instruction], ...]] = (
    *(WordsAtLeast, WordsAtMost, WordsBetween, WordsExactly),
    *(SentencesAtLeast, SentencesExactly, ShortSentences, RisingSentences),
    *(Paragraphs, StarredParagraphs, EvenParagraphs, ParagraphStart, LineCount, Sections, TwoAnswers),
    *(IncludedWords, WordTimes, WordsInOrder, ForbiddenWords, RationedWords),
    *(NoLetter, LetterAtLeast, ShortWords, Acrostic, AlphabetSentences, SameLetterSentences, DifferentStarts),
    *(StartsWith, FirstWord, Title, RepeatedRequest, EndsWith, LastWord, EndsWithEmoji, Postscript),
    *(Bullets, NumberedList, Quoted, JsonOnly, Palindrome),
    *(LowerCase, UpperCase, CapitalWords, AlternatingCase),
    *(NoCommas, MarkTimes, Placeholders, Highlights, Brackets, NumberWords, Digits),
)
KINDS: Final[Mapping[str, type[Instruction]]] = {str(one.model_fields["kind"].default): one for one in _ALL}


def _parse_instruction(value: Any) -> Any:
    if isinstance(value, Instruction):
        return value
    kind = str(value.get("kind")) if isinstance(value, dict) else ""
    if kind not in KINDS:
        raise ValueError(f"unknown kind of instruction: {kind!r}")
    return KINDS[kind].model_validate(value)


AnyInstruction = Annotated[SerializeAsAny[Instruction], BeforeValidator(_parse_instruction)]


_FIRST: Final[tuple[type[Instruction], ...]] = (NoCommas, ForbiddenWords, SentencesAtLeast, LetterAtLeast, WordsAtMost)
"""Kinds of level `first`."""
_FIRST_WORDS: Final = 12
"""Least words of a text of level `first`."""
_TEXTS: Final = 4
"""Texts tried for a combination before another one is drawn."""
_ROOM: Final = 45
"""Words that a gold text may have beyond the minimum, unless a length is asked for."""


class Assignment(Frozen):
    request: WritingRequest
    instructions: tuple[AnyInstruction, ...]
    asked: tuple[str, ...]
    """The instructions in words, in the same order."""
    gold: str = ""
    """A text that follows all of them."""

    @property
    def identity(self) -> str:
        """Equal for assignments that accept the same replies."""
        return self.model_dump_json(include={"request", "instructions"})


def draw_first_assignment(draws: SeededRandom) -> Assignment:
    """A short text with one rule, which plain prose often follows."""
    request = draw_request(draws, (_FIRST_WORDS,))
    return _instruct(draws, request, [draws.one(_FIRST)])


def draw_assignment(draws: SeededRandom, count: int, hard: int) -> Assignment:
    """`count` instructions without declared conflicts, `hard` of them of a hard kind; without a gold text."""
    request, chosen = draw_request(draws), list[type[Instruction]]()
    while len(chosen) < count:
        chosen = _draw_compatible_kinds(draws, count, hard)
    return _instruct(draws, request, chosen)


def _instruct(draws: SeededRandom, request: WritingRequest, chosen: Sequence[type[Instruction]]) -> Assignment:
    instructions = tuple(kind.draw(draws, request) for kind in chosen)
    asked = tuple(instruction.phrase_request(draws) for instruction in instructions)
    return Assignment(request=request, instructions=instructions, asked=asked)


def add_gold(assignment: Assignment, draws: SeededRandom, prompt: str) -> Assignment | None:
    """Adds a gold text; None if none of a few texts follows all instructions. `prompt` is all that could be copied."""
    for _ in range(_TEXTS):
        request = assignment.request
        draft = TextPlan(request, words=(request.least + 12, request.least + _ROOM))
        for instruction in assignment.instructions:
            instruction.apply_to(draft)
        reading = parse_text(write_text(draft, draws))
        if not find_prose_fault(reading, request, prompt) and not any(find_faults(reading, assignment.instructions)):
            return assignment.model_copy(update={"gold": reading.raw})
    return None


def find_faults(reading: ParsedText, instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """One fault per instruction; empty if it is followed."""
    return tuple(instruction.find_fault(reading) for instruction in instructions)


def _draw_compatible_kinds(draws: SeededRandom, count: int, hard: int) -> list[type[Instruction]]:
    chosen: list[type[Instruction]] = []
    for most, is_hard in ((hard, True), (count, False)):
        for kind in draws.shuffled([kind for kind in KINDS.values() if kind.hard == is_hard]):
            if len(chosen) < most and not any(is_conflict(kind, other) for other in chosen):
                chosen.append(kind)
    return draws.shuffled(chosen)
