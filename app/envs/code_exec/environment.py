"""Code: write a Python function that passes hidden tests.

    prompt   Keep every 3rd item of a list, beginning with the 2nd … def keep_every(items: list[int]) -> list[int] …
    reply    <think>A slice does it.</think> ```python
             def keep_every(items: list[int]) -> list[int]:
                 return items[1::3]
             ```
    reward   1.0   every example and every hidden test gives exactly what the reference gives

The program runs in an isolated process, which gets only the arguments. The results are compared outside it, strictly:
`True` and `1.0` are not 1. Not paid: passing only most of the tests, a program with the examples written into it, code
without a fence, two different programs, anything over the limits. The share of passed tests is a criterion of weight 0.

Rows of configured data sets (HumanEval, MBPP, APPS, TACO, LiveCodeBench) replace the tasks. Results are compared by the
published rules, outside of the program too. `level` then has no effect.

There are more than eighty families of tasks (`references/`), each with at least twenty combinations of parameters. A
tenth of the families, and a tenth of the combinations of the others, are for testing alone. The hidden tests of a task
tell it from every neighbour, so a program learnt for other parameters fails. Levels: `first` (an easy task after two
solved ones of the same function), `easy` (one pass with one or two rules), `medium` (ties, edges, rules that interact),
`hard` (a simulation, a parser or a search). Arguments and results are JSON without
fractions. The metadata have the family as `function`.

**Which program is read.** One fenced block outside the thinking, opened by three or more backticks or tildes with
`python`, `py`, `python3` or nothing. Of several blocks the one that defines the function counts; blocks that only use
it or hold no code do not matter. Two different programs, a block that never ends, and more than 10,000 characters are
no answer.

**What it may use.** Python's standard library; no files, network or processes. All calls together have 2 seconds of
processor time, 1 second of sleeping or waiting, 10 seconds by the clock, 128 MB beyond the interpreter's and 256 kB of
results. Calls run one after the other in one process, so a program that keeps state may fail by it. Output is
discarded.

**When it is right.** A value is right if it is the same JSON: tuples are lists, members have no order. All examples of
the prompt and at least 36 hidden tests must be right, edge cases first. A program that fails, exceeds a limit or ends
its process earns 0. One that the service could not run has no score (`verifier_failed`). Expected values never reach
the program's process, and the rationale never shows an argument or a result.

**Rows of data sets.** `docs/datasets.md` says which columns are read, and how many tests of a row run. Functions may
return tuples, sets and keys that are no texts; other objects are wrong. Where a fraction is expected, numbers within a
billionth of it are right, in what programs of APPS and TACO print too; where a whole number is expected, only that
number. What is printed of a large number counts to its last place. LiveCodeBench compares decimal numbers exactly.
`int` and `str` have no limit of digits. Each test of standard input runs in a new process; a program that ends with an
error fails its test. If the row is missing or another one, there is no score.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from app.domain.errors import ScoringFailed, VerifierFailed
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Dataset, Ending, Message, Program, ProgramLimits, Task
from app.domain.values import Frozen, Split, canonical_json, digest_of_text
from app.envs.code_exec.exercises import (
    CodeExercise,
    ReferenceCase,
    Test,
    check_results,
    choose_examples,
    choose_hidden_tests,
    digest_families,
    group_by_level,
)
from app.envs.code_exec.row_programs import (
    UNREAD,
    RowCase,
    RowTests,
    choose_cases,
    read_recorded,
    write_programs,
    write_recording,
)
from app.envs.code_exec.rows import CompetitionRow, HumanEvalRow, LiveCodeBenchRow, MbppRow
from app.ports import Tools
from app.ports.environment import FreeReward
from app.toolkit.answers import Committed, extract_committed_code, score_without_answer
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import Phrasings, read_packaged_data
from app.toolkit.thoughts import map_completions

LIMITS: Final = ProgramLimits()
_ROW_PROMPTS: Final = read_packaged_data(Path(__file__).with_name("row_prompts.yaml"), TypeAdapter(dict[str, str]))

CodeRow = MbppRow | HumanEvalRow | CompetitionRow | LiveCodeBenchRow


def _is_none(value: object) -> bool:
    return value is None


class CodeExecParams(LevelParams, DatasetParams):
    """`level` has no effect on rows of data sets, `tests` on nothing else."""

    tests: Annotated[int | None, Field(ge=2, le=100_000, exclude_if=_is_none)] = None
    """How many of a row's tests are run; the row decides which. By default up to 1,000 calls of a function, or up to 32
    runs of a program that reads standard input."""


class RowReference(Frozen):
    """The reference of a row's task. The tests are read from the row again: there may be megabytes of them."""

    function: str
    row: str
    """Digest of the row."""
    tests: int | None = None


@dataclass(frozen=True, slots=True)
class CodeTests:
    """What is run for a task. `defines` is what the reply is to define."""

    defines: str
    limits: ProgramLimits
    count: int
    is_large: bool
    """Whether the tests may be so large that they would hold up others."""
    write: Callable[[str], Iterable[tuple[Program, Sequence[Test]]]]
    """Makes programs of the reply, each with the tests that its calls are."""


class CodeExec(DatasetEnvironment[CodeRow], ProceduralEnvironment[CodeExercise, CodeExecParams]):
    name: ClassVar[str] = "code_exec"
    version: ClassVar[str] = "3"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    scores_at_once: ClassVar[bool] = False
    runs_programs: ClassVar[bool] = True
    chance: ClassVar[float] = 0.005
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (
        MbppRow,
        HumanEvalRow,
        CompetitionRow,
        LiveCodeBenchRow,
    )
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="prompt_features",
            share=0.3,
            because="A program for another task of its family is right where its numbers are those of the prompt.",
        ),
        FreeReward(
            strategy="near_miss_digit",
            share=0.1,
            because="A number of a branch that is never reached may be any.",
        ),
        FreeReward(
            strategy="near_miss_case",
            share=0.1,
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

    def build_row_task(self, row: CodeRow, dataset: Dataset[CodeRow], params: BaseModel) -> Task:
        prompt, slots = row.slots
        text = _ROW_PROMPTS[prompt].format(
            **slots, function=row.function, seconds=row.limits.cpu_seconds, memory=row.limits.memory_mb
        )
        reference = RowReference(function=row.function, row=_digest_row(row), tests=getattr(params, "tests", None))
        return Task(
            messages=(Message(role="user", content=text),),
            metadata={"function": row.function, **row.metadata},
            reference=reference.model_dump(mode="json"),
        )

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        if getattr(params, "tests", None) is not None:  # it concerns rows alone, so it must not change an own task
            params = params.model_copy(update={"tests": None})
        return super().build_own_task(split, index, params)

    def make(self, draws: SeededRandom, level: Level, params: CodeExecParams) -> CodeExercise:
        family = draws.one(group_by_level()[level])
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
            return Completion(text=f"```python\n{row.gold}\n```") if row and row.gold else None
        return Completion(text=f"```python\n{self.solution(self.parse_reference(task))}\n```")

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        """Programs run at the same time, equal ones once."""
        try:
            tests = await self._read_row_tests(task, tools) if _is_of_row(task) else self._read_tests(task)
        except ScoringFailed as error:
            return [Score.from_error(error)] * len(group)
        programs = await map_completions(group, lambda one: extract_committed_code(one.answer, tests.defines))
        sources = list(dict.fromkeys(program.text for program in programs if program.text is not None))
        scores = await asyncio.gather(*(_run_tests(source, tests, tools) for source in sources))
        by_source = dict(zip(sources, scores, strict=True))
        return [_pick_score(program, by_source) for program in programs]

    def _read_tests(self, task: Task) -> CodeTests:
        made = self.parse_reference(task)
        # what the prompt shows is run, too: an edge case may stand there alone
        cases = [*choose_examples(made), *choose_hidden_tests(made)]
        calls = tuple(tuple(case.arguments) for case in cases)

        def write(source: str) -> list[tuple[Program, Sequence[Test]]]:
            return [(Program(source=source, function=made.family, calls=calls, limits=LIMITS), cases)]

        return CodeTests(defines=made.family, limits=LIMITS, count=len(cases), is_large=False, write=write)

    async def _read_row_tests(self, task: Task, tools: Tools) -> CodeTests:
        """VerifierFailed when the row is not there any more."""
        reference = RowReference.model_validate(task.reference)
        row, tests = await asyncio.to_thread(self._read_row, task, reference)
        if tests.check:
            tests = replace(tests, cases=await _record_cases(tests, row.limits, tools))
        limits, cases = row.limits, choose_cases(tests, reference.tests, reference.row)

        def write(source: str) -> Iterator[tuple[Program, Sequence[Test]]]:
            return write_programs(source, tests, cases, limits)

        return CodeTests(defines=row.defines, limits=limits, count=len(cases), is_large=True, write=write)

    def _read_row(self, task: Task, reference: RowReference) -> tuple[CodeRow, RowTests]:
        row = self.find_row(task)
        if row is None or _digest_row(row) != reference.row:
            raise VerifierFailed("the data set has changed since the task was made")
        return row, row.build_tests()


async def _record_cases(tests: RowTests, limits: ProgramLimits, tools: Tools) -> list[RowCase]:
    """VerifierFailed where the right program of the row does not run."""
    execution = await tools.programs.run(write_recording(tests, limits))
    try:
        (made,) = execution.returned
        return read_recorded(made.value, tests.function)
    except UNREAD:
        raise VerifierFailed("the tests of the row cannot be run with its own solution") from None


def _is_of_row(task: Task) -> bool:
    return isinstance(task.reference, Mapping) and "row" in task.reference


def _digest_row(row: CodeRow) -> str:
    return digest_of_text("\0".join(f"{name}={getattr(row, name)}" for name in type(row).model_fields))


def _pick_score(program: Committed, by_source: Mapping[str, Score]) -> Score:
    if program.text is not None:
        return by_source[program.text]
    return score_without_answer(program).model_copy(update={"criteria": _build_criteria(0.0, 0.0)})


def _write_example(made: CodeExercise, case: ReferenceCase) -> str:
    return f"{made.family}({', '.join(map(repr, case.arguments))}) == {case.expected!r}"


# What an answer earns: its programs are run, and their results compared with what is expected.

ItemT = TypeVar("ItemT")

_ENDING_TEXTS: Final[Mapping[Ending, str]] = {
    "no_function": "it defines no such function, or cannot be read",
    "seconds": "it takes longer than {0.seconds:g} seconds",
    "idle_seconds": "it sleeps or waits for longer than {0.idle_seconds:g} s",
    "cpu_seconds": "it takes more than {0.cpu_seconds:g} seconds of processor time",
    "memory_mb": "it takes more than {0.memory_mb} MB of memory",
    "output_bytes": "it returns more than {1} kB",
    "died": "its process ended before the tests did",
}


async def _run_tests(source: str, tests: CodeTests, tools: Tools) -> Score:
    """Stops at the first program that meets a limit."""
    right, raised = list[bool](), 0
    ending: Ending = "finished"
    for program, cases in await _in_thread(tests, lambda: list(tests.write(source))):
        try:
            execution = await tools.programs.run(program)
        except ScoringFailed as error:
            return Score.from_error(error)
        right += await _in_thread(tests, partial(check_results, cases, execution.returned))
        raised += sum(one.fault == "raised" for one in execution.returned)
        ending = execution.ending
        if ending != "finished":
            break
    return _grade_results(ending, right, raised, tests)


async def _in_thread(tests: CodeTests, work: Callable[[], ItemT]) -> ItemT:
    return await asyncio.to_thread(work) if tests.is_large else work()


def _grade_results(ending: Ending, right: Sequence[bool], raised: int, tests: CodeTests) -> Score:
    correct = float(ending == "finished" and len(right) == tests.count and all(right))
    return Score(
        outcome="scored",
        reward=correct,
        gate=1.0,
        absolute=correct,
        criteria=_build_criteria(correct, sum(right) / tests.count),
        rationale=_explain_score(ending, right, raised, tests),
    )


def _explain_score(ending: Ending, right: Sequence[bool], raised: int, tests: CodeTests) -> str:
    if ending != "finished":
        return _ENDING_TEXTS[ending].format(tests.limits, tests.limits.output_bytes // 1024)
    if all(right):
        return "correct"
    without = f"; in {raised} of them it raises an exception" if raised else ""
    return f"{right.count(False)} of {len(right)} tests fail{without}"


def _build_criteria(correct: float, share: float) -> tuple[Criterion, ...]:
    """The same for every completion, as trainers want them."""
    return (
        Criterion(name="correct", value=correct, weight=1.0),
        Criterion(name="share", value=share, weight=0.0, note="of the tests that pass"),
    )
