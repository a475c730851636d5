"""Arithmetic word problems made from story templates: endless for training, a fixed set apart from them for testing."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import Formatter
from threading import Lock
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.domain.values import Frozen, Name, Split
from app.toolkit.package_data import read_yaml
from app.toolkit.seeded import SeededRandom, is_held_out

TEST_SIZE = 1_000
TEST_SHARE = 10
"""One in so many number sets of a story is held out for testing."""

MOST_DRAWS = 20_000
"""Far more attempts than a usable story needs."""

_OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}

Formula = Annotated[str, Field(pattern=r"^\w+ = \w+((?: [-+] \w+)+|(?: [*/] \w+)+)$")]
"""Evaluated from left to right; sums and products are never mixed, so there is only one reading."""

Range = Annotated[tuple[int, ...], Field(min_length=2, max_length=3)]
"""Lowest, highest, and the step between."""


class SolutionStep(Frozen):
    """One line of the worked solution: what is found, and the formula that finds it."""

    says: str
    does: Formula


class Story(Frozen):
    name: Name
    numbers: dict[str, Range]
    words: dict[str, tuple[str, ...]] = {}
    given: tuple[Formula, ...] = ()
    text: str
    steps: Annotated[tuple[SolutionStep, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        shown = [*"ABC", *self.words, *self.numbers, *(formula.split()[0] for formula in self.given)]
        found = [step.does.split()[0] for step in self.steps]
        if len({*shown, *found}) < len(shown) + len(found):
            raise ValueError(f"{self.name} uses a name twice")
        if not {name for _, name, _, _ in Formatter().parse(self.text) if name} <= {*shown}:
            raise ValueError(f"the text of {self.name} uses a number that only the solution computes")
        if found[-1] != "answer":
            raise ValueError(f"the last step of {self.name} must compute `answer`")
        return self


class StoryBook(Frozen):
    names: Annotated[tuple[str, ...], Field(min_length=3)]
    stories: Annotated[tuple[Story, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class WordProblem:
    question: str
    solution: str
    """Worked out step by step; the last line is `#### <answer>`."""
    answer: int


class WordProblems:
    """Problem `index` of a split is a pure function of the story book and the index."""

    def __init__(self, book: StoryBook) -> None:
        self.book = book
        self._drawing = Lock()
        self._drawn = 0
        self._test_problems: dict[str, WordProblem] = {}
        """By question, as far as any was asked for: making all of them takes a tenth of a second."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """pydantic.ValidationError when the file is not a story book."""
        return cls(StoryBook.model_validate(read_yaml(path)))

    def problem(self, split: Split, index: int) -> WordProblem:
        """`index` is any non-negative integer for train and below TEST_SIZE for test. ValueError if the stories yield
        too few problems."""
        return self._find_test_problem(index) if split == "test" else self._draw_problem("train", index)

    def _find_test_problem(self, index: int) -> WordProblem:
        if index >= TEST_SIZE:
            raise IndexError(index)
        with self._drawing:
            while len(self._test_problems) <= index:
                if self._drawn == MOST_DRAWS:
                    raise ValueError(f"the stories yield fewer than {TEST_SIZE} different test problems")
                problem = self._draw_problem("test", self._drawn)
                self._test_problems.setdefault(problem.question, problem)
                self._drawn += 1
            return next(islice(self._test_problems.values(), index, None))

    def _draw_problem(self, split: Split, index: int) -> WordProblem:
        story = self.book.stories[SeededRandom(f"{split} {index}").below(len(self.book.stories))]
        spans = {name: range(span[0], span[1] + 1, *span[2:]) for name, span in story.numbers.items()}
        for attempt in range(MOST_DRAWS):
            draws = SeededRandom(f"{split} {index} {attempt}")
            numbers = {name: draws.one(span) for name, span in spans.items()}
            if _choose_split(story, numbers) == split and _solve_story(story, numbers):
                return _write_problem(story, numbers, self._draw_words(story, draws))
        raise ValueError(f"no numbers of story {story.name} give positive whole results")

    def _draw_words(self, story: Story, draws: SeededRandom) -> dict[str, str]:
        names = list(self.book.names)
        people = {letter: names.pop(draws.below(len(names))) for letter in "ABC"}
        return people | {word: choices[draws.below(len(choices))] for word, choices in story.words.items()}


def _choose_split(story: Story, numbers: Mapping[str, int]) -> Split:
    """Decided by story and numbers, so that no story has the same numbers in both splits."""
    seed = " ".join([story.name, *(f"{name}={value}" for name, value in numbers.items())])
    return "test" if is_held_out(seed, TEST_SHARE) else "train"


def _solve_story(story: Story, numbers: dict[str, int]) -> bool:
    """Adds what is computed to `numbers`; False when a result is not a positive integer."""
    for formula in (*story.given, *(step.does for step in story.steps)):
        name, _, first, *rest = formula.split()
        value = _parse_operand(first, numbers)
        for operator, word in zip(rest[::2], rest[1::2], strict=True):
            operand = _parse_operand(word, numbers)
            if operator == "/" and value % operand:
                return False
            value = _OPERATIONS[operator](value, operand)
        if value <= 0:
            return False
        numbers[name] = value
    return True


def _parse_operand(word: str, numbers: Mapping[str, int]) -> int:
    return int(word) if word.isdecimal() else numbers[word]


def _write_problem(story: Story, numbers: Mapping[str, int], words: Mapping[str, str]) -> WordProblem:
    figures = {name: f"{value:,}" for name, value in numbers.items()}
    lines = []
    for step in story.steps:
        name, _, expression = step.does.partition(" = ")
        worked = " ".join(figures.get(part, part) for part in expression.split())
        lines.append(f"{step.says.format_map(words)}: {worked} = {figures[name]}")
    return WordProblem(
        question=story.text.format_map({**words, **figures}),
        solution="\n".join([*lines, f"#### {numbers['answer']}"]),
        answer=numbers["answer"],
    )
