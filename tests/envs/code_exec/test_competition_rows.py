"""Rows of APPS and TACO: programs that read standard input, and functions."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.tasks import Completion
from app.domain.values import Frozen
from app.envs.code_exec.environment import CodeRow
from app.envs.code_exec.row_programs import RowCase, choose_cases, mark, write_programs
from app.envs.code_exec.rows import CompetitionRow, MbppRow
from app.ports.environment import Tools
from app.service.judging import NoPanel
from tests.envs.code_exec.row_scores import left_out, make_row_task, score_programs
from tests.support.tables import read_table


class Tables(Frozen):
    scripts: dict[int, dict[str, str]]
    calls: dict[int, dict[str, str]]
    near: tuple[tuple[Any, Any, bool], ...]
    printed: tuple[tuple[str, str, bool], ...]
    left_out: tuple[tuple[Any, dict[str, str], str], ...]


TABLES = read_table(__file__, "competition_rows.yaml", Tables)

HALVES = {"inputs": ["1\n2\n", ["4", "6"], "10 \n1e2"], "outputs": ["0.5 1\n", ["2 3"], "5.0 50"]}
STARTER = "class Solution:\n    def pick(self, table: Dict[int, List[int]], number: int) -> List[int]:\n"
PICKS = {"fn_name": "pick", "inputs": [[{"1": [2]}, 1], [{"3": [4, 5]}, 3]], "outputs": [[2], [4, 5]]}
GOLD = "one, other = float(input()), float(input())\nprint(one / 2, other / 2)"
SCRIPTS, CALLS = (
    {name: (source, paid) for paid, programs in table.items() for name, source in programs.items()}
    for table in (TABLES.scripts, TABLES.calls)
)


def _read(pairs: Any = HALVES, **columns: str) -> CompetitionRow:
    given = pairs if isinstance(pairs, str) else json.dumps(pairs)
    return CompetitionRow(**{"question": "Halve two numbers.", "input_output": given, **columns})


def test_output_is_compared_by_lines_and_numbers() -> None:
    rewards = asyncio.run(score_programs(_read(), [source for source, _ in SCRIPTS.values()]))
    assert dict(zip(SCRIPTS, rewards, strict=True)) == {name: paid for name, (_, paid) in SCRIPTS.items()}


def test_functions_and_methods_are_called() -> None:
    rewards = asyncio.run(score_programs(_read(PICKS, starter_code=STARTER), [one for one, _ in CALLS.values()]))
    assert dict(zip(CALLS, rewards, strict=True)) == {name: paid for name, (_, paid) in CALLS.items()}


NEAR: list[tuple[Any, Any, bool]] = [
    *TABLES.near,
    *(({1: 0.1 + 0.2}, {"1": 0.3}, True), ((0.1 + 0.2, 1), [0.3, 1], True)),
    *((float("inf"), 0.3, False), (10**400, 0.5, False)),
]


@pytest.mark.parametrize(("said", "right", "paid"), NEAR)
def test_fractions_of_functions_differ_in_their_last_digits(said: Any, right: Any, paid: bool) -> None:
    assert RowCase((), mark(right), rule="json").is_right(mark(said)) is paid


PRINTED = [*TABLES.printed, ("1" + "0" * 1_000_000, "1.5", False)]


@pytest.mark.parametrize(("said", "right", "paid"), PRINTED, ids=lambda text: str(text)[:30])
def test_printed_fractions_differ_in_their_last_digits(said: str, right: str, paid: bool) -> None:
    (case, *_) = _read({"inputs": ["1", "2"], "outputs": [right, "other"]}).build_tests().cases
    assert case.is_right(said) is paid


LONG = {"inputs": ["6000\n", "5\n"], "outputs": ["7" + "0" * 5998 + "3", "70003"]}


def test_long_whole_numbers_are_told_apart() -> None:
    case = RowCase((), mark([10**5000]), rule="json")
    assert [case.is_right(mark([10**5000 + added])) for added in (0, 1)] == [True, False]


def test_whole_numbers_have_any_number_of_digits() -> None:
    """Programs read and write them, and functions give them."""
    printed = "n = int(input())\nnumber = 7 * 10 ** (n - 1) + 3\nassert int(str(number)) == number\nprint(number)"
    digits = {"fn_name": "f", "inputs": [[5000], [3]], "outputs": [5001, 4]}
    counted = "def f(n): return len(str(10 ** n))"
    assert asyncio.run(score_programs(_read(LONG), [printed, printed.replace("+ 3", "+ 4")])) == [1.0, 0.0]
    given = asyncio.run(score_programs(_read(digits), [counted, "def f(n): return 10 ** 5000"]))
    assert given == [1.0, 0.0]


EXITS = (
    *("import sys\nsys.exit(0)", "def f(one) return one", "import os\nos._exit(0)", "raise SystemExit"),
    "class Any:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(one): return Any()",
    "class Any(float):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(one): return Any(9)",
    "class Any(list):\n    def __eq__(self, other): return True\ndef f(one): return Any()",
    "def f(one):\n    import sys\n    sys.exit(0)",
)


def test_programs_that_end_or_are_equal_to_everything_earn_nothing() -> None:
    row = _read({"fn_name": "f", "inputs": [[1], [2], [3]], "outputs": [0.5, 1.5, 2.5]})
    rewards = asyncio.run(score_programs(row, [*EXITS, "def f(one): return one - 0.5"]))
    assert rewards == [*[0.0] * len(EXITS), 1.0]


def test_two_programs_are_no_answer() -> None:
    both = "```\n\nor\n\n```python\n".join((GOLD, "print(0.5, 1)"))
    assert asyncio.run(score_programs(_read(), [both])) == [0.0]


def test_where_every_output_is_a_list_of_one_its_item_is_as_right() -> None:
    row = _read({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[3], [4]]})
    programs = ["def f(one): return one + 2", "def f(one): return [one + 2]", "def f(one): return one"]
    assert asyncio.run(score_programs(row, programs)) == [1.0, 1.0, 0.0]


def test_a_large_test_is_run() -> None:
    numbers = [*range(100_000)]
    row = _read({"fn_name": "f", "inputs": [[numbers], [[2]]], "outputs": [sum(numbers), 2]})
    assert asyncio.run(score_programs(row, ["def f(items): return sum(items)"])) == [1.0]


def test_a_part_of_the_tests_is_run_and_the_same_each_time() -> None:
    row = _read({"inputs": [f"{n}\n" for n in range(90)], "outputs": [f"{n * 2}\n" for n in range(90)]})
    tests = row.build_tests()
    chosen = [choose_cases(tests, most, "seed") for most in (None, None, 5, 100_000)]
    assert [len(cases) for cases in chosen] == [32, 32, 5, 90]
    assert [chosen[0] == chosen[1], chosen[0] == choose_cases(tests, None, "other")] == [True, False]


def test_the_tests_that_are_run_are_not_passed_by_a_constant() -> None:
    outputs = [*["YES"] * 60, "NO", *["YES"] * 60]
    tests = _read({"inputs": [f"{n}\n" for n in range(121)], "outputs": outputs}).build_tests()
    chosen = [[case.expected for case in choose_cases(tests, 3, f"{seed}")] for seed in range(9)]
    assert [sorted(map(str, cases)) for cases in chosen] == [["NO", "YES", "YES"]] * 9


def test_no_program_holds_what_is_expected() -> None:
    expected = [70001, 70099]
    rows: list[CodeRow] = [
        _read({"inputs": ["1", "2"], "outputs": [f"{number}" for number in expected]}),
        _read({"fn_name": "f", "inputs": [[1], [2]], "outputs": expected}),
        MbppRow(code="def f(): ...", text="?", test_list=("assert f(1) == 70001", "assert abs(f(2) - 70099) < 1")),
    ]
    for row in rows:
        tests = row.build_tests()
        written = write_programs("def f(one): return one", tests, tests.cases, row.limits)
        programs = [program for program, _ in written]
        assert programs
        assert not [number for number in expected if str(number) in str(programs)]


def test_a_task_of_a_row_that_is_not_there_any_more_has_no_score() -> None:
    _, task = make_row_task(_read())
    environment, _ = make_row_task(_read(question="Halve both numbers."))
    (score,) = asyncio.run(environment.score(task, [Completion(text="?")], Tools(panel=NoPanel())))
    assert (score.reward, score.reason) == (None, "verifier_failed")


def test_limits_are_those_of_the_row_within_bounds() -> None:
    rows = [
        _read(),
        _read(time_limit="3.0 seconds", memory_limit="512.0 megabytes"),
        _read(time_limit="60 seconds", memory_limit="8 gigabytes"),
        _read(PICKS),
    ]
    assert [(row.limits.cpu_seconds, row.limits.memory_mb) for row in rows] == [
        (4.0, 256),
        (3.0, 512),
        (10.0, 512),
        (10.0, 256),
    ]


def test_the_gold_is_the_first_solution_that_can_run() -> None:
    solutions = ["print 1", "import numpy\nprint(1)", GOLD, "print(2)"]
    assert [_read(solutions=json.dumps(solutions)).gold, _read().gold] == [GOLD, None]


@pytest.mark.parametrize(
    ("pairs", "columns", "reason"),
    [
        *TABLES.left_out,
        ('{"inputs": [' + "1" * 5000 + "]}", {}, "its tests are no JSON that can be read"),
        ({**PICKS, "outputs": [float("nan"), 1]}, {}, "a test holds what is no JSON"),
        ({"inputs": ["1" * 1_000_001, "2"], "outputs": ["2", "3"]}, {}, "it has fewer than two tests"),
    ],
)
def test_rows_that_make_no_task_are_left_out(pairs: Any, columns: dict[str, str], reason: str) -> None:
    with left_out(reason):
        _read(pairs, **columns)


def test_a_row_without_a_question_is_broken() -> None:
    with pytest.raises(ValidationError, match="the question is empty"):
        _read(question=" ")
