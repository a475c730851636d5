"""Regex match: write a regular expression for a form that is described part by part.

    prompt   … built from these parts … 1. from 2 to 4 digits  2. the word oar or the word rust  3. at most one hyphen
             These strings match: 07oar, 4411rust-   These do not: 7oar, 4411rust--, 07OAR
    reply    <answer>[0-9]{2,4}(oar|rust)-?</answer>
    reward   1.0   it sorts every string right, of which the prompt shows a few

The other strings are hidden: matching ones drawn from the form, and others that miss it in one part. A list of the
examples earns nothing. Expressions run on RE2, in time linear in the text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field, TypeAdapter

from app.domain.digests import digest
from app.domain.values import Frozen, WholeNumber
from app.ports.environment import FreeReward
from app.toolkit.package_data import read_packaged_data
from app.toolkit.procedural import Level, LevelParams, ProceduralEnvironment
from app.toolkit.safe_regex import compile_pattern
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_FOLDER = Path(__file__).parent
_WORDS = read_packaged_data(_FOLDER / "words.yaml", TypeAdapter(tuple[str, ...]))
_KINDS = {"digits": ("[0-9]", "0123456789"), "small letters": ("[a-z]", "bcefgijk"), "capitals": ("[A-Z]", "BCEFGHKT")}
_MARKS = {"hyphen": "-", "underscore": "_", "full stop": ".", "colon": ":", "plus sign": "+"}
SHOWN = 3
HIDDEN = 20
FEWEST = 9
"""Fewest strings of either kind, so that a list of the shown ones gets most of them wrong."""
_PARTS: Final[Mapping[Level, int]] = {"easy": 2, "medium": 3, "hard": 5}


class RegexMatchParams(LevelParams):
    parts: Annotated[WholeNumber, Field(ge=2, le=6)] | None = None
    """Parts of the form. Default by level: 2 (easy), 3 (medium), 5 (hard)."""


class RegexExercise(Frozen):
    parts: tuple[str, ...]
    pattern: str
    matching: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class PatternPart:
    """`fits` draws a text that this part matches, `misses` one that it narrowly does not."""

    says: str
    pattern: str
    fits: Callable[[SeededRandom], str]
    misses: Callable[[SeededRandom], str]


class RegexMatch(ProceduralEnvironment[RegexExercise, RegexMatchParams]):
    name: ClassVar[str] = "regex_match"
    version: ClassVar[str] = "2"
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    chance: ClassVar[float] = 0.002
    data: ClassVar[Mapping[str, str]] = {"words": digest(_WORDS)}
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="near_miss_digit",
            share=0.06,
            because="Strings with one repetition too many are tried, with more they are not.",
        ),
        FreeReward(
            strategy="near_miss_token", share=0.06, because="Some words of the form are in none of the strings."
        ),
        FreeReward(strategy="near_miss_case", share=0.2, because="Some words of the form are in none of the strings."),
        FreeReward(strategy="near_miss_range", share=1.0, because="The strings have few of the letters."),
    )

    def make(self, draws: SeededRandom, level: Level, params: RegexMatchParams) -> RegexExercise:
        return _draw_exercise(draws, params.parts or _PARTS[level])

    def key(self, made: RegexExercise) -> str:
        return made.pattern

    def slots(self, made: RegexExercise) -> Mapping[str, str | int]:
        return {
            "parts": "\n".join(f"{place}. {part}" for place, part in enumerate(made.parts, start=1)),
            "matching": ", ".join(made.matching[:SHOWN]),
            "others": ", ".join(made.others[:SHOWN]),
        }

    def fault(self, answer: str, made: RegexExercise) -> str:
        try:
            expression = compile_pattern(answer)
            fitting = sum(expression.matches(text) for text in made.matching)
            misfits = sum(expression.matches(text) for text in made.others)
        except ValueError as error:
            return str(error)
        if fitting == len(made.matching) and not misfits:
            return ""
        return f"it matches {fitting} of {len(made.matching)} that fit, and {misfits} of {len(made.others)} that do not"

    def solution(self, made: RegexExercise) -> str:
        return made.pattern


def _draw_exercise(draws: SeededRandom, count: int) -> RegexExercise:
    """Only strings that the form's own expression rejects count as misfits: a string that misses one part may match."""
    while True:
        parts = [
            draws.one((_draw_run_part, _draw_words_part, _draw_optional_part, _draw_list_part))(draws)
            for _ in range(count)
        ]
        pattern = "".join(part.pattern for part in parts)
        form = compile_pattern(pattern)
        matching, others = dict[str, None](), dict[str, None]()
        for turn in range(2 * HIDDEN):
            matching["".join(part.fits(draws) for part in parts)] = None
            wrong = turn % count
            other = "".join((part.misses if place == wrong else part.fits)(draws) for place, part in enumerate(parts))
            if other and not form.matches(other):
                others[other] = None
        if min(len(matching), len(others)) >= FEWEST:
            said = tuple(part.says for part in parts)
            kept = tuple(matching)[:HIDDEN], tuple(others)[:HIDDEN]
            return RegexExercise(parts=said, pattern=pattern, matching=kept[0], others=kept[1])


def _draw_run_part(draws: SeededRandom) -> PatternPart:
    kind = draws.one(tuple(_KINDS))
    least = 1 + draws.below(3)
    most = least + draws.below(3)
    pattern, characters = _KINDS[kind]
    stranger = draws.one([signs for name, (_, signs) in _KINDS.items() if name != kind])

    def draw_characters(draws: SeededRandom, count: int) -> str:
        return "".join(draws.one(characters) for _ in range(count))

    return PatternPart(
        f"exactly {least} {kind}" if least == most else f"from {least} to {most} {kind}",
        f"{pattern}{{{least}}}" if least == most else f"{pattern}{{{least},{most}}}",
        lambda draws: draw_characters(draws, least + draws.below(most - least + 1)),
        lambda draws: draws.one(
            (
                draw_characters(draws, least - 1),
                draw_characters(draws, most + 1),
                draw_characters(draws, least - 1) + stranger[0],
            )
        ),
    )


def _draw_words_part(draws: SeededRandom) -> PatternPart:
    words = draws.some(_WORDS, 2 + draws.below(2))
    outside = draws.one([word for word in _WORDS if word not in words])
    return PatternPart(
        "either " + " or ".join(f"the word {word}" for word in words),
        f"({'|'.join(words)})",
        lambda draws: draws.one(words),
        lambda draws: draws.one((outside, draws.one(words).upper(), draws.one(words)[:-1], "".join(words[:2]))),
    )


def _draw_optional_part(draws: SeededRandom) -> PatternPart:
    name = draws.one(tuple(_MARKS))
    mark = _MARKS[name]
    other = draws.one([one for one in _MARKS.values() if one != mark])
    return PatternPart(
        f"at most one {name} ({mark})",
        f"[{mark}]?",
        lambda draws: draws.one((mark, "")),
        lambda draws: draws.one((mark * 2, other)),
    )


def _draw_list_part(draws: SeededRandom) -> PatternPart:
    name = draws.one(tuple(_MARKS))
    mark = _MARKS[name]
    word = draws.one(_WORDS)
    most = 2 + draws.below(3)
    return PatternPart(
        f"the word {word}, from 1 to {most} times, with a {name} ({mark}) between one and the next",
        f"{word}([{mark}]{word}){{0,{most - 1}}}",
        lambda draws: mark.join([word] * (1 + draws.below(most))),
        lambda draws: draws.one((mark.join([word] * (most + 1)), word + mark, word * 2, "")),
    )
