"""Multiple choice: answer a question with the letter of the one right option.

    prompt   Lena is taller than Ivo. Rosa is taller than Lena. … Who comes second?   A. Ivo   B. Lena   C. Rosa …
    reply    <think>Rosa, Lena, Ivo.</think> <answer>B</answer>
    reward   1.0   that letter

Questions are generated: units, dates, sets, orders and tables. The answer is drawn first, evenly among the options, and
the question is built around it. So a policy that does not work the question out is right in one of n tasks with n
options. Only a single letter counts, with markup around it or its own option's text behind it (`**B**`, `B. argon`). A
word that begins with the letter, two letters, or the text of the option alone do not.

Rows of configured data sets (MMLU, MMLU-Pro, ARC, GPQA and the like) replace the tasks, with up to 26 options. There
the place of the right option may be uneven, so that always saying C earns more. `shuffle_options` evens it out.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

from app.domain.tasks import Dataset, Message, Task, leave_out
from app.domain.values import Frozen, Split, WholeNumber, digest_of_model
from app.ports.environment import FreeReward
from app.toolkit.answers import (
    LETTERS,
    ChoiceOptions,
    ListedOptions,
    OptionText,
    build_options,
    find_choice_fault,
    list_options,
)
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data

_MOST_OPTIONS: Final = 6
_FIRST_OPTIONS: Final = 3
"""Of a `first` task, at most."""


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


_MATERIAL: Final = read_packaged_data(Path(__file__).with_name("material.yaml"), TypeAdapter(QuestionMaterial))


# Rows of data sets.
#
#     MMLU            question, choices (texts), answer (0 to 3, or a letter), subject
#     MMLU-Pro        question, options (up to 10 texts), answer (A to J), answer_index, category
#     ARC             question, choices (the lists `text` and `label`), answerKey (one of the labels)
#     GPQA            Question, Correct Answer, Incorrect Answer 1 to 3: in an order that a hash of the row chooses
#
# A row is left out where it has no answer, fewer than two options, or two that are the same. No error quotes a row: the
# terms of some data sets forbid to show them.

_BLANKS: Final = re.compile(r"[ \t]{2,}")


class ChoiceRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1)]
    listed: Annotated[ListedOptions, Field(validation_alias=AliasChoices("choices", "options"))]
    answer: Annotated[str | int, Field(validation_alias=AliasChoices("answer", "answerKey"))] = ""
    answer_index: int | None = None
    """Where there is one beside a letter, both must name the same option."""
    topic: Annotated[str, Field(validation_alias=AliasChoices("topic", "subject", "category"))] = ""

    @model_validator(mode="after")
    def _require_right_option(self) -> Self:
        right = self.options
        if self.answer_index is not None and self.listed.choose(self.answer_index) != right:
            raise leave_out("`answer` and `answer_index` name different options")
        return self

    @property
    def options(self) -> ChoiceOptions:
        return self.listed.choose(self.answer)


class UnorderedChoiceRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1, validation_alias="Question")]
    right: Annotated[OptionText, Field(validation_alias="Correct Answer")]
    wrong_1: Annotated[OptionText, Field(validation_alias="Incorrect Answer 1")]
    wrong_2: Annotated[OptionText, Field(validation_alias="Incorrect Answer 2")] = None
    wrong_3: Annotated[OptionText, Field(validation_alias="Incorrect Answer 3")] = None
    topic: Annotated[str, Field(validation_alias="High-level domain")] = ""

    @model_validator(mode="after")
    def _require_right_option(self) -> Self:
        if self.right is None:
            raise leave_out("there is no answer")
        build_options(self._texts, 0)
        return self

    @property
    def options(self) -> ChoiceOptions:
        return shuffle_options(self.question, build_options(self._texts, 0))

    @property
    def _texts(self) -> list[str]:
        """The right one first, with single blanks."""
        texts = (self.right, self.wrong_1, self.wrong_2, self.wrong_3)
        return [_BLANKS.sub(" ", text) for text in texts if text is not None]


def shuffle_options(question: str, options: ChoiceOptions) -> ChoiceOptions:
    """In an order that depends on nothing but what the row says."""
    return options.shuffle(SeededRandom("\n".join(("options", question, *options.texts))))


_FOLDER = Path(__file__).parent


class McqaParams(LevelParams, DatasetParams):
    """`level` and `options` are those of the tasks without a data set."""

    options: Annotated[WholeNumber, Field(ge=3, le=_MOST_OPTIONS)] = 5
    shuffle_options: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Of rows of a data set: their options in another order, which the row alone decides. Generated tasks are always
    shuffled."""


class ChoiceQuestion(Frozen):
    topic: str
    text: str
    options: tuple[str, ...]
    right: int
    """Index of the right option, from 0."""


class Mcqa(DatasetEnvironment[ChoiceRow | UnorderedChoiceRow], ProceduralEnvironment[ChoiceQuestion, McqaParams]):
    name: ClassVar[str] = "mcqa"
    version: ClassVar[str] = "4"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"material": digest_of_model(_MATERIAL)}
    stats_label: ClassVar[str | None] = "topic"
    chance: ClassVar[float] = 0.2
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="constant",
            share=0.25,
            because="One letter of five is right, and a topic has few tasks, so that luck shows.",
        ),
        FreeReward(strategy="near_miss_case", share=None, because="A small letter names the same option."),
    )

    answers_are_values: ClassVar[bool] = True
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (ChoiceRow, UnorderedChoiceRow)

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        if getattr(params, "shuffle_options", False):
            params = params.model_copy(update={"shuffle_options": False})
        return super().build_own_task(split, index, params)

    def build_row_task(
        self,
        row: ChoiceRow | UnorderedChoiceRow,
        dataset: Dataset[ChoiceRow | UnorderedChoiceRow],
        params: BaseModel,
    ) -> Task:
        options = row.options
        if getattr(params, "shuffle_options", False):
            options = shuffle_options(row.question, options)
        made = ChoiceQuestion(topic=row.topic, text=row.question, options=options.texts, right=options.right)
        prompt = self.phrasings.say(SeededRandom(self.key(made)), **self.slots(made))
        return Task(
            messages=(Message(role="user", content=prompt),),
            metadata={"topic": row.topic} if row.topic else {},
            reference=made.model_dump(mode="json"),
        )

    def make(self, draws: SeededRandom, level: Level, params: McqaParams) -> ChoiceQuestion:
        options = min(params.options, _FIRST_OPTIONS) if level == "first" else params.options
        asked = _draw_question(draws, options, level)
        texts = draws.shuffled(asked.options)
        right = texts.index(asked.options[0])
        return ChoiceQuestion(topic=asked.topic, text=asked.text, options=tuple(texts), right=right)

    def key(self, made: ChoiceQuestion) -> str:
        return made.text

    def slots(self, made: ChoiceQuestion) -> Mapping[str, str | int]:
        return {"question": made.text, "options": list_options(made.options)}

    def metadata(self, made: ChoiceQuestion) -> dict[str, JsonValue]:
        return {"topic": made.topic}

    def fault(self, answer: str, made: ChoiceQuestion) -> str:
        return find_choice_fault(answer, ChoiceOptions(texts=made.options, right=made.right))

    def solution(self, made: ChoiceQuestion) -> str:
        return LETTERS[made.right]


# Questions that are generated around their answers: units, dates, sets, orders and tables.


class QuestionSize(Frozen):
    most: int
    """Rough upper bound of the numbers in a question."""
    things: int
    """Fewest in a list; it has up to `_MORE_THINGS` more."""
    besides: int
    """People and places that are no option."""


_MORE_THINGS: Final = 4

_SIZES: Final[Mapping[Level, QuestionSize]] = {
    "first": QuestionSize(most=10, things=_FIRST_OPTIONS - 1, besides=0),
    "easy": QuestionSize(most=80, things=_MOST_OPTIONS - 1, besides=0),
    "medium": QuestionSize(most=400, things=9, besides=2),
    "hard": QuestionSize(most=9_000, things=13, besides=4),
}


@dataclass(frozen=True)
class UnshuffledQuestion:
    """A question before its options are shuffled: they are all different, the right one first."""

    topic: str
    text: str
    options: tuple[str, ...]


def _draw_question(draws: SeededRandom, options: int, level: Level) -> UnshuffledQuestion:
    """Of a random topic."""
    return draws.one(_TOPICS)(draws, options, _SIZES[level])


def _ask_about_units(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    small, large, factor = draws.one(_MATERIAL.units)
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
    return f"{day.day} {_MATERIAL.months[day.month - 1]} {day.year}"


def _ask_about_sets(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    """The options are what the answer would be with each of several numbers of shared things, all of which are equally
    likely, whatever is asked and however long the lists are."""
    one, other = (size.things + draws.below(_MORE_THINGS + 1) for _ in range(2))
    fewest = draws.below(min(one, other) - options + 2)
    possible = draws.shuffled(range(fewest, fewest + options))
    first, second = draws.some(_MATERIAL.names, 2)
    counts: Mapping[str, Callable[[int], int]] = {
        f"do {first} and {second} both have": lambda shared: shared,
        f"does {first} have and {second} not": lambda shared: one - shared,
        f"does exactly one of {first} and {second} have": lambda shared: one + other - 2 * shared,
        f"does at least one of {first} and {second} have": lambda shared: one + other - shared,
    }
    asked = draws.one(tuple(counts))
    things = draws.some(_MATERIAL.things, one + other - possible[0])
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
    people = draws.some(_MATERIAL.names, options + 2 + size.besides)
    comparison = draws.one(_MATERIAL.comparisons)
    positions = draws.some(range(1, len(people) - 1), options)
    possible = tuple(people[position] for position in positions)
    return UnshuffledQuestion(
        topic="orders",
        text=f"{_compare_neighbours(draws, people, comparison, possible)} When all stand in a row so that everybody "
        f"{comparison[0]} all those behind, who comes {_MATERIAL.ordinals[positions[0]]}?",
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
        sentences = [f"{pair[turn]} {comparison[turn]} {pair[1 - turn]}." for pair, turn in turned]
        text = " ".join(draws.shuffled(sentences))
        ranks = [sum(find(option) < find(right) for option in options) for find in (text.find, text.rfind)]
        if ranks == [rank, rank]:
            return text


def _ask_about_table(draws: SeededRandom, options: int, size: QuestionSize) -> UnshuffledQuestion:
    """The more a place has of one thing, the less it has of the other. The place with most of both is drawn, so its
    rank in either column, and whether it has the largest number of all, say nothing."""
    count = options + size.besides
    towns, chosen = draws.some(_MATERIAL.places, count), draws.some(range(count), options)
    first, second = draws.some(_MATERIAL.things, 2)
    step = max(16, size.most // 20)
    rising = list(accumulate(step + draws.below(step) for _ in range(count)))
    total = rising[0] + rising[-1] + draws.below(2 * step)
    short = [0 if place == chosen[0] else 1 + draws.below(step // 4) for place in range(count)]
    stock = [(one, total - one - less) for one, less in zip(rising, short, strict=True)]
    rows = [f"{place}: {one} {first}s, {two} {second}s" for place, (one, two) in zip(towns, stock, strict=True)]
    return UnshuffledQuestion(
        topic="tables",
        text="A shop in each town counts its stock.\n"
        + "\n".join(draws.shuffled(rows))
        + f"\nWhere are there most {first}s and {second}s together?",
        options=tuple(towns[place] for place in chosen),
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
