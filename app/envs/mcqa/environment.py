"""Multiple choice: answer a question with the letter of the one right option.

    prompt   Lena is taller than Ivo. Rosa is taller than Lena. … Who comes second?   A. Ivo   B. Lena   C. Rosa …
    reply    <think>Rosa, Lena, Ivo.</think> <answer>B</answer>
    reward   1.0   that letter

Questions are generated: units, dates, sets, orders and tables. The right option has any position with equal chance, and
any rank among the numbers or dates offered. With n options a constant letter, or always the middle value, is right in
one of n tasks. Only a single letter counts, not a word that begins with it, two letters, or the text of the option.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field, JsonValue, TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen, WholeNumber
from app.ports.environment import FreeReward
from app.toolkit.package_data import read_packaged_data
from app.toolkit.procedural import Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
LETTERS = "ABCDEF"
MOST_OPTIONS = len(LETTERS)


class QuestionMaterial(Frozen):
    names: tuple[str, ...]
    things: tuple[str, ...]
    places: tuple[str, ...]
    months: tuple[str, ...]
    comparisons: tuple[str, ...]
    units: tuple[tuple[str, str, int], ...]
    """Small unit, large unit, and how many small ones make a large one."""


_FOLDER = Path(__file__).parent
_MATERIAL = read_packaged_data(_FOLDER / "material.yaml", TypeAdapter(QuestionMaterial))


class QuestionSize(Frozen):
    most: int
    """Rough upper bound of the numbers in a question."""
    things: int
    people: int
    """People or places: at least as many as there are options."""


_SIZES: Final[Mapping[Level, QuestionSize]] = {
    "easy": QuestionSize(most=80, things=5, people=3),
    "medium": QuestionSize(most=400, things=9, people=6),
    "hard": QuestionSize(most=9_000, things=14, people=6),
}


class McqaParams(LevelParams):
    options: Annotated[WholeNumber, Field(ge=3, le=6)] = 5


@dataclass(frozen=True)
class UnshuffledQuestion:
    """A question before its options are shuffled: they are all different, the right one first."""

    topic: str
    text: str
    options: tuple[str, ...]


class ChoiceQuestion(Frozen):
    topic: str
    text: str
    options: tuple[str, ...]
    right: int
    """Index of the right option, from 0."""


class Mcqa(ProceduralEnvironment[ChoiceQuestion, McqaParams]):
    name: ClassVar[str] = "mcqa"
    version: ClassVar[str] = "2"
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"material": digest_of_model(_MATERIAL)}
    stats_label: ClassVar[str | None] = "topic"
    chance: ClassVar[float] = 0.2
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="prompt_features", share=0.6, because="Counts of things that two people have hardly vary."),
        FreeReward(strategy="near_miss_case", share=None, because="A small letter names the same option."),
    )

    def make(self, draws: SeededRandom, level: Level, params: McqaParams) -> ChoiceQuestion:
        asked = draws.one(_TOPICS)(draws, params.options, _SIZES[level])
        options = draws.shuffled(asked.options)
        right = options.index(asked.options[0])
        return ChoiceQuestion(topic=asked.topic, text=asked.text, options=tuple(options), right=right)

    def key(self, made: ChoiceQuestion) -> str:
        return made.text

    def slots(self, made: ChoiceQuestion) -> Mapping[str, str | int]:
        listed = (f"{letter}. {option}" for letter, option in zip(LETTERS, made.options, strict=False))
        return {"question": made.text, "options": "\n".join(listed)}

    def metadata(self, made: ChoiceQuestion) -> dict[str, JsonValue]:
        return {"topic": made.topic}

    def fault(self, answer: str, made: ChoiceQuestion) -> str:
        letter = _LETTER.fullmatch(answer)
        if letter is None:
            return "it is not one letter"
        return "" if letter[1].upper() == self.solution(made) else "it is another option"

    def solution(self, made: ChoiceQuestion) -> str:
        return LETTERS[made.right]


def _ask_about_units(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    small, large, factor = draws.one(_MATERIAL.units)
    count = size.most // 40 + draws.below(size.most)
    return UnshuffledQuestion(
        topic="units",
        text=f"One {large} has {factor:,} {small}. How many {small} are as much as {count} times a {large}?",
        options=tuple(f"{(count + slip) * factor:,}" for slip in _draw_slips(draws, options)),
    )


def _ask_about_dates(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    first = date(1950, 1, 1) + timedelta(days=draws.below(36_525))
    days = size.most // 40 + draws.below(size.most // 2)
    return UnshuffledQuestion(
        topic="dates",
        text=f"Which date is {days} days after {_write_date(first)}?",
        options=tuple(_write_date(first + timedelta(days=days + slip)) for slip in _draw_slips(draws, options)),
    )


def _write_date(day: date) -> str:
    return f"{day.day} {_MATERIAL.months[day.month - 1]} {day.year}"


def _ask_about_sets(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    one, other = set(draws.some(_MATERIAL.things, size.things)), set(draws.some(_MATERIAL.things, size.things))
    first, second = draws.some(_MATERIAL.names, 2)
    found = {
        f"do {first} and {second} both have": one & other,
        f"does {first} have and {second} not": one - other,
        f"does exactly one of {first} and {second} have": one ^ other,
        f"does at least one of {first} and {second} have": one | other,
    }
    asked = draws.one(tuple(found))
    lists = [f"{name} has: {', '.join(sorted(things))}." for name, things in ((first, one), (second, other))]
    return UnshuffledQuestion(
        topic="sets",
        text=f"{' '.join(lists)} How many different things {asked}?",
        options=tuple(str(len(found[asked]) + slip) for slip in _draw_slips(draws, options, least=-len(found[asked]))),
    )


def _ask_about_order(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    people = draws.some(_MATERIAL.names, max(options, size.people))
    comparison = draws.one(_MATERIAL.comparisons)
    said = [f"{one} {comparison} {behind}." for one, behind in pairwise(people)]
    place = draws.below(len(people))
    ordinal = ("last", "first", "second", "third", "fourth", "fifth")[(place + 1) % len(people)]
    right = people.pop(place)
    return UnshuffledQuestion(
        topic="orders",
        text=f"{' '.join(draws.shuffled(said))} When all stand in a row so that everybody {comparison} all those "
        f"behind, who comes {ordinal}?",
        options=(right, *draws.some(people, options - 1)),
    )


def _ask_about_table(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    places = draws.some(_MATERIAL.places, max(options, size.people))
    first, second = draws.some(_MATERIAL.things, 2)
    stock = {place: (10 + draws.below(90), 10 + draws.below(90)) for place in places}
    rows = "\n".join(f"{place}: {one} {first}s, {two} {second}s" for place, (one, two) in stock.items())
    by_sum = sorted(places, key=lambda place: sum(stock[place]))
    if sum(stock[by_sum[-1]]) == sum(stock[by_sum[-2]]):
        return _ask_about_table(draws, options, size)
    return UnshuffledQuestion(
        topic="tables",
        text=f"A shop in each town counts its stock.\n{rows}\nWhere are there most {first}s and {second}s together?",
        options=(by_sum[-1], *draws.some(by_sum[:-1], options - 1)),
    )


_TOPICS: Final[Sequence[Callable[[SeededRandom, int, QuestionSize], UnshuffledQuestion]]] = (
    _ask_about_units,
    _ask_about_dates,
    _ask_about_sets,
    _ask_about_order,
    _ask_about_table,
)


def _draw_slips(draws: SeededRandom, options: int, least: int = -MOST_OPTIONS) -> tuple[int, ...]:
    """Offsets of the options from the right one, which comes first. They are consecutive and the right one may have any
    rank, so choosing the middle one does not help. None is below `least`."""
    lowest = max(least, draws.below(options) - options + 1)
    return (0, *(slip for slip in range(lowest, lowest + options) if slip))
