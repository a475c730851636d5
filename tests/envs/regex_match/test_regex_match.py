"""Regex match: what an expression is measured by, and that what the prompt shows is not enough."""

import asyncio
import re

import pytest

from app.domain.tasks import Completion, Task
from app.envs.regex_match.environment import FEWEST, HIDDEN, RegexExercise, RegexMatch, RegexMatchParams
from app.ports.environment import Tools
from app.service.judging import NoPanel

ENVIRONMENT = RegexMatch()
EXERCISE = RegexExercise(
    parts=(), pattern="[0-9]{2,3}(oar|rust)", matching=("07oar", "123rust", "55rust"), others=("7oar", "07OAR", "07oa")
)
TASKS = [ENVIRONMENT.task("train", index, RegexMatchParams(parts=2 + index % 5)) for index in range(60)]


def rationale(task: Task, answer: str) -> str:
    tagged = Completion(text=f"<answer>{answer}</answer>")
    (score,) = asyncio.run(ENVIRONMENT.score(task, [tagged], Tools(panel=NoPanel())))
    assert score.reward == (1.0 if score.rationale == "correct" else 0.0)
    return score.rationale


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (r"[0-9]{2,3}(oar|rust)", "correct"),
        (r"^\d\d\d?(?:oar|rust)$", "correct"),
        (r"\d+(oar|rust)", "it matches 3 of 3 that fit, and 1 of 3 that do not"),
        (r"(?i)\d\d+(oar|rust)", "it matches 3 of 3 that fit, and 1 of 3 that do not"),
        (r"\d\d(oar|rust)", "it matches 2 of 3 that fit, and 0 of 3 that do not"),
        (".*", "it matches 3 of 3 that fit, and 3 of 3 that do not"),
        ("x", "it matches 0 of 3 that fit, and 0 of 3 that do not"),
        ("(", "RE2 cannot use this pattern: missing ): ("),
        ("a" * 1_001, "a pattern has at most 1000 characters, this one 1001"),
        ("(a+)+$" * 100, "it matches 0 of 3 that fit, and 0 of 3 that do not"),
    ],
)
def test_an_expression_is_measured_by_strings(answer: str, expected: str) -> None:
    task = Task(messages=(), reference=EXERCISE.model_dump(mode="json"))
    assert rationale(task, answer) == expected


def test_a_form_s_own_expression_says_the_same_in_python() -> None:
    """An oracle of another make: what RE2 sorted is sorted alike by the standard library."""
    made = [RegexExercise.model_validate(task.reference) for task in TASKS]
    sorted_alike = [
        (
            all(re.fullmatch(one.pattern, text) for text in one.matching),
            any(re.fullmatch(one.pattern, text) for text in one.others),
            FEWEST <= len(one.matching) <= HIDDEN and FEWEST <= len(one.others) <= HIDDEN,
        )
        for one in made
    ]
    assert sorted_alike == [(True, False, True)] * len(TASKS)


def test_a_list_of_what_is_shown_is_not_paid() -> None:
    shown = ["|".join(map(re.escape, RegexExercise.model_validate(task.reference).matching[:3])) for task in TASKS]
    assert "correct" not in [rationale(task, answer) for task, answer in zip(TASKS, shown, strict=True)]
