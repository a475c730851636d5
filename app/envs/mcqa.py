"""Multiple choice: a question that can be worked out, and one option of several that is right.

    prompt   Lena is taller than Ivo. Rosa is taller than Lena. … Who comes second?   A. Ivo   B. Lena   C. Rosa …
    reply    <think>Rosa, Lena, Ivo.</think> <answer>B</answer>
    reward   1.0   that letter

Questions are generated: units, dates, sets, orders and tables. Where the right option stands is even, and so is its
place among the numbers or dates offered: a constant letter, or always the middle one, is right once in as many tasks as
there are options. Only one letter counts: a word that begins with it, two letters or the option's text do not.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, Field, TypeAdapter

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Frozen, Split, WholeNumber
from app.draws import Draws, drawn_apart
from app.grading.committed import grade_committed
from app.packaged import packaged_data
from app.ports import Environment, Tools
from app.prompts import Phrasings, digest_of_model

_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
LETTERS = "ABCDEF"
MOST_OPTIONS = len(LETTERS)
TEST_SIZE = 1_000


class Material(Frozen):
    names: tuple[str, ...]
    things: tuple[str, ...]
    places: tuple[str, ...]
    months: tuple[str, ...]
    comparisons: tuple[str, ...]
    units: tuple[tuple[str, str, int], ...]
    """A small unit, a large one, and how many of the one make the other."""


_FOLDER = Path(__file__).with_suffix("")
_PHRASINGS = Phrasings.read(_FOLDER / "prompts.yaml")
_MATERIAL = packaged_data(_FOLDER / "material.yaml", TypeAdapter(Material))


class Params(Frozen):
    options: Annotated[WholeNumber, Field(ge=3, le=6)] = 5


class Question(Frozen):
    topic: str
    text: str
    options: tuple[str, ...]
    """All different, the right one first."""


class Mcqa(Environment):
    name: ClassVar[str] = "mcqa"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params
    stats_label: ClassVar[str | None] = "topic"

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest, "material": digest_of_model(_MATERIAL)}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = Params.model_validate(params, from_attributes=True)
        seed = f"mcqa {index}"
        asked = drawn_apart(
            seed,
            split == "test",
            lambda draws: draws.one(_TOPICS)(draws, chosen.options),
            lambda made: made.text,
        )
        draws = Draws(f"{seed} {split} {chosen.options}")
        options = draws.shuffled(asked.options)
        listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
        return Task(
            messages=(Message(role="user", content=_PHRASINGS.say(draws, question=asked.text, options=listed)),),
            metadata={"topic": asked.topic},
            reference=LETTERS[options.index(asked.options[0])],
        )

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        right = str(task.reference)
        return [grade_committed(completion.answer, lambda answer: _fault(answer, right)) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=f"<answer>{task.reference}</answer>")


def _fault(answer: str, right: str) -> str:
    letter = _LETTER.fullmatch(answer)
    if letter is None:
        return "it is not one letter"
    return "" if letter[1].upper() == right else "it is another option"


def _units(draws: Draws, options: int) -> Question:
    small, large, factor = draws.one(_MATERIAL.units)
    count = 10 + draws.below(390)
    return Question(
        topic="units",
        text=f"One {large} has {factor:,} {small}. How many {small} are as much as {count} times a {large}?",
        options=tuple(f"{(count + slip) * factor:,}" for slip in _slips(draws, options)),
    )


def _dates(draws: Draws, options: int) -> Question:
    first = date(1950, 1, 1) + timedelta(days=draws.below(36_525))
    days = 10 + draws.below(190)
    return Question(
        topic="dates",
        text=f"Which date is {days} days after {_written(first)}?",
        options=tuple(_written(first + timedelta(days=days + slip)) for slip in _slips(draws, options)),
    )


def _written(day: date) -> str:
    return f"{day.day} {_MATERIAL.months[day.month - 1]} {day.year}"


def _sets(draws: Draws, options: int) -> Question:
    one, other = set(draws.some(_MATERIAL.things, 9)), set(draws.some(_MATERIAL.things, 9))
    first, second = draws.some(_MATERIAL.names, 2)
    found = {
        f"do {first} and {second} both have": one & other,
        f"does {first} have and {second} not": one - other,
        f"does exactly one of {first} and {second} have": one ^ other,
        f"does at least one of {first} and {second} have": one | other,
    }
    asked = draws.one(tuple(found))
    lists = [f"{name} has: {', '.join(sorted(things))}." for name, things in ((first, one), (second, other))]
    return Question(
        topic="sets",
        text=f"{' '.join(lists)} How many different things {asked}?",
        options=tuple(str(len(found[asked]) + slip) for slip in _slips(draws, options, least=-len(found[asked]))),
    )


def _orders(draws: Draws, options: int) -> Question:
    people = draws.some(_MATERIAL.names, MOST_OPTIONS)
    comparison = draws.one(_MATERIAL.comparisons)
    said = [f"{one} {comparison} {behind}." for one, behind in pairwise(people)]
    place = draws.below(len(people))
    ordinal = ("first", "second", "third", "fourth", "fifth", "last")[place]
    right = people.pop(place)
    return Question(
        topic="orders",
        text=f"{' '.join(draws.shuffled(said))} When the six stand in a row so that everybody {comparison} all those "
        f"behind, who comes {ordinal}?",
        options=(right, *draws.some(people, options - 1)),
    )


def _tables(draws: Draws, options: int) -> Question:
    places = draws.some(_MATERIAL.places, MOST_OPTIONS)
    first, second = draws.some(_MATERIAL.things, 2)
    stock = {place: (10 + draws.below(90), 10 + draws.below(90)) for place in places}
    rows = "\n".join(f"{place}: {one} {first}s, {two} {second}s" for place, (one, two) in stock.items())
    by_sum = sorted(places, key=lambda place: sum(stock[place]))
    if sum(stock[by_sum[-1]]) == sum(stock[by_sum[-2]]):
        return _tables(draws, options)
    return Question(
        topic="tables",
        text=f"A shop in each town counts its stock.\n{rows}\nWhere are there most {first}s and {second}s together?",
        options=(by_sum[-1], *draws.some(by_sum[:-1], options - 1)),
    )


_TOPICS: Final[Sequence[Callable[[Draws, int], Question]]] = (_units, _dates, _sets, _orders, _tables)


def _slips(draws: Draws, options: int, least: int = -MOST_OPTIONS) -> tuple[int, ...]:
    """How far each option is from the right one, which comes first: neighbours, among which the right one may stand
    anywhere, so that taking the middle one helps nobody. None is below `least`."""
    lowest = max(least, draws.below(options) - options + 1)
    return (0, *(slip for slip in range(lowest, lowest + options) if slip))
