"""What an answer earns: its programs are run, and their results compared with what is expected."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from app.domain.errors import ScoringFailed
from app.domain.programs import Ending, Program, ProgramLimits
from app.domain.scores import Criterion, Score
from app.envs.code_exec.tasks.code_exercises import Test, check_results
from app.ports import Tools

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


async def run_tests(source: str, tests: CodeTests, tools: Tools) -> Score:
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
        criteria=build_criteria(correct, sum(right) / tests.count),
        rationale=_explain_score(ending, right, raised, tests),
    )


def _explain_score(ending: Ending, right: Sequence[bool], raised: int, tests: CodeTests) -> str:
    if ending != "finished":
        return _ENDING_TEXTS[ending].format(tests.limits, tests.limits.output_bytes // 1024)
    if all(right):
        return "correct"
    without = f"; in {raised} of them it raises an exception" if raised else ""
    return f"{right.count(False)} of {len(right)} hidden tests fail{without}"


def build_criteria(correct: float, share: float) -> tuple[Criterion, ...]:
    """The same for every completion, as trainers want them."""
    return (
        Criterion(name="correct", value=correct, weight=1.0),
        Criterion(name="share", value=share, weight=0.0, note="of the hidden tests that pass"),
    )
