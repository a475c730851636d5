"""Each check of environments notices what it is there for; an environment without a fault passes them all."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest
from pydantic import BaseModel

from app.cli.envs.check import CheckObserver, run_all_checks, run_check
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Split
from app.ports.environment import Environment, Tools
from app.toolkit.answers import parse_number
from app.toolkit.conformance.checks import CHECKS, MOST_FINDINGS, Check
from app.toolkit.conformance.subject import CheckDepth
from app.toolkit.procedural import Level, LevelParams
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings
from tests.toolkit.test_procedural import Sum
from tests.toolkit.test_procedural import Sums as SmallSums

DEPTH = CheckDepth(tasks=60, scored=40, sample=6, texts=60, guessed=30)


class Sums(SmallSums):
    """Hardly two of them have the same result."""

    phrasings: ClassVar[Phrasings] = Phrasings(["{number}: what is {one} + {other}?"])

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Sum:
        return Sum(one=draws.below(10**6), other=draws.below(10**6))

    def fault(self, answer: str, made: Sum) -> str:
        return "" if parse_number(answer) == int(self.solution(made)) else "it is another number"


class Unnamed(Sums):
    name: ClassVar[str] = "Sums & More"
    version: ClassVar[str] = ""


class Moody(Sums):
    """A task knows how often one was made."""

    made_so_far: ClassVar[list[int]] = []

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        self.made_so_far.append(index)
        said = Message(role="user", content=f"{split} {index}, {len(self.made_so_far)}")
        return super().task(split, index, params).model_copy(update={"messages": (said,)})


class Shared(Sums):
    """Both splits are one."""

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return super().task("train", index, params)


class Monotonous(Sums):
    phrasings: ClassVar[Phrasings] = Phrasings(["What is the sum?"])


class Talkative(Sums):
    """The reference stands in the metadata."""

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        task = super().task(split, index, params)
        return task.model_copy(update={"metadata": {**task.metadata, "for_debugging": task.reference}})


class Mislabelled(Sums):
    def label(self, split: Split, index: int, params: BaseModel) -> str:
        return "sums"


class Mistaken(Sums):
    def gold(self, task: Task) -> Completion:
        return Completion(text="<answer>7</answer>")


class Constant(Sums):
    """Every answer is 0 or 1."""

    def solution(self, made: Sum) -> str:
        return str((made.one + made.other) % 2)


class Near(Sums):
    """Whatever has the right last digit is paid, and that is said to happen often; the tasks are said to be apart."""

    chance: ClassVar[float] = 0.5

    def fault(self, answer: str, made: Sum) -> str:
        return "" if answer[-1:] == self.solution(made)[-1] else "it is another number"


class Single(Sums):
    """With nobody else's answer."""

    def size(self, split: Split, params: BaseModel) -> int:
        return 1


class Careless(Sums):
    """The answer is looked for anywhere."""

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(self.solution(self.parse_reference(task)) in completion.answer) for completion in group]


class Fragile(Sums):
    def fault(self, answer: str, made: Sum) -> str:
        return "" if int(answer) == made.one + made.other else "it is another number"


class Sleepy(Sums):
    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return (await super().score(task, group, tools))[:1]


class Tired(Sums):
    """Pays less each time."""

    scored: ClassVar[list[int]] = []

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.scored.append(len(group))
        return [Score.exact(True, rationale=str(len(self.scored))) for _ in group]


class Endless(Sums):
    multi_turn: ClassVar[bool] = True

    def turns(self, made: Sum) -> int:
        return 3

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        return Turn(messages=(Message(role="user", content="Go on."),), done=False)

    def turn_rewards(self, task: Task, messages: Sequence[Message]) -> Sequence[float | None]:
        return [1 / len(messages)]


BITES: Mapping[str, type[Environment]] = {
    "says_what_it_is": Unnamed,
    "the_same_bytes": Moody,
    "splits_stay_apart": Shared,
    "tasks_differ": Monotonous,
    "the_answer_is_hidden": Talkative,
    "labels_agree": Mislabelled,
    "gold_earns_one": Mistaken,
    "strangers_earn_nothing": Constant,
    "junk_earns_nothing": Tired,
    "strategies_earn_what_is_stated": Near,
    "right_answers_are_paid_in_any_spelling": Sleepy,
    "no_text_breaks_it": Fragile,
    "scores_come_in_order": Sleepy,
    "scoring_twice_says_the_same": Tired,
    "episodes_end": Endless,
    "what_is_forged_is_refused": Endless,
    "turns_are_rewarded_once": Endless,
}


def test_every_check_has_a_fault_here_that_it_finds() -> None:
    assert list(BITES) == [check.name for check in CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_finds_its_fault_and_says_how_to_mend_it(check: Check) -> None:
    found = asyncio.run(run_check(BITES[check.name], check, DEPTH))
    assert 0 < len(found.findings) <= MOST_FINDINGS
    assert [finding for finding in found.findings if not (finding.expected and finding.came and finding.mend)] == []


def test_an_environment_without_a_fault_passes_them_all() -> None:
    found = [asyncio.run(run_check(Sums, check, DEPTH)) for check in CHECKS]
    assert [(one.name, one.findings) for one in found if one.findings] == []
    without_turns = ["episodes_end", "what_is_forged_is_refused", "turns_are_rewarded_once"]
    assert [one.name for one in found if not one.applied] == without_turns


def test_what_raises_is_told_with_its_place_and_ends_the_check() -> None:
    (check,) = [one for one in CHECKS if one.name == "no_text_breaks_it"]
    (finding,) = asyncio.run(run_check(Fragile, check, DEPTH)).findings
    assert finding.came.startswith("ValueError: ")
    assert "test_conformance.py, line " in finding.came
    assert (finding.task.split()[0], finding.mend) == (
        "train",
        "Text from a model must never raise: unreadable text earns 0.",
    )


def test_chance_is_no_excuse_for_paying_what_is_not_right() -> None:
    (check,) = [check for check in CHECKS if check.name == "strangers_earn_nothing"]
    findings = asyncio.run(run_check(Near, check, DEPTH)).findings
    assert {finding.expected.split(" of ")[0] for finding in findings} == {"less than 1 for the right answer"}


def test_an_only_task_has_no_stranger() -> None:
    (check,) = [check for check in CHECKS if check.name == "strangers_earn_nothing"]
    assert asyncio.run(run_check(Single, check, DEPTH)).findings == ()


def test_figures_are_of_the_tasks_that_were_looked_at() -> None:
    async def digests() -> dict[Split, str]:
        return {"train": "another"}

    seen: list[str] = []
    watching = CheckObserver(begins=lambda check: seen.append(check.name), scored=lambda: seen.append("scored"))
    report = asyncio.run(run_all_checks(Sums, ConfiguredDatasets({}), DEPTH, watching, digests))
    figures = report.figures
    assert figures is not None
    assert [one.name for one in report.checks if not one.passed] == ["the_same_bytes"]
    assert (report.environment, report.passed, [name for name in seen if name != "scored"]) == (
        "sums",
        False,
        [check.name for check in CHECKS],
    )
    assert (figures.train_size, figures.test_size, figures.looked_at, figures.distinct_prompts) == (None, 1_000, 60, 60)
    assert (figures.strangers_paid, figures.chance, figures.commonest_gold) == (0.0, 0.0, 1 / 60)
    assert min(figures.tasks_per_second, figures.gold_scores_per_second or 0, figures.junk_scores_per_second) > 0
    assert figures.prompt_characters.least <= figures.prompt_characters.median <= figures.prompt_characters.most
