"""Code: write a Python function that passes hidden tests.

    prompt   Keep every 3rd item of a list, beginning with the 2nd … def keep_every(items: list[int]) -> list[int] …
    reply    <think>A slice does it.</think> ```python
             def keep_every(items: list[int]) -> list[int]:
                 return items[1::3]
             ```
    reward   1.0   every hidden test gives exactly what the reference gives

The program runs in an isolated process, which gets only the arguments. The results are compared outside it, strictly:
`True` and `1.0` are not 1. Not paid: passing only most of the tests, a program with the examples written into it, code
without a fence, two different programs, anything over the limits. The share of passed tests is a criterion of weight 0.

With data sets configured (MBPP), their rows are the tasks, and results are compared as Python does. `level` then has no
effect.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, JsonValue

from app.domain.digests import canonical_json
from app.domain.errors import ScoringFailed
from app.domain.programs import Ending, Execution, Program, ProgramLimits
from app.domain.scores import Criterion, Score
from app.domain.sources import Dataset
from app.domain.tasks import Completion, Message, Task
from app.envs.code_exec.tasks.code_exercises import (
    CodeExercise,
    ReferenceCase,
    check_results,
    choose_examples,
    choose_hidden_tests,
    is_same_json,
)
from app.envs.code_exec.tasks.family_registry import FAMILIES, digest_families
from app.envs.code_exec.tasks.mbpp_rows import MbppRow, RowTests, is_equal
from app.ports import Tools
from app.ports.environment import FreeReward
from app.toolkit.answers.code import extract_committed_code
from app.toolkit.answers.committed import Committed, map_completions, score_without_answer
from app.toolkit.dataset_tasks import DatasetEnvironment, DatasetParams
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import Phrasings

LIMITS: Final = ProgramLimits()
_BY_LEVEL: Final = {level: [family for family in FAMILIES.values() if family.spec.level == level] for level in LEVELS}
_ENDING_TEXTS: Final[Mapping[Ending, str]] = {
    "no_function": "it defines no such function, or cannot be read",
    "seconds": f"it takes longer than {LIMITS.seconds:g} seconds",
    "idle_seconds": f"it sleeps or waits for longer than {LIMITS.idle_seconds:g} s",
    "cpu_seconds": f"it takes more than {LIMITS.cpu_seconds:g} seconds of processor time",
    "memory_mb": f"it takes more than {LIMITS.memory_mb} MB of memory",
    "output_bytes": f"it returns more than {LIMITS.output_bytes // 1024} kB",
    "died": "its process ended before the tests did",
}


ROW_PROMPT: Final = (
    "{question}\n\nWrite it as the Python function `{function}`. This test is one of those it has to pass:\n\n"
    "```python\n{shown}\n```\n\nPut the whole program into one fenced code block. It may take {seconds:g} s of "
    "processor time and {memory} MB of memory."
)


class CodeExecParams(LevelParams, DatasetParams):
    """`level` has no effect on rows of data sets."""


@dataclass(frozen=True, slots=True)
class CodeTests:
    """What is run for a task. `setup` runs after the answer."""

    function: str
    setup: str
    cases: Sequence[ReferenceCase]
    same: Callable[[JsonValue, JsonValue], bool]


class CodeExec(DatasetEnvironment[MbppRow], ProceduralEnvironment[CodeExercise, CodeExecParams]):
    name: ClassVar[str] = "code_exec"
    version: ClassVar[str] = "2"
    runs_programs: ClassVar[bool] = True
    chance: ClassVar[float] = 0.005
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (MbppRow,)
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="prompt_features",
            share=0.3,
            because="A program for another task of its family is right where its numbers are those of the prompt.",
        ),
        FreeReward(
            strategy="near_miss_case",
            share=0.05,
            because="A word of a type or of a branch that is never reached may be any.",
        ),
        FreeReward(
            strategy="near_miss_token",
            share=0.1,
            because="A word of a type or of a branch that is never reached may be any.",
        ),
    )

    @property
    def digests(self) -> Mapping[str, str]:
        return {**super().digests, "families": digest_families()}

    def build_row_task(self, row: MbppRow, dataset: Dataset[MbppRow], params: BaseModel) -> Task:
        tests = row.tests
        text = ROW_PROMPT.format(
            question=row.question,
            function=tests.function,
            shown=row.test_list[0].strip(),
            seconds=LIMITS.cpu_seconds,
            memory=LIMITS.memory_mb,
        )
        return Task(
            messages=(Message(role="user", content=text),),
            metadata={"function": tests.function},
            reference=tests.model_dump(mode="json"),
        )

    def make(self, draws: SeededRandom, level: Level, params: CodeExecParams) -> CodeExercise:
        family = draws.one(_BY_LEVEL[level])
        return CodeExercise(family=family.name, chosen=family.choose(draws), seed=draws.below(2**32))

    def key(self, made: CodeExercise) -> str:
        """About a tenth of the families are for testing only; of the others, a tenth of the parameter combinations. The
        seed plays no part, so each function is in one split only."""
        whole = f"family {made.family}"
        return whole if is_held_out(whole) else f"{made.family} {canonical_json(made.chosen)}"

    def equivalent(self, one: Task, other: Task) -> bool:
        if _is_of_row(one) or _is_of_row(other):
            return one.reference == other.reference
        first, second = self.parse_reference(one), self.parse_reference(other)
        return (first.family, first.chosen) == (second.family, second.chosen)

    def slots(self, made: CodeExercise) -> Mapping[str, str | int]:
        return {
            "name": made.family,
            "statement": made.definition.statement(made.chosen),
            "signature": made.definition.signature,
            "examples": "\n".join(_write_example(made, case) for case in choose_examples(made)),
            "cpu_seconds": f"{LIMITS.cpu_seconds:g}",
            "memory_mb": LIMITS.memory_mb,
        }

    def metadata(self, made: CodeExercise) -> dict[str, JsonValue]:
        return {"function": made.family}

    def solution(self, made: CodeExercise) -> str:
        return made.definition.solution(made.chosen)

    def gold(self, task: Task) -> Completion | None:
        if _is_of_row(task):
            row = self.find_row(task)
            return Completion(text=f"```python\n{row.gold}\n```") if row else None
        return Completion(text=f"```python\n{self.solution(self.parse_reference(task))}\n```")

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        """Programs run at the same time, equal ones once."""
        tests = self._read_tests(task)
        programs = await map_completions(group, lambda one: extract_committed_code(one.answer, tests.function))
        sources = list(dict.fromkeys(program.text for program in programs if program.text is not None))
        scores = await asyncio.gather(*(_run_tests(source, tests, tools) for source in sources))
        by_source = dict(zip(sources, scores, strict=True))
        return [_pick_score(program, by_source) for program in programs]

    def _read_tests(self, task: Task) -> CodeTests:
        if _is_of_row(task):
            row = RowTests.model_validate(task.reference)
            cases = [ReferenceCase(list(case.arguments), case.expected) for case in row.cases]
            return CodeTests(function=row.function, setup=row.setup, cases=cases, same=is_equal)
        made = self.parse_reference(task)
        return CodeTests(function=made.family, setup="", cases=choose_hidden_tests(made), same=is_same_json)


def _is_of_row(task: Task) -> bool:
    return isinstance(task.reference, Mapping) and "cases" in task.reference


def _pick_score(program: Committed, by_source: Mapping[str, Score]) -> Score:
    if program.text is not None:
        return by_source[program.text]
    return score_without_answer(program).model_copy(update={"criteria": _build_criteria(0.0, 0.0)})


def _build_criteria(correct: float, share: float) -> tuple[Criterion, ...]:
    """The same for every completion, as trainers want them."""
    return (
        Criterion(name="correct", value=correct, weight=1.0),
        Criterion(name="share", value=share, weight=0.0, note="of the hidden tests that pass"),
    )


async def _run_tests(source: str, tests: CodeTests, tools: Tools) -> Score:
    calls = tuple(tuple(test.arguments) for test in tests.cases)
    whole = f"{source}\n{tests.setup}\n" if tests.setup else source
    try:
        execution = await tools.programs.run(Program(source=whole, function=tests.function, calls=calls, limits=LIMITS))
    except ScoringFailed as error:
        return Score.from_error(error)
    return _grade_execution(execution, tests)


def _grade_execution(execution: Execution, tests: CodeTests) -> Score:
    right = check_results(tests.cases, execution.returned, tests.same)
    correct = float(execution.ending == "finished" and all(right))
    return Score(
        outcome="scored",
        reward=correct,
        gate=1.0,
        absolute=correct,
        criteria=_build_criteria(correct, sum(right) / len(tests.cases)),
        rationale=_explain_score(execution, right),
    )


def _explain_score(execution: Execution, right: Sequence[bool]) -> str:
    if execution.ending != "finished":
        return _ENDING_TEXTS[execution.ending]
    if all(right):
        return "correct"
    raised = sum(one.fault == "raised" for one in execution.returned)
    without = f"; in {raised} of them it raises an exception" if raised else ""
    return f"{right.count(False)} of {len(right)} hidden tests fail{without}"


def _write_example(made: CodeExercise, case: ReferenceCase) -> str:
    return f"{made.family}({', '.join(map(repr, case.arguments))}) == {case.expected!r}"
