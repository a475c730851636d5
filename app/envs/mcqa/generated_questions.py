"""Questions that are generated around their answers: units, dates, sets, orders and tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom

MOST_OPTIONS: Final = 6


class QuestionMaterial(Frozen):
    names: tuple[str, ...]
    things: tuple[str, ...]
    places: tuple[str, ...]
    months: tuple[str, ...]
    comparisons: tuple[tuple[str, str], ...]
    """Pairs: said of one and the other, and of the other and the one."""
    ordinals: tuple[str, ...]
    units: tuple[tuple[str, str, int], ...]
    """Small unit, large unit, and how many small ones make a large one."""


MATERIAL: Final = read_packaged_data(Path(__file__).with_name("material.yaml"), TypeAdapter(QuestionMaterial))


class QuestionSize(Frozen):
    most: int
    """Rough upper bound of the numbers in a question."""
    things: int
    """Fewest in a list; it has up to `MORE_THINGS` more."""
    besides: int
    """People and places that are no option."""


MORE_THINGS: Final = 4

_SIZES: Final[Mapping[Level, QuestionSize]] = {
    "easy": QuestionSize(most=80, things=MOST_OPTIONS - 1, besides=0),
    "medium": QuestionSize(most=400, things=9, besides=2),
    "hard": QuestionSize(most=9_000, things=13, besides=4),
}


@dataclass(frozen=True)
class UnshuffledQuestion:
    """A question before its options are shuffled: they are all different, the right one first."""

    topic: str
    text: str
    options: tuple[str, ...]


def draw_question(draws: SeededRandom, options: int, level: Level) -> UnshuffledQuestion:
    """Of a random topic."""
    return draws.one(_TOPICS)(draws, options, _SIZES[level])


def _ask_about_units(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    small, large, factor = draws.one(MATERIAL.units)
    count = options + size.most // 40 + draws.below(size.most)
    return UnshuffledQuestion(
        topic="units",
        text=f"One {large} has {factor:,} {small}. How many {small} are as much as {count} times a {large}?",
        options=tuple(f"{(count + slip) * factor:,}" for slip in _draw_slips(draws, options)),
    )


def _ask_about_dates(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    first = date(1950, 1, 1) + timedelta(days=draws.below(36_525))
    days = options + size.most // 40 + draws.below(size.most // 2)
    return UnshuffledQuestion(
        topic="dates",
        text=f"Which date is {days} days after {_write_date(first)}?",
        options=tuple(_write_date(first + timedelta(days=days + slip)) for slip in _draw_slips(draws, options)),
    )


def _write_date(day: date) -> str:
    return f"{day.day} {MATERIAL.months[day.month - 1]} {day.year}"


def _ask_about_sets(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    """The options are what the answer would be with each of several numbers of shared things, all of which are equally
    likely, whatever is asked and however long the lists are."""
    one, other = (size.things + draws.below(MORE_THINGS + 1) for _ in range(2))
    fewest = draws.below(min(one, other) - options + 2)
    possible = draws.shuffled(range(fewest, fewest + options))
    first, second = draws.some(MATERIAL.names, 2)
    counts: Mapping[str, Callable[[int], int]] = {
        f"do {first} and {second} both have": lambda shared: shared,
        f"does {first} have and {second} not": lambda shared: one - shared,
        f"does exactly one of {first} and {second} have": lambda shared: one + other - 2 * shared,
        f"does at least one of {first} and {second} have": lambda shared: one + other - shared,
    }
    asked = draws.one(tuple(counts))
    things = draws.some(MATERIAL.things, one + other - possible[0])
    lists = [
        f"{name} has: {', '.join(sorted(own))}." for name, own in ((first, things[:one]), (second, things[-other:]))
    ]
    return UnshuffledQuestion(
        topic="sets",
        text=f"{' '.join(lists)} How many different things {asked}?",
        options=tuple(str(counts[asked](shared)) for shared in possible),
    )


def _ask_about_order(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    """The first and the last are no options: they are the only ones that are mentioned once."""
    people = draws.some(MATERIAL.names, options + 2 + size.besides)
    comparison = draws.one(MATERIAL.comparisons)
    places = draws.some(range(1, len(people) - 1), options)
    possible = tuple(people[place] for place in places)
    return UnshuffledQuestion(
        topic="orders",
        text=f"{_compare_neighbours(draws, people, comparison, possible)} When all stand in a row so that everybody "
        f"{comparison[0]} all those behind, who comes {MATERIAL.ordinals[places[0]]}?",
        options=possible,
    )


def _compare_neighbours(
    draws: SeededRandom, people: Sequence[str], comparison: tuple[str, str], options: Sequence[str]
) -> str:
    """The right option is, among the options, the first to the last with equal chance to be mentioned, and to be
    mentioned for the last time. In any order, those near the ends of the row would come a little more often first."""
    rank, right = draws.below(len(options)), options[0]
    while True:
        turned = [(pair, draws.below(2)) for pair in pairwise(people)]
        said = [f"{pair[turn]} {comparison[turn]} {pair[1 - turn]}." for pair, turn in turned]
        text = " ".join(draws.shuffled(said))
        ranks = [sum(find(option) < find(right) for option in options) for find in (text.find, text.rfind)]
        if ranks == [rank, rank]:
            return text


def _ask_about_table(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    """The more a place has of one thing, the less it has of the other. The place with most of both is drawn, so its
    rank in either column, and whether it has the largest number of all, say nothing."""
    count = options + size.besides
    places, chosen = draws.some(MATERIAL.places, count), draws.some(range(count), options)
    first, second = draws.some(MATERIAL.things, 2)
    step = max(16, size.most // 20)
    rising = list(accumulate(step + draws.below(step) for _ in range(count)))
    total = rising[0] + rising[-1] + draws.below(2 * step)
    short = [0 if place == chosen[0] else 1 + draws.below(step // 4) for place in range(count)]
    stock = [(one, total - one - less) for one, less in zip(rising, short, strict=True)]
    rows = [f"{place}: {one} {first}s, {two} {second}s" for place, (one, two) in zip(places, stock, strict=True)]
    return UnshuffledQuestion(
        topic="tables",
        text="A shop in each town counts its stock.\n"
        + "\n".join(draws.shuffled(rows))
        + f"\nWhere are there most {first}s and {second}s together?",
        options=tuple(places[place] for place in chosen),
    )


_TOPICS: Final[Sequence[Callable[[SeededRandom, int, QuestionSize], UnshuffledQuestion]]] = (
    _ask_about_units,
    _ask_about_dates,
    _ask_about_sets,
    _ask_about_order,
    _ask_about_table,
)


def _draw_slips(draws: SeededRandom, options: int) -> tuple[int, ...]:
    """Offsets of the options from the right one, which comes first. They are consecutive and the right one may have any
    rank, so choosing the middle one does not help."""
    lowest = draws.below(options) - options + 1
    return (0, *(slip for slip in range(lowest, lowest + options) if slip))
