"""What becomes of programs: their values, their endings, and that none of them can claim another."""

import pytest
from pydantic import JsonValue

from app.domain.tasks import CallResult, Program, ProgramLimits
from app.domain.values import Frozen
from app.sandbox.programs import JailedPrograms
from tests.support.event_loop import closed_after
from tests.support.jailed import Jails
from tests.support.tables import read_table, unfold


class Tables(Frozen):
    values: dict[str, JsonValue]
    endings: dict[str, dict[str, tuple[str, ...]]]
    no_functions: tuple[str, ...]
    busy: tuple[str, ...]
    forgeries: tuple[tuple[str, str], ...]
    programs: dict[str, str]


TABLES = read_table(__file__, "programs.yaml", Tables)


def test_calls_are_answered_in_their_order_and_in_one_process(jailed: Jails) -> None:
    source = "seen = []\ndef f(*x):\n    print('noise')\n    seen.extend(x)\n    return seen"
    seen = jailed.run(source, (1,), (), ("é", [None, {"a": True}]))
    assert (seen.ending, [one.value for one in seen.returned]) == (
        "finished",
        [[1], [1], [1, "é", [None, {"a": True}]]],
    )


VALUES = [*TABLES.values.items(), ("2 ** 200", 2**200)]


def test_values_are_json_and_nothing_else(jailed: Jails) -> None:
    said = [jailed.said(f"def f(): return {value}") for value, _ in VALUES]
    assert [(type(one), one) for one in said] == [(type(expected), expected) for _, expected in VALUES]


NO_FUNCTIONS = [*TABLES.no_functions, "'\ud7ff" + "(" * 10_000]


def test_what_defines_no_function_is_told_from_what_fails(jailed: Jails) -> None:
    assert [jailed.run(source).ending for source in NO_FUNCTIONS] == ["no_function"] * len(NO_FUNCTIONS)


LIMITS = {
    "short": ProgramLimits(seconds=0.3, cpu_seconds=30),
    "idle": ProgramLimits(seconds=60, idle_seconds=0.2, cpu_seconds=30),
    "one_second": ProgramLimits(seconds=60, cpu_seconds=0.5),
    "little": ProgramLimits(seconds=60, cpu_seconds=10, memory_mb=32, output_bytes=1000),
}
DEAF = TABLES.programs["deaf"]
ENDINGS = [
    *((source, end, name) for name, ends in TABLES.endings.items() for source, end in unfold(ends)),
    (DEAF + "def f():\n  while True: signal.pause()", "seconds", "short"),
    (DEAF + "def f():\n  while True: pass", "cpu_seconds", "one_second"),
]


@pytest.mark.parametrize(
    ("source", "ending", "limits"),
    [*ENDINGS, *(pytest.param(source, "cpu_seconds", "one_second", marks=pytest.mark.slow) for source in TABLES.busy)],
)
def test_an_ending(jailed: Jails, source: str, ending: str, limits: str) -> None:
    """And the next program is none the wiser."""
    seen = jailed.run(source, limits=LIMITS[limits]).ending
    assert (seen, jailed.said("def f(): return 1")) == (ending, 1)


def test_output_is_counted_over_all_calls(jailed: Jails) -> None:
    seen = jailed.run("def f(): return 'x' * 400", *[()] * 5, limits=LIMITS["little"])
    assert (seen.ending, len(seen.returned)) == ("output_bytes", 2)


@pytest.mark.parametrize(("source", "expected"), TABLES.forgeries)
def test_a_pass_cannot_be_claimed_without_returning_it(jailed: Jails, source: str, expected: str) -> None:
    assert str(jailed.said(source)) == expected


def test_one_that_takes_over_its_interpreter_has_said_what_it_said_and_no_more(jailed: Jails) -> None:
    """It finds the token of the call that it is in, and answers for itself. That is the same as returning; but tokens
    of later calls do not exist yet, so whoever leaves then has not finished."""
    seen = jailed.run(TABLES.programs["taken_over"], (1,), (2,))
    assert (seen.ending, seen.returned) == ("died", (CallResult(value=42),))


def test_nothing_of_what_is_asked_later_is_there_to_be_found(jailed: Jails) -> None:
    seen = jailed.run(TABLES.programs["asked_later"], ("call--1",), ("call--2",))
    assert (seen.ending, seen.returned[0].value) == ("finished", ["call--1"])


SLEEPER = "import time\ndef f(): time.sleep(60)"


@pytest.mark.parametrize(
    ("limits", "attempts"),
    [
        (ProgramLimits(seconds=0.3), ["seconds", "seconds"]),
        (ProgramLimits(seconds=9, idle_seconds=0.2), ["idle_seconds"]),
    ],
)
async def test_out_of_time_is_so_twice_unless_it_idled(limits: ProgramLimits, attempts: list[str]) -> None:
    endings: list[str] = []
    async with closed_after(JailedPrograms(1, observe=lambda ending, seconds: endings.append(ending))) as programs:
        told = await programs.run(Program(source=SLEEPER, function="f", calls=((),), limits=limits))
    assert (told.ending, endings) == (attempts[0], attempts)
