"""Arithmetic word problems of stories, written or composed: endless for training, a fixed set apart for testing."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Annotated, Self

from pydantic import Field

from app.domain.values import Frozen, Split
from app.envs.gsm8k.stories import Story
from app.envs.gsm8k.story_chains import StoryChains
from app.toolkit.package_data import read_yaml
from app.toolkit.seeded import SeededRandom, is_held_out

TEST_SIZE = 1_000
TEST_SHARE = 10
"""One in so many number sets of a story is held out for testing."""

MOST_DRAWS = 20_000
"""Far more attempts than a usable story needs."""

DRAWS_OF_ONE_STORY = 1_000
COMPOSED_SHARE = 80
"""Percent of the problems whose stories are composed of parts."""

_OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}


class StoryBook(Frozen):
    names: Annotated[tuple[str, ...], Field(min_length=3)]
    stories: Annotated[tuple[Story, ...], Field(min_length=1)]
    chains: StoryChains | None = None


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
    def read(cls, stories: Path, chains: Path) -> Self:
        """pydantic.ValidationError when a file is not what it should be."""
        composed = StoryChains.model_validate(read_yaml(chains))
        return cls(StoryBook.model_validate(read_yaml(stories)).model_copy(update={"chains": composed}))

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
        for attempt in range(MOST_DRAWS):
            if attempt % DRAWS_OF_ONE_STORY == 0:
                story = self._choose_story(f"{split} {index}", attempt // DRAWS_OF_ONE_STORY)
                spans = {name: range(span[0], span[1] + 1, *span[2:]) for name, span in story.numbers.items()}
            draws = SeededRandom(f"{split} {index} {attempt}")
            numbers = {name: draws.one(span) for name, span in spans.items()}
            if (
                _choose_split(story, numbers) == split
                and _solve_story(story, numbers)
                and not _gives_away(story, numbers)
            ):
                return _write_problem(story, numbers, self._draw_words(story, draws))
        raise ValueError(f"no numbers of story {story.name} give positive whole results")

    def _choose_story(self, seed: str, again: int) -> Story:
        """A written story stays the same; a composed one, for which no numbers fit, makes way for another."""
        draws = SeededRandom(seed)
        if self.book.chains is not None and draws.chance(COMPOSED_SHARE):
            return self.book.chains.compose(SeededRandom(f"{seed} chain {again}"))
        return draws.one(self.book.stories)

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


def _gives_away(story: Story, numbers: Mapping[str, int]) -> bool:
    """Whether the answer is one of the numbers in the text."""
    return numbers["answer"] in [numbers[name] for name in story.slots if name in numbers]


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
