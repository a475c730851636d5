"""Rows of MBPP and MBPP+: what is read, what is left out and why, and what is paid."""

import asyncio

import pytest
from pydantic import ValidationError

from app.domain.values import Frozen
from app.envs.code_exec.rows import MbppRow
from tests.envs.code_exec.row_scores import left_out, make_row_task, score_programs
from tests.support.tables import read_table, unfold


class Tables(Frozen):
    unpaid: dict[str, str]
    asserts: tuple[tuple[tuple[str, ...], str, bool], ...]
    left_out: dict[str, tuple[tuple[str, ...], ...]]
    tables: dict[str, tuple[tuple[str, str], ...]]
    table: str


TABLES = read_table(__file__, "mbpp_rows.yaml", Tables)

TESTS = ("assert pair([3, 1]) == (1, 3)", "assert pair([5, 4]) == (4, 5)")
GOLD = "def pair(items):\n    return min(items), max(items)"
ROW = MbppRow(code=GOLD.replace("\n", "\r\n"), text="Give the ends.", test_list=TESTS, test_setup_code="import math")


def _read(*tests: str, code: str = "def f(one, two=0): ...", test: str = "") -> MbppRow:
    return MbppRow(code=code, text="?", test_list=tests, test=test)


def test_the_first_test_is_shown_and_the_others_are_not() -> None:
    prompt = make_row_task(ROW)[1].messages[0].content or ""
    assert [test in prompt for test in TESTS] == [True, False]


@pytest.mark.parametrize(("tests", "program", "paid"), TABLES.asserts)
def test_asserts_mean_what_python_means(tests: tuple[str, ...], program: str, paid: bool) -> None:
    rewards = asyncio.run(score_programs(_read(*tests), [f"import math\n{program}"]))
    assert rewards == [float(paid)]


def test_a_table_is_graded_instead_of_the_asserts() -> None:
    row = _read("assert f({1}, 2) == 9", test=TABLES.table)
    programs = ["f = lambda one, two: sum(one, two) - 1", "f = lambda one, two: sum(one) + two + 1e-9", "f = max"]
    assert asyncio.run(score_programs(row, programs)) == [0.0, 0.0, 0.0]
    right = "f = lambda one, two: {1.5: 0.5, 7.5: 7.5}.get(sum(one) + two - 0 * len(one), sum(one) + two)"
    near = f"{right}\ng = f\ndef f(one, two): return g(one, two) - 1 + 1.0000001"
    assert asyncio.run(score_programs(row, [right, near])) == [1.0, 1.0]


@pytest.mark.parametrize(("tests", "reason"), unfold(TABLES.left_out))
def test_rows_that_make_no_task_are_left_out(tests: tuple[str, ...], reason: str) -> None:
    with left_out(reason):
        _read(*tests)


@pytest.mark.parametrize(("change", "reason"), unfold(TABLES.tables))
def test_tables_of_another_kind_are_left_out(change: tuple[str, str], reason: str) -> None:
    with left_out(reason):
        _read("assert f({1}, 2) == 9", test=TABLES.table.replace(*change))


def test_a_row_without_a_question_is_broken() -> None:
    with pytest.raises(ValidationError, match="neither a text nor a prompt"):
        MbppRow(code=GOLD, test_list=TESTS)


def test_the_right_code_is_paid_and_attacks_are_not() -> None:
    rewards = asyncio.run(score_programs(ROW, [GOLD, *TABLES.unpaid.values()]))
    assert dict(zip(["gold", *TABLES.unpaid], rewards, strict=True)) == {
        "gold": 1.0,
        **dict.fromkeys(TABLES.unpaid, 0.0),
    }
