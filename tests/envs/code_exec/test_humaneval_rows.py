"""Rows of HumanEval and HumanEval+: what is read, what is left out, and what is paid."""

import asyncio

import pytest
from pydantic import ValidationError

from app.domain.values import Frozen
from app.envs.code_exec.rows import HumanEvalRow
from tests.envs.code_exec.row_scores import left_out, make_row_task, score_programs
from tests.support.tables import read_table

PROMPT = 'def half(number):\n    return number / 2\n\n\ndef quarter(number: float):\n    """A quarter of it."""\n'


class Tables(Frozen):
    programs: dict[str, tuple[str, float]]
    check: str
    loop: str
    reference: str


TABLES = read_table(__file__, "humaneval_rows.yaml", Tables)
CHECK, LOOP, PROGRAMS = TABLES.check, TABLES.loop, TABLES.programs
ROW = HumanEvalRow(
    task_id="Own/0",
    prompt=PROMPT,
    entry_point="quarter",
    canonical_solution="    return half(half(number))\n",
    test=CHECK,
)
TABLE = CHECK.partition("    # easy")[0] + (
    "    inputs = [[4], [1]]\n    results = [1, 0.25]\n"
    "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 0)\n"
)


@pytest.mark.parametrize("test", [CHECK, TABLE, LOOP, TABLES.reference])
def test_what_completes_the_program_is_paid(test: str) -> None:
    """The last two compute what is right, with the right body alone."""
    row = ROW.model_copy(update={"test": test})
    rewards = asyncio.run(score_programs(row, [str(row.gold), *(source for source, _ in PROGRAMS.values())]))
    assert rewards == [1.0, *(paid for _, paid in PROGRAMS.values())]


def test_only_asserts_of_the_function_are_run() -> None:
    calls = [case.arguments[0] for case in ROW.build_tests().cases]
    assert calls == ["candidate(4)", "candidate(-4)", "candidate(1)", "tuple([candidate(0)])"]


def test_the_prompt_shows_the_beginning_and_no_test() -> None:
    prompt = make_row_task(ROW)[1].messages[0].content or ""
    assert [PROMPT.strip() in prompt, "candidate" in prompt] == [True, False]


HELPED = "def check(candidate):\n    assert candidate(half(8)) == 1\n    assert candidate(half(16)) == 2\n"


def test_a_reply_does_not_choose_what_it_is_asked() -> None:
    row = ROW.model_copy(update={"test": HELPED})
    own = "def half(number): return number / 8\ndef quarter(number): return number"
    assert asyncio.run(score_programs(row, [str(row.gold), own])) == [1.0, 0.0]


def test_a_right_body_that_does_not_run_gives_no_score() -> None:
    row = ROW.model_copy(update={"test": LOOP, "canonical_solution": "    return nothing\n"})
    assert asyncio.run(score_programs(row, ["def quarter(number): return number / 4"])) == [None]


@pytest.mark.parametrize("change", read_table(__file__, "humaneval_checks.yaml", list[tuple[str, str]]))
def test_a_check_that_asks_for_something_else_is_left_out(change: tuple[str, str]) -> None:
    with left_out("its check computes what is right"):
        HumanEvalRow.model_validate({**ROW.model_dump(), "test": LOOP.replace(*change)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("    # easy", "    for number in range(9): assert candidate(number) == number / 4"), "its check computes"),
        (("candidate(4) == 1", "candidate(4) == half(2)"), "a test is not a call that is compared with a known value"),
        (("def check", "def test"), "its test defines no `check`"),
        (("def check(", "def check(("), "its tests are no Python"),
        ((CHECK[CHECK.index("    assert candidate(-4)") :], ""), "it has fewer than two tests"),
    ],
)
def test_rows_that_make_no_task_are_left_out(change: tuple[str, str], reason: str) -> None:
    with left_out(reason):
        HumanEvalRow(prompt=PROMPT, entry_point="quarter", test=CHECK.replace(*change))


def test_an_entry_point_that_is_no_name_is_broken() -> None:
    with pytest.raises(ValidationError, match="entry_point is no name of a function"):
        HumanEvalRow(prompt=PROMPT, entry_point="half quarter", test=CHECK)
