"""What is paid without the task being done is found, whatever the way; statements must be true."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from app.cli.envs.check import open_tools, run_check
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Frozen
from app.ports.environment import Environment, FreeReward, Tools
from app.toolkit.conformance.checks import CHECKS
from app.toolkit.conformance.strategies import measure_rewards
from app.toolkit.conformance.subject import CheckDepth, CheckSubject, StrategyFigure
from app.toolkit.procedural import Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

DEPTH = CheckDepth(tasks=300, guessed=60)
(CHECK,) = [check for check in CHECKS if check.name == "strategies_earn_what_is_stated"]


class Puzzle(Frozen):
    asked: str
    right: str
    kind: str = ""


class Recall(ProceduralEnvironment[Puzzle, LevelParams]):
    """Nothing but the right answer is paid."""

    name: ClassVar[str] = "recall"
    version: ClassVar[str] = "1"
    phrasings: ClassVar[Phrasings] = Phrasings(["{number}: {asked}"])

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Puzzle:
        return Puzzle(asked="Which number is meant?", right=str(10**8 + draws.below(10**9)))

    def slots(self, made: Puzzle) -> Mapping[str, str | int]:
        return {"asked": made.asked}

    def fault(self, answer: str, made: Puzzle) -> str:
        return "" if self.is_paid(answer, made) else "it is another number"

    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return answer == made.right

    def solution(self, made: Puzzle) -> str:
        return made.right


class Constant(Recall):
    """Half of the answers are yes."""

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Puzzle:
        one = draws.below(10**6)
        return Puzzle(asked=f"Is {one} enough?", right="yes" if draws.chance(50) else str(10**6 + one))


class Choice(Recall):
    """The letter is random, but the kind of question tells which option is right."""

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Puzzle:
        kind = draws.one(("first", "second"))
        options = draws.shuffled([str(number) for number in range(3, 9)])
        listed = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCDEF", options, strict=True))
        right = "ABCDEF"[options.index({"first": "4", "second": "7"}[kind])]
        return Puzzle(asked=f"Where is the {kind}, says {draws.below(10**6)}?\n{listed}", right=right)


class Sum(Recall):
    """The result is what a look at the numbers gives."""

    phrasings: ClassVar[Phrasings] = Phrasings(["{asked}"])

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Puzzle:
        one, other = 1_000 + draws.below(9_000), 100 + draws.below(900)
        return Puzzle(asked=f"There are {one} and {other}. How many are there?", right=str(one + other))


class Rounded(Recall):
    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return answer.isdigit() and answer[:3] == made.right[:3] and len(answer) == len(made.right)


class Lenient(Recall):
    """The right answer anywhere in the reply."""

    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return made.right in answer


class Echoing(Recall):
    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return answer == made.right or made.asked in answer


class Shapely(Recall):
    """Words with the right ends."""

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Puzzle:
        words = ["".join(draws.one("abcdefghij") for _ in range(7)) for _ in range(6)]
        return Puzzle(asked="What was said?", right=" ".join(words))

    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return [word[0] + word[-1] for word in answer.split()] == [word[0] + word[-1] for word in made.right.split()]


class Ranges(Recall):
    """Only one character of each kind is tried."""

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Puzzle:
        seen = "".join(draws.one("ABC") for _ in range(8))
        return Puzzle(asked=f"Which form has {seen}?", right=f"[A-Z]{{{10 + draws.below(10**6)}}}")

    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return answer.startswith("[ABC") or answer == made.right


class Spoken(Recall):
    """Two turns: what a tool told after the first must be named in the second, among whatever else."""

    multi_turn: ClassVar[bool] = True

    def turns(self, made: Puzzle) -> int:
        return 2

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        told = json.dumps({"amount": self.parse_reference(task).right})
        return Turn(messages=(Message(role="tool", content=told),), done=len(messages) > 1)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(self.parse_reference(task).right in completion.answer) for completion in group]

    def gold(self, task: Task) -> Completion:
        first = Message(role="assistant", content="A moment.")
        last = Message(role="assistant", content=f"It is {self.parse_reference(task).right}.")
        return Completion(messages=(first, *self.step(task, (first,)).messages, last))


def _measure(kind: type[Environment]) -> dict[str, StrategyFigure]:
    """Over all tasks, by strategy."""

    async def measure() -> tuple[StrategyFigure, ...]:
        async with open_tools(kind) as tools:
            environment = kind.open(ConfiguredDatasets({}))
            return (await measure_rewards(CheckSubject(environment, environment, tools, DEPTH))).strategies

    return {one.strategy: one for one in asyncio.run(measure()) if one.group == "all"}


PAID: Sequence[tuple[type[Environment], str, float, float]] = (
    (Recall, "", 0.0, 0.0),
    (Constant, "constant", 0.3, 0.7),
    (Choice, "prompt_features", 0.9, 1.0),
    (Sum, "prompt_features", 0.9, 1.0),
    (Rounded, "near_value", 0.9, 1.0),
    (Lenient, "two_answers", 1.0, 1.0),
    (Echoing, "prompt_in_form", 1.0, 1.0),
    (Shapely, "gibberish", 0.9, 1.0),
    (Ranges, "near_miss_range", 1.0, 1.0),
    (Spoken, "hedge", 1.0, 1.0),
)


@pytest.mark.parametrize(("kind", "strategy", "least", "most"), PAID, ids=[kind.__name__ for kind, *_ in PAID])
def test_each_way_to_be_paid_for_nothing_is_found(
    kind: type[Environment], strategy: str, least: float, most: float
) -> None:
    paid = {name: one for name, one in _measure(kind).items() if one.paid > 0}
    worst = max(paid.values(), key=lambda one: one.low, default=None)
    assert (worst.strategy, least <= worst.paid <= most) == (strategy, True) if worst else not strategy


def test_what_is_learnt_is_measured_on_other_tasks() -> None:
    """Of answers that all differ, the best on the tasks that were learnt from earns nothing on others."""
    constant = _measure(Recall)["constant"]
    assert (constant.tasks, constant.paid, round(constant.high, 3)) == (60, 0.0, 0.1)


class Honest(Constant):
    free_rewards: ClassVar[tuple[FreeReward, ...]] = tuple(
        FreeReward(strategy=name, share=0.6, because="Half of the answers are yes.")
        for name in ("constant", "prompt_features", "foreign_answer")
    )


class Exempt(Recall):
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="denied", share=None, because="Here a denial is a joke."),
    )

    def is_paid(self, answer: str, made: Puzzle) -> bool:
        return answer.removesuffix(" is wrong") == made.right


class Outdated(Recall):
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (FreeReward(strategy="echo", share=0.5, because="It was so."),)


class Careless(Recall):
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="hedging", share=0.0, because="There is no such strategy."),
        FreeReward(strategy="echo", share=0.0, because=" "),
        FreeReward(strategy="constant", share=None, because="A constant is never right."),
        FreeReward(strategy="hedge", share=0.0, because="Once."),
        FreeReward(strategy="hedge", share=0.0, because="Twice."),
    )


@pytest.mark.parametrize(
    ("kind", "came"),
    [
        *((Recall, []), (Honest, []), (Exempt, [])),
        (Outdated, ["at most 10.0%"]),
        (
            Careless,
            [
                "there is no strategy 'hedging'",
                "echo has no reason",
                "constant has no share, but sends answers that are not right",
                "hedge is stated more than once",
                "hedge is stated more than once",
            ],
        ),
    ],
)
def test_a_statement_is_readable_and_true(kind: type[Environment], came: list[str]) -> None:
    assert [finding.came for finding in asyncio.run(run_check(kind, CHECK, DEPTH)).findings] == came


def test_more_than_is_stated_is_found_with_its_level_and_interval() -> None:
    found = asyncio.run(run_check(Echoing, CHECK, DEPTH)).findings
    assert [(one.task, one.expected, one.came) for one in found][:1] == [
        ("all: echo, the prompt", "at most 2.0% paid", "100.0% of 60 tasks (99 %: 90.0% to 100.0%)")
    ]
