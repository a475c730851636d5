"""What every environment that scores without judges must do: over many tasks, and over text that nobody meant."""

import asyncio
import json
from collections.abc import Sequence
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.discovery import discover
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Split
from app.ports import Environment, Tools
from app.service.judging import NoPanel
from app.sources.configured import ConfiguredDatasets

CLASSES = {name: kind for name, kind in discover().items() if kind.rubric is None}
TASKS = 1_000
BY_CHANCE = {"letter_counting": 0.02, "gsm8k": 0.02, "mcqa": 0.25, "blackjack": 0.05, "pairwise_judgement": 0.1}
"""The share of tasks at most whose answer is another's by chance; none where nothing is said."""

every_verifier = pytest.mark.parametrize("name", sorted(CLASSES))
every_split = pytest.mark.parametrize("split", ["train", "test"])

PIECES = (
    *("<answer>", "</answer>", "<ANSWER>", "<think>", "</think>", "<|im_end|>", "\\boxed{", "}", "#### ", "answer is "),
    *(
        "0",
        "7",
        "42",
        "-1",
        "1/2",
        "1e999",
        "nan",
        "9" * 400,
        "(",
        ")",
        "+",
        "*",
        "/",
        ",",
        " ",
        "\n",
        "\x00",
        "\ud800",
    ),
    *("a", "A", "the", "true", "null", '{"a": 1}', "[", "]", "$", "\\", "**", "```", "'", '"', "\u202e", "７", "é"),
)
TELLING = 4
"""Characters of a reference beyond which nobody hits upon it with these pieces; a letter somebody may."""

hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=25).map("".join)


@lru_cache
def _opened(name: str) -> Environment:
    return CLASSES[name].open(ConfiguredDatasets({}))


@lru_cache
def _tasks(name: str, split: Split) -> tuple[Task, ...]:
    environment = _opened(name)
    params = environment.Params()
    size = environment.size(split, params)
    return tuple(environment.task(split, index, params) for index in range(TASKS if size is None else min(size, TASKS)))


def _scored(name: str, task: Task, group: Sequence[Completion]) -> list[Score]:
    return asyncio.run(_opened(name).score(task, group, Tools(panel=NoPanel())))


@every_verifier
@every_split
def test_gold_earns_one_and_a_stranger_s_gold_nothing(name: str, split: Split) -> None:
    environment = _opened(name)
    every = _tasks(name, split)
    known = [(task, gold) for task in every if (gold := environment.gold(task)) is not None]
    tasks, golds = [task for task, _ in known], [gold for _, gold in known]
    foreign = [*golds[1:], golds[0]]
    rewards = [
        [score.reward for score in _scored(name, task, pair)]
        for task, pair in zip(tasks, zip(golds, foreign, strict=True), strict=True)
    ]
    strangers = [
        reward
        for (_, reward), task, other in zip(rewards, tasks, (*tasks[1:], tasks[0]), strict=True)
        if not environment.equivalent(task, other)
    ]
    assert ([own for own, _ in rewards], len(tasks) >= len(every) // 2) == ([1.0] * len(tasks), True)
    assert sum(reward != 0.0 for reward in strangers) <= BY_CHANCE.get(name, 0.0) * len(tasks)


@every_verifier
@settings(max_examples=2_000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(text=hostile, number=st.integers(0, 199))
def test_no_text_raises_or_is_paid_by_accident(name: str, text: str, number: int) -> None:
    tasks = _tasks(name, "train")[:200]
    telling = [task for task in tasks if len(json.dumps(task.reference)) > TELLING]
    task = (telling or tasks)[number % len(telling or tasks)]
    (score,) = _scored(name, task, [Completion(text=text)])
    assert (score.outcome, score.reward) in {("scored", 0.0), ("scored", 0.0 if telling else 1.0)}
