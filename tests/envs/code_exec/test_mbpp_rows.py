"""Rows of MBPP and MBPP+: what is read, what is left out and why, and what is paid."""

import asyncio

import pytest
from pydantic import ValidationError

from app.envs.code_exec.rows import MbppRow
from tests.envs.code_exec.row_scores import left_out, make_row_task, score_programs

TESTS = ("assert pair([3, 1]) == (1, 3)", "assert pair([5, 4]) == (4, 5)")
GOLD = "def pair(items):\n    return min(items), max(items)"
ROW = MbppRow(code=GOLD.replace("\n", "\r\n"), text="Give the ends.", test_list=TESTS, test_setup_code="import math")

ALWAYS_EQUAL = "class Same(list):\n    __eq__ = lambda *_: True\ndef pair(items): return Same()"
PATCHED = "import sys\ndef pair(items): pass\nsys._getframe(1).f_globals['{name}'] = {value}"
UNPAID = {
    "constant": "def pair(items): return (1, 3)",
    "echo": "def pair(items): return items",
    "list instead of a tuple": "def pair(items): return [min(items), max(items)]",
    "shown test": "def pair(items): return (1, 3) if items == [3, 1] else None",
    "exit": "import sys\ndef pair(items): sys.exit(0)",
    "hard exit": "import os\ndef pair(items): os._exit(0)",
    "exit while read": "import os\nos._exit(0)\ndef pair(items): pass",
    "at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef pair(items): return 0",
    "equal to anything": ALWAYS_EQUAL,
    "printed verdict": "def pair(items): print('{\"result\": [1, 3]}', flush=True)",
    "other errors": "import builtins\nbuiltins.AssertionError = KeyError\ndef pair(items): raise AssertionError",
    "other built-ins": "import builtins\nbuiltins.isinstance = lambda *_: True\ndef pair(items): return 0",
    "other marks": PATCHED.format(name="harness_mark", value="lambda value: True"),
    "other calls": PATCHED.format(name="harness_run", value="lambda *_: {'tuple': [{'set': [{}]}], 'float': {}}"),
    "no such function": "def other(items): return min(items), max(items)",
}
TABLE = """
import numpy as np

def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    assert exact_match

inputs = [[{1, 2}, -1.5], [{5}, 2.5], [set(), float('inf')]]
results = [0.5, 7.5, float('inf')]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(f(*inp), exp, 0)
"""


def _read(*tests: str, code: str = "def f(one, two=0): ...", test: str = "") -> MbppRow:
    return MbppRow(code=code, text="?", test_list=tests, test=test)


def test_the_first_test_is_shown_and_the_others_are_not() -> None:
    prompt = make_row_task(ROW)[1].messages[0].content or ""
    assert [test in prompt for test in TESTS] == [True, False]


@pytest.mark.parametrize(
    ("tests", "program", "paid"),
    [
        (("assert f((1, 2)) == 2", "assert f((1,)) == 1"), "f = len", True),
        (("assert f({1: (2,)}) == {2}", "assert f({}) == set()"), "f = lambda one: {*one.get(1, ())}", True),
        (("assert set(f((1, 1))) == set((1,))", "assert set(f(())) == set()"), "f = list", True),
        (("assert f('ab', 2)", "assert not f('ab', 3)"), "f = lambda one, two: one[two - 1 :]", True),
        (("assert f('ab', 2)", "assert not f('ab', 3)"), "f = lambda one, two: one[two:]", False),
        (("assert f(1) == 1/3", "assert abs(f(2) - 0.667) < 1e-3"), "f = lambda one: one / 3", True),
        (("assert f(1) == 0.33", "assert abs(f(2) - 0.667) < 1e-3"), "f = lambda one: one / 3", False),
        (("assert math.isclose(f(2), 1.41, rel_tol=0.01)", "assert f(4) == 2"), "f = lambda one: one ** 0.5", True),
        (("assert f(1j) == (1.0, 0)", "assert f(2) == (2.0, 0)"), "f = lambda one: (abs(one), False)", True),
        (("assert f(1) == {1: 'a'}", "assert f(2) == {2: 'b'}"), "f = lambda one: {one: ' ab'[one]}", True),
        (("assert f(1) == [1]", "assert f(2) == [2]"), "f = lambda one: (one,)", False),
    ],
)  # fmt: skip
def test_asserts_mean_what_python_means(tests: tuple[str, ...], program: str, paid: bool) -> None:
    rewards = asyncio.run(score_programs(_read(*tests), [f"import math\n{program}"]))
    assert rewards == [float(paid)]


def test_a_table_is_graded_instead_of_the_asserts() -> None:
    row = _read("assert f({1}, 2) == 9", test=TABLE)
    programs = ["f = lambda one, two: sum(one, two) - 1", "f = lambda one, two: sum(one) + two + 1e-9", "f = max"]
    assert asyncio.run(score_programs(row, programs)) == [0.0, 0.0, 0.0]
    right = "f = lambda one, two: {1.5: 0.5, 7.5: 7.5}.get(sum(one) + two - 0 * len(one), sum(one) + two)"
    near = f"{right}\ng = f\ndef f(one, two): return g(one, two) - 1 + 1.0000001"
    assert asyncio.run(score_programs(row, [right, near])) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (("assert f(1) == g(2)", "assert f(2) == 3"), "a test is not a call that is compared with a known value"),
        (("assert f(1) != 1", "assert f(2) == 3"), "a test is not a call that is compared with a known value"),
        (("assert f(g(1)) == 1", "assert f(2) == 3"), "a test is not a call that is compared with a known value"),
        (("assert f(1) == f(2)", "assert f(2) == 3"), "a test is not a call that is compared with a known value"),
        (("assert f(1) == float('nan')", "assert f(2) == 3"), "a test is not a call that is compared with a known"),
        (("x = f(1)", "assert f(2) == 3"), "a test is not a call that is compared with a known value"),
        (("assert f(", "assert f(2) == 3"), "its tests are no Python"),
        (("assert f(1) == 2", "assert g(2) == 3"), "its tests do not call one and the same function"),
        (("assert f(1) == 2",), "it has fewer than two tests"),
        (("assert f(1) == 2", "assert f(3) == 2"), "all its tests expect the same result"),
        (("assert f(1)", "assert f(3)"), "all its tests expect the same result"),
        (("assert f(1, 2) == 2", "assert f(3, 4) == 4"), "all its tests expect one of the arguments"),
        (("assert f([1]) == [1]", "assert f([2]) == [2]"), "all its tests expect one of the arguments"),
    ],
)
def test_rows_that_make_no_task_are_left_out(tests: tuple[str, ...], reason: str) -> None:
    with left_out(reason):
        _read(*tests)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("exp, 0)\n", "exp, 0.1)\n"), "what its tests expect is computed"),
        (("results =", "expected ="), "what its tests expect is computed"),
        (("f(*inp)", "set(f(*inp))"), "what its tests expect is computed"),
        (("exact_match = out", "exact_match = set(out)"), "its tests compare in a way of their own"),
        (("= out == exp", "= out is not None"), "its tests compare in a way of their own"),
        (("    assert exact_match", "    exp = out\n    assert exp"), "its tests compare in a way of their own"),
        (("[0.5, 7.5", "[ref(1), 7.5"), "a test is not a call that is compared with a known value"),
    ],
)
def test_tables_of_another_kind_are_left_out(change: tuple[str, str], reason: str) -> None:
    with left_out(reason):
        _read("assert f({1}, 2) == 9", test=TABLE.replace(*change))


def test_a_row_without_a_question_is_broken() -> None:
    with pytest.raises(ValidationError, match="neither a text nor a prompt"):
        MbppRow(code=GOLD, test_list=TESTS)


def test_the_right_code_is_paid_and_attacks_are_not() -> None:
    rewards = asyncio.run(score_programs(ROW, [GOLD, *UNPAID.values()]))
    assert dict(zip(["gold", *UNPAID], rewards, strict=True)) == {"gold": 1.0, **dict.fromkeys(UNPAID, 0.0)}
