"""What is run for the tests of a row: a function in one process for all calls, a script in a new one for each input."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from app.domain.programs import Program, ProgramLimits
from app.envs.code_exec.tasks import call_harness, input_harness
from app.envs.code_exec.tasks.row_cases import RowCase, RowTests
from app.toolkit.seeded import SeededRandom

ASSERT_SECONDS: Final = 5.0
"""Of processor time for all calls of a few asserts."""
TABLE_SECONDS: Final = 10.0
"""The same for up to a thousand calls, or some with large arguments."""
MOST_CALLS: Final = 1_000
MOST_RUNS: Final = 32
MOST_CHARACTERS: Final = 4_000_000
"""Of all chosen tests."""
OUTPUT_BYTES: Final = 4 * 1024 * 1024
FILE_BYTES: Final = 16 * 1024 * 1024
"""Of files, of which standard input and output are two."""
WAITING: Final = 3
"""Seconds by the clock for one of processor time, on a busy machine."""
_RUN: Final = "harness_run"
_FUTURE: Final = re.compile(r"^from __future__ import .*$", re.MULTILINE)


def build_call_limits(cpu_seconds: float, memory_mb: int = 128) -> ProgramLimits:
    return ProgramLimits(
        seconds=max(10.0, WAITING * cpu_seconds),
        cpu_seconds=cpu_seconds,
        memory_mb=memory_mb,
        output_bytes=OUTPUT_BYTES,
    )


def build_run_limits(cpu_seconds: float, memory_mb: int) -> ProgramLimits:
    return build_call_limits(cpu_seconds, memory_mb).model_copy(update={"file_bytes": FILE_BYTES})


def choose_cases(tests: RowTests, most: int | None, seed: str) -> list[RowCase]:
    """Those that are run: the same for every answer. The first of them is always run."""
    count = most or (MOST_CALLS if tests.function else MOST_RUNS)
    places = range(1, len(tests.cases))
    chosen = [0, *sorted(SeededRandom(f"tests {seed}").some(places, count - 1))]
    cases, left = list[RowCase](), MOST_CHARACTERS
    for place in chosen:
        case = tests.cases[place]
        left -= len(str(case.arguments)) + len(str(case.expected))
        if left >= 0 or len(cases) < 2:
            cases.append(case)
    if _differ(cases):
        return cases
    others = (one for one in tests.cases if _differ([cases[0], one]))
    return [*cases[:-1], next(others, cases[-1])]


def _differ(cases: Sequence[RowCase]) -> bool:
    """Whether no constant passes them all."""
    return not all(case.is_right(cases[0].expected) for case in cases)


def write_programs(
    source: str, tests: RowTests, cases: Sequence[RowCase], limits: ProgramLimits
) -> Iterator[tuple[Program, Sequence[RowCase]]]:
    """Programs, each with the tests that its calls are."""
    if not tests.function:
        for case in cases:
            calls = ((source, *case.arguments),)
            yield Program(source=_read_text(input_harness.__file__), function=_RUN, calls=calls, limits=limits), [case]
        return
    parts = (
        *_FUTURE.findall(source),  # which have to stand first
        tests.before + _FUTURE.sub("", source),
        tests.after,
    )
    program = "\n".join(parts)
    whole = f"{_read_text(call_harness.__file__)}\nharness_load({program!r}, {tests.function!r})\n"
    yield Program(source=whole, function=_RUN, calls=tuple(case.arguments for case in cases), limits=limits), cases


def write_recording(tests: RowTests, limits: ProgramLimits) -> Program:
    """Runs a program of the data set, no answer: what it gives is what is expected."""
    harness = _read_text(call_harness.__file__)
    return Program(
        source=f"{harness}\nharness_load({tests.gold!r}, {tests.function!r})\n",
        function="harness_record",
        calls=((tests.check, tests.function),),
        limits=limits,
    )


@cache
def _read_text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")
