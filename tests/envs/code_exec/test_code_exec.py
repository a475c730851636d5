"""code_exec: what a prompt says, what is run, and how its end is scored. Programs are played by a script here."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from pydantic import JsonValue

from app.domain.errors import WorkerFailed
from app.domain.scores import Criterion, Score
from app.domain.tasks import CallResult, Completion, Ending, Execution, Program, Task
from app.envs.code_exec.environment import LIMITS, CodeExec
from app.envs.code_exec.exercises import (
    CodeExercise,
    ReferenceCase,
    check_results,
    choose_examples,
    choose_hidden_tests,
    read_all_families,
)
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.procedural import MIXED, LevelParams
from app.toolkit.seeded import is_held_out
from tests.support.tables import read_table

ENV = CodeExec()
MADE = CodeExercise(family="keep_every", chosen={"step": 4, "first": 2, "order": "kept"}, seed=7)
TASK = Task(messages=(), reference=MADE.model_dump(mode="json"))
ASKED = (*choose_examples(MADE), *choose_hidden_tests(MADE))
RIGHT = [test.expected for test in ASKED]
COUNT = len(RIGHT)


@dataclass
class Scripted:
    """Answers every program alike, and keeps what it was asked."""

    execution: Execution | WorkerFailed
    asked: list[Program] = field(default_factory=list)

    async def run(self, program: Program) -> Execution:
        self.asked.append(program)
        if isinstance(self.execution, WorkerFailed):
            raise self.execution
        return self.execution


def returning(*values: JsonValue, ending: Ending = "finished") -> Execution:
    return Execution(ending=ending, returned=tuple(CallResult(value=value) for value in values))


def reply(source: str = "def keep_every(items): ...\n") -> Completion:
    return Completion(text=f"```python\n{source}```")


def scored(programs: Scripted, *group: Completion) -> list[Score]:
    return asyncio.run(ENV.score(TASK, group, Tools(panel=NoPanel(), programs=programs)))


def score(reward: float, share: float, rationale: str) -> Score:
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=reward,
        criteria=(
            Criterion(name="correct", value=reward, weight=1.0),
            Criterion(name="share", value=share, weight=0.0, note="of the tests that pass"),
        ),
        rationale=rationale,
    )


def test_a_program_is_told_arguments_alone() -> None:
    programs = Scripted(returning(*RIGHT))
    assert scored(programs, reply()) == [score(1.0, 1.0, "correct")]
    calls = tuple(tuple(test.arguments) for test in ASKED)
    asked = Program(source="def keep_every(items): ...\n", function="keep_every", calls=calls, limits=LIMITS)
    assert programs.asked == [asked]


def tampered(change: Callable[[list[JsonValue]], JsonValue], times: int = 1) -> Execution:
    """As it should be, but for the last results that hold something."""
    places = [place for place, value in enumerate(RIGHT) if value][-times:]
    values = [
        change(list(value)) if place in places and isinstance(value, list) else value
        for place, value in enumerate(RIGHT)
    ]
    return returning(*values)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: [*value[::-1], 1],
        lambda value: [float(str(one)) for one in value],
        lambda value: [str(one) for one in value],
        lambda value: {str(place): one for place, one in enumerate(value)},
        lambda value: None,
        lambda value: [value],
    ],
)
def test_one_wrong_result_is_enough(change: Callable[[list[JsonValue]], JsonValue]) -> None:
    expected = score(0.0, (COUNT - 1) / COUNT, f"1 of {COUNT} tests fail")
    assert scored(Scripted(tampered(change)), reply()) == [expected]


def test_what_the_prompt_shows_is_run_too() -> None:
    shown = len(choose_examples(MADE))
    (found,) = scored(Scripted(returning(*[None] * shown, *RIGHT[shown:])), reply())
    assert found == score(0.0, (COUNT - shown) / COUNT, f"{shown} of {COUNT} tests fail")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        *((True, 1), (1, True), (1.0, 1), (False, 0), (None, 0), ("", None), ([], {}), ([1, 2], [2, 1])),
        *(([1, [2.0]], [1, [2]]), ({"a": 1}, {"a": True}), ("1", 1), ([10**5000], [1])),
    ],
)
def test_types_are_told_apart(wrong: JsonValue, right: JsonValue) -> None:
    tests = [ReferenceCase([], right), ReferenceCase([], right), ReferenceCase([], right)]
    assert check_results(tests, [CallResult(value=wrong), CallResult(value=right)]) == [False, True, False]


def test_what_raises_and_what_is_no_json_is_wrong() -> None:
    values = [
        *(CallResult(value=value) for value in RIGHT[:-3]),
        CallResult(fault="raised"),
        CallResult(fault="no_json"),
    ]
    found = scored(Scripted(Execution(ending="finished", returned=tuple(values))), reply())
    said = f"3 of {COUNT} tests fail; in 1 of them it raises an exception"
    assert found == [score(0.0, (COUNT - 3) / COUNT, said)]


@pytest.mark.parametrize(("ending", "said"), read_table(__file__, "limits.yaml", list[tuple[Ending, str]]))
def test_limits_are_the_program_s_fault(ending: Ending, said: str) -> None:
    found = scored(Scripted(returning(*RIGHT[:5], ending=ending)), reply())
    assert found == [score(0.0, 5 / COUNT, said)]


def test_what_could_not_be_run_is_no_score() -> None:
    found = scored(Scripted(WorkerFailed("the jail broke")), reply(), Completion(text="I give up."))
    assert [(one.outcome, one.reason, one.reward) for one in found] == [
        ("unscored", "verifier_failed", None),
        ("scored", None, 0.0),
    ]


def test_equal_programs_are_run_once_and_replies_without_one_never() -> None:
    programs = Scripted(returning(*RIGHT))
    group = [reply("a = 1\n"), Completion(text="```python\na = 1\n```\nDone."), reply("b = 1\n"), Completion(text="b")]
    found = scored(programs, *group)
    assert ([program.source for program in programs.asked], [one.reward for one in found]) == (
        ["a = 1\n", "b = 1\n"],
        [1.0, 1.0, 1.0, 0.0],
    )
    assert (found[3].rationale, found[3].flags) == ("no answer was committed", ("no_answer",))


def test_a_prompt_says_all_that_is_asked() -> None:
    for index in range(60):
        task = ENV.task("train", index, LevelParams())
        made = ENV.parse_reference(task)
        prompt = task.messages[0].content or ""
        calls = [
            f"{made.family}({', '.join(map(repr, case.arguments))}) == {case.expected!r}"
            for case in choose_examples(made)
        ]
        parts = [
            made.definition.statement(made.chosen),
            made.definition.signature,
            *calls,
            *("```python", "2 s", "128 MB"),
        ]
        assert [part for part in parts if part not in prompt] == []


def test_a_tenth_of_the_families_is_for_testing_alone_and_no_combination_is_in_both_splits() -> None:
    made = {
        split: [ENV.parse_reference(ENV.task(split, index, LevelParams())) for index in range(400)]
        for split in ("train", "test")
    }
    keys = {split: {(one.family, str(sorted(one.chosen.items()))) for one in found} for split, found in made.items()}
    apart = {name for name in read_all_families() if is_held_out(f"family {name}")}
    assert keys["train"] & keys["test"] == set()
    assert ({one.family for one in made["train"]} & apart, 4 <= len(apart) <= 16) == (set(), True)
    assert 0.2 < sum(one.family in apart for one in made["test"]) / 400 < 0.8
    assert {read_all_families()[name].spec.level for name in apart} == set(MIXED)


def test_tasks_are_equivalent_by_what_is_asked() -> None:
    references = [
        MADE,
        MADE.model_copy(update={"seed": 8}),
        MADE.model_copy(update={"chosen": {**MADE.chosen, "step": 5}}),
    ]
    tasks = [TASK.model_copy(update={"reference": one.model_dump(mode="json")}) for one in references]
    assert [ENV.equivalent(tasks[0], task) for task in tasks] == [True, True, False]
