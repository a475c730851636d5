"""All kinds of instructions by name, and how one is parsed."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, SerializeAsAny

from app.envs.instruction_following.constraints.instruction import Instruction
from app.envs.instruction_following.constraints.keywords import (
    ForbiddenWords,
    IncludedWords,
    RationedWords,
    WordsInOrder,
    WordTimes,
)
from app.envs.instruction_following.constraints.lengths import (
    RisingSentences,
    SentencesAtLeast,
    SentencesExactly,
    ShortSentences,
    WordsAtLeast,
    WordsAtMost,
    WordsBetween,
    WordsExactly,
)
from app.envs.instruction_following.constraints.letter_case import AlternatingCase, CapitalWords, LowerCase, UpperCase
from app.envs.instruction_following.constraints.letters import (
    Acrostic,
    AlphabetSentences,
    DifferentStarts,
    LetterAtLeast,
    NoLetter,
    SameLetterSentences,
    ShortWords,
)
from app.envs.instruction_following.constraints.punctuation import (
    Brackets,
    Digits,
    Highlights,
    MarkTimes,
    NoCommas,
    NumberWords,
    Placeholders,
)
from app.envs.instruction_following.constraints.start_and_end import (
    EndsWith,
    EndsWithEmoji,
    FirstWord,
    LastWord,
    Postscript,
    RepeatedRequest,
    StartsWith,
    Title,
)
from app.envs.instruction_following.constraints.text_division import (
    EvenParagraphs,
    LineCount,
    Paragraphs,
    ParagraphStart,
    Sections,
    StarredParagraphs,
    TwoAnswers,
)
from app.envs.instruction_following.constraints.text_formats import Bullets, JsonOnly, NumberedList, Palindrome, Quoted

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
