"""Rows of LiveCodeBench: packed tests are read without loading a pickle."""

import asyncio
import base64
import json
import os
import pickle
import zlib
from typing import Any

import pytest

from app.domain.tasks import CHECKED
from app.envs.code_exec import rows
from app.envs.code_exec.rows import LiveCodeBenchRow
from tests.envs.code_exec.row_scores import left_out, make_row_task, score_programs
from tests.support.tables import read_table

PUBLIC = [{"input": "[1, 2]\n1", "output": "2", "testtype": "functional"}]
PRIVATE = [{"input": "[3]\n0", "output": "3", "testtype": "functional"}]
RUNS = [{"input": f"{n}\n", "output": f"{n}.0\n{n * n}", "testtype": "stdin"} for n in range(2, 5)]
STARTER = "class Solution:\n    def pick(self, items: List[int], place: int) -> int:\n        "
COLUMNS = read_table(__file__, "livecodebench_columns.yaml", dict[str, Any])


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("attacked",)


def _pack(value: object, protocol: int | None = None) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def _read(private: str = json.dumps(PRIVATE), public: Any = PUBLIC, **columns: str) -> LiveCodeBenchRow:
    tests = {"public_test_cases": json.dumps(public), "private_test_cases": private}
    return LiveCodeBenchRow.model_validate({**COLUMNS, **tests, **columns})


@pytest.mark.parametrize("protocol", [None, 2, 3, 4, 5])
def test_private_tests_are_run_however_they_are_packed(protocol: int | None) -> None:
    row = _read(_pack(json.dumps(PRIVATE), protocol) if protocol else json.dumps(PRIVATE))
    programs = [
        f"{STARTER}return items[place]",
        "def pick(items, place): return items[place]",
        f"{STARTER}return 2",
        f"{STARTER}return items[0]",
    ]
    assert asyncio.run(score_programs(row, programs)) == [1.0, 1.0, 0.0, 0.0]


def test_programs_that_read_standard_input_are_run() -> None:
    row = _read(json.dumps(RUNS[1:]), RUNS[:1], starter_code="", metadata="{}")
    programs = ["n = int(input())\nprint(n, n * n, sep='\\n')", "n = int(input())\nprint(n, n * n)", "print('2\\n4')"]
    assert asyncio.run(score_programs(row, programs)) == [1.0, 0.0, 0.0]


def test_the_date_and_the_difficulty_are_told() -> None:
    environment, task = make_row_task(_read())
    told = {name: task.metadata[name] for name in ("function", "contest_date", "difficulty", "platform", "question_id")}
    assert told == {
        "function": "pick",
        "contest_date": "2024-08-01",
        "difficulty": "easy",
        "platform": "leetcode",
        "question_id": "7",
    }
    assert environment.gold(task) is None


@pytest.mark.parametrize(
    ("private", "reason"),
    [
        (_pack(Attack()), "its private tests cannot be unpacked"),
        (_pack([json.dumps(PRIVATE)]), "its private tests cannot be unpacked"),
        (_pack(7), "its private tests cannot be unpacked"),
        ("@@@", "its private tests cannot be unpacked"),
        (base64.b64encode(zlib.compress(b"\x80")).decode(), "its private tests cannot be unpacked"),
        (base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-6]).decode(), "its private tests cannot be unpacked"),
        (_pack("x" * 5000), "its private tests are more than"),
        (_pack("{}"), "its tests are no list"),
        (_pack("[1]"), "a test cannot be read"),
        ("", "its private tests are missing"),
    ],
)
def test_what_is_no_packed_text_is_left_out(private: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BYTES", 4096)
    with left_out(reason):
        _read(private)


def test_what_was_checked_before_is_not_unpacked_again() -> None:
    columns = {**COLUMNS, "public_test_cases": "[]", "private_test_cases": "@@@"}
    row = LiveCodeBenchRow.model_validate(columns, context=CHECKED)
    assert make_row_task(row)[1].metadata["function"] == "pick"


@pytest.mark.parametrize(
    "columns", [{"question_id": "abc350_c"}, {"question_title": "find the peaks"}, {"question_title": "find-the-peaks"}]
)
def test_problems_that_are_graded_wrongly_are_left_out(columns: dict[str, str]) -> None:
    with left_out("it is one of the problems that are known to be graded wrongly"):
        _read(**columns)
