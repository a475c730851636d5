r"""Grade-school mathematics: solve a word problem and commit to one number.

    prompt   system: Solve the problem. … finish with a line of the form `#### <answer>` …
             user:   Luca bakes 12 trays of buns, with 16 on every tray. By noon 10 of them have been sold. …
    reply    <think>12 * 16 is 192</think> 192 buns less 10 leave 182; in boxes of 7 that makes 26 boxes.
             #### 26
    reward   1.0     "read 26 from the #### line; correct"

Also paid: `\boxed{26}`, `the answer is 26`, `#### 52/2`. Not paid: `#### 26 or 27`, `\boxed{26} \boxed{27}`, a
reply that says 26 without committing to it, an answer inside the thinking. `app.toolkit.answers`
has the whole rule; values are compared exactly, without `eval`.

Rows of configured data sets replace the tasks. Without them the tasks are generated `arithmetic_word` problems, which
are not GSM8K; their metadata say so. Sentences with numbers that do not matter are among them, and no text shows its
answer as a number. `level: first` has sums of one step.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from pathlib import Path
from string import Formatter
from threading import Lock
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import Frozen, Name, Split, digest_of_model
from app.ports import Tools
from app.toolkit.answers import grade_number, read_number
from app.toolkit.procedural import DatasetEnvironment, DatasetParams
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import read_yaml
from app.toolkit.thoughts import map_completions

# Stories: a text with slots, the numbers in them, and the steps that solve it.

_Formula = Annotated[str, Field(pattern=r"^\w+ = \w+((?: [-+] \w+)+|(?: [*/] \w+)+)$")]
"""Evaluated from left to right; sums and products are never mixed, so there is only one reading."""

_Range = Annotated[tuple[int, ...], Field(min_length=2, max_length=3)]
"""Lowest, highest, and the step between."""


class SolutionStep(Frozen):
    """One line of the worked solution: what is found, and the formula that finds it."""

    says: str
    does: _Formula


class Story(Frozen):
    name: Name
    numbers: dict[str, _Range]
    words: dict[str, tuple[str, ...]] = {}
    given: tuple[_Formula, ...] = ()
    text: str
    steps: Annotated[tuple[SolutionStep, ...], Field(min_length=1)]

    @cached_property
    def slots(self) -> frozenset[str]:
        """Names of what stands in the text."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.text) if name)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        shown = [*"ABC", *self.words, *self.numbers, *(formula.split()[0] for formula in self.given)]
        computed = [step.does.split()[0] for step in self.steps]
        if len({*shown, *computed}) < len(shown) + len(computed):
            raise ValueError(f"{self.name} uses a name twice")
        if not self.slots <= {*shown}:
            raise ValueError(f"the text of {self.name} uses a number that only the solution computes")
        if computed[-1] != "answer":
            raise ValueError(f"the last step of {self.name} must compute `answer`")
        return self


# Composed stories: a beginning, changes, asides that do not matter, and a question.

_MOST_CHANGES: Final = 4
_MOST_ASIDES: Final = 2
_WORD: Final = re.compile(r"[a-z]\w*")
_SLOT: Final = re.compile(r"\{([a-z]\w*)\}")


class Theme(Frozen):
    """What a story is about. `gains` and `loses` are verbs before a number, `spoils` ends a sentence about some of the
    things."""

    name: Name
    things: str
    packs: str
    others: str
    """Other things, which no question is about."""
    gains: tuple[str, ...]
    loses: tuple[str, ...]
    spoils: str


class StoryPart(Frozen):
    """One or two sentences and the steps that work them out. Names of its numbers and steps are its own, but for `now`,
    `before`, `start` and `other`."""

    numbers: dict[str, _Range] = {}
    texts: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: tuple[SolutionStep, ...] = ()

    @property
    def needs_other(self) -> bool:
        """Whether it reckons with {B}'s number."""
        return any("other" in step.does.split() for step in self.steps) and "other" not in self.numbers


class StoryChains(Frozen):
    themes: Annotated[tuple[Theme, ...], Field(min_length=1)]
    beginnings: Annotated[tuple[StoryPart, ...], Field(min_length=1)]
    changes: Annotated[tuple[StoryPart, ...], Field(min_length=1)]
    questions: Annotated[tuple[StoryPart, ...], Field(min_length=1)]
    asides: tuple[StoryPart, ...] = ()

    def compose(self, draws: SeededRandom) -> Story:
        """Pure. The story's name says of which parts it is composed, not how they are worded."""
        theme, beginning = draws.one(self.themes), draws.one(self.beginnings)
        askable = [each for each in self.questions if "other" in beginning.numbers or not each.needs_other]
        question = draws.one(askable)
        fewest = 1 if beginning.steps or question.steps else 2
        changes = draws.some(self.changes, fewest + draws.below(_MOST_CHANGES - fewest + 1))
        parts = [beginning, *changes, question]
        numbers, texts, steps = _join_parts(parts, draws)
        for number, aside in enumerate(draws.some(self.asides, draws.below(_MOST_ASIDES + 1))):
            names = {name: f"aside_{name}{number}" for name in aside.numbers}
            texts.insert(1 + draws.below(len(texts) - 1), _rename_slots(draws.one(aside.texts), names))
            numbers |= {names[name]: span for name, span in aside.numbers.items()}
        ways = [self.beginnings.index(beginning), *map(self.changes.index, changes), self.questions.index(question)]
        return Story(
            name=f"{theme.name}-{'-'.join(map(str, ways))}",
            numbers=numbers,
            words={
                **{name: (getattr(theme, name),) for name in ("things", "packs", "others", "spoils")},
                "gains": theme.gains,
                "loses": theme.loses,
            },
            text=" ".join(texts),
            steps=tuple(steps),
        )


def _join_parts(
    parts: Sequence[StoryPart], draws: SeededRandom
) -> tuple[dict[str, _Range], list[str], list[SolutionStep]]:
    """Numbers, sentences and steps of parts, every name with the place of its part."""
    numbers: dict[str, _Range] = {}
    texts, steps = [], []
    for number, part in enumerate(parts):
        own = (*part.numbers, *(step.does.split()[0] for step in part.steps))
        names = {name: f"{name}{number}" for name in own} | {"answer": "answer"}
        names |= {"before": f"now{number - 1}", "start": "now0"} | ({} if "other" in own else {"other": "other0"})
        numbers |= {names[name]: span for name, span in part.numbers.items()}
        texts.append(_rename_slots(draws.one(part.texts), names))
        steps += [SolutionStep(says=step.says, does=_rename_words(step.does, names)) for step in part.steps]
    if not parts[-1].steps:
        steps[-1] = SolutionStep(says=steps[-1].says, does=f"answer = {steps[-1].does.partition(' = ')[2]}")
    return numbers, texts, steps


def _rename_slots(text: str, names: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda slot: "{" + names.get(slot[1], slot[1]) + "}", text)


def _rename_words(formula: str, names: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: names.get(word[0], word[0]), formula)


# Word problems of stories, written or composed: endless for training, a fixed set apart for testing.

TEST_SIZE = 1_000
_TEST_SHARE = 10
"""One in so many number sets of a story is held out for testing."""

_MOST_DRAWS = 20_000
"""Far more attempts than a usable story needs."""

_DRAWS_OF_ONE_STORY = 1_000
_COMPOSED_SHARE = 80
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
    def read(cls, stories: Path, chains: Path | None = None) -> Self:
        """pydantic.ValidationError when a file is not what it should be."""
        composed = None if chains is None else StoryChains.model_validate(read_yaml(chains))
        return cls(StoryBook.model_validate(read_yaml(stories)).model_copy(update={"chains": composed}))

    def problem(self, split: Split, index: int) -> WordProblem:
        """`index` is any non-negative integer for train and below TEST_SIZE for test. ValueError if the stories yield
        too few problems."""
        return self._find_test_problem(index) if split == "test" else self._draw_problem("train", index)

    def _find_test_problem(self, index: int) -> WordProblem:
        if index >= TEST_SIZE:
            raise IndexError(index)
        with self._drawing:  # several threads may ask for tasks, and each would draw the same problems again
            while len(self._test_problems) <= index:
                if self._drawn == _MOST_DRAWS:
                    raise ValueError(f"the stories yield fewer than {TEST_SIZE} different test problems")
                problem = self._draw_problem("test", self._drawn)
                self._test_problems.setdefault(problem.question, problem)
                self._drawn += 1
            return next(islice(self._test_problems.values(), index, None))

    def _draw_problem(self, split: Split, index: int) -> WordProblem:
        for attempt in range(_MOST_DRAWS):
            if attempt % _DRAWS_OF_ONE_STORY == 0:
                story = self._choose_story(f"{split} {index}", attempt // _DRAWS_OF_ONE_STORY)
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
        if self.book.chains is not None and draws.chance(_COMPOSED_SHARE):
            return self.book.chains.compose(SeededRandom(f"{seed} chain {again}"))
        return draws.one(self.book.stories)

    def _draw_words(self, story: Story, draws: SeededRandom) -> dict[str, str]:
        names = list(self.book.names)
        people = {letter: names.pop(draws.below(len(names))) for letter in "ABC"}
        return people | {word: choices[draws.below(len(choices))] for word, choices in story.words.items()}


def _choose_split(story: Story, numbers: Mapping[str, int]) -> Split:
    """Decided by story and numbers, so that no story has the same numbers in both splits."""
    seed = " ".join([story.name, *(f"{name}={value}" for name, value in numbers.items())])
    return "test" if is_held_out(seed, _TEST_SHARE) else "train"


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


# The environment.

STORIES = Path(__file__).with_name("stories.yaml")
CHAINS = Path(__file__).with_name("chains.yaml")
FIRST_STEPS = Path(__file__).with_name("first_steps.yaml")
_GENERATED = "arithmetic_word"

INSTRUCTION = (
    "Solve the problem. Reason step by step, then finish with a line of the form `#### <answer>`, "
    "where <answer> is a single number and nothing else."
)


class Gsm8kParams(DatasetParams):
    level: Annotated[Literal["first"] | None, Field(exclude_if=lambda level: level is None)] = None
    """`first`: sums of one step, which a model of 135 M parameters sometimes solves. By default two steps or more. Rows
    of data sets have no levels."""


class Gsm8kRow(BaseModel):
    """One row of GSM8K: a solution in prose whose last line is `#### <gold>`."""

    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1)]
    answer: str

    @field_validator("answer")
    @classmethod
    def _check_answer(cls, answer: str) -> str:
        if read_number(answer).value is None:
            raise ValueError("the solution does not end in `#### <number>`")
        return answer


class Gsm8k(DatasetEnvironment[Gsm8kRow]):
    name: ClassVar[str] = "gsm8k"
    version: ClassVar[str] = "4"
    scores_at_once: ClassVar[bool] = True
    chance: ClassVar[float] = 0.01
    answers_are_values: ClassVar[bool] = True
    Params: ClassVar[type[BaseModel]] = Gsm8kParams
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (Gsm8kRow,)
    hub_subset: ClassVar[str | None] = "main"

    def __init__(self, datasets: Mapping[str, Dataset[Gsm8kRow]] | None = None) -> None:
        super().__init__(datasets)
        self._problems = {None: WordProblems.read(STORIES, CHAINS), "first": WordProblems.read(FIRST_STEPS)}
        """By level."""

    @property
    def own_origin(self) -> str:
        return f"generated ({_GENERATED})"

    @property
    def own_digests(self) -> Mapping[str, str]:
        names = {None: "stories", "first": "first_steps"}
        return {names[level]: digest_of_model(problems.book) for level, problems in self._problems.items()}

    def count_own_tasks(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        level: str | None = getattr(params, "level", None)
        problem = self._problems[level].problem(split, index)
        metadata = {"source": _GENERATED, "split": split, "index": index} | ({"level": level} if level else {})
        return _build_task(problem.question, problem.solution).model_copy(update={"metadata": metadata})

    def build_row_task(self, row: Gsm8kRow, dataset: Dataset[Gsm8kRow], params: BaseModel) -> Task:
        return _build_task(row.question, row.answer)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        gold = _parse_gold(task)
        return await map_completions(group, lambda completion: grade_number(completion.answer, gold))

    def gold(self, task: Task) -> Completion:
        row = self.find_row(task)
        if row is not None:
            return Completion(text=row.answer)
        split: Split = "test" if task.metadata["split"] == "test" else "train"
        problems = self._problems["first" if "level" in task.metadata else None]
        return Completion(text=problems.problem(split, int(str(task.metadata["index"]))).solution)

    def equivalent(self, one: Task, other: Task) -> bool:
        return _parse_gold(one) == _parse_gold(other)


def _build_task(question: str, solution: str) -> Task:
    return Task(
        messages=(Message(role="system", content=INSTRUCTION), Message(role="user", content=question)),
        reference=str(read_number(solution).value),
    )


def _parse_gold(task: Task) -> Fraction:
    return Fraction(str(task.reference))
