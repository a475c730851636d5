"""Rows of MBPP: what is read, what is left out and why, and what is paid."""

import asyncio

import pytest
from pydantic import ValidationError

from app.domain.sources import Dataset
from app.domain.tasks import Completion, Task
from app.envs.code_exec.environment import CodeExec, CodeExecParams
from app.envs.code_exec.tasks.mbpp_rows import MbppRow, RowCase, RowTests
from app.ports.environment import Tools
from app.sandbox.programs import JailedPrograms
from app.service.judging import NoPanel

TESTS = ("assert pair([3, 1]) == (1, 3)", "assert pair([5, 4]) == (4, 5)")
GOLD = "def pair(items):\n    return min(items), max(items)"
ROW = MbppRow(code=GOLD.replace("\n", "\r\n"), text="Give the ends.", test_list=TESTS, test_setup_code="import math")
ENV = CodeExec({"mbpp": Dataset(name="mbpp", origin="mbpp", digest="1", splits={"train": [ROW]})})
TASK: Task = ENV.task("train", 0, CodeExecParams())

ALWAYS_EQUAL = "class Same(list):\n    __eq__ = lambda *_: True\ndef pair(items): return Same()"
UNPAID = {
    "constant": "def pair(items): return [1, 3]",
    "echo": "def pair(items): return items",
    "shown test": "def pair(items): return (1, 3) if items == [3, 1] else None",
    "exit": "import sys\ndef pair(items): sys.exit(0)",
    "hard exit": "import os\ndef pair(items): os._exit(0)",
    "exit while read": "import os\nos._exit(0)\ndef pair(items): pass",
    "equal to anything": ALWAYS_EQUAL,
    "printed verdict": "def pair(items): print('{\"result\": [1, 3]}', flush=True)",
}


def test_a_row_is_read_as_cases() -> None:
    cases = (RowCase(arguments=([3, 1],), expected=[1, 3]), RowCase(arguments=([5, 4],), expected=[4, 5]))
    assert ROW.tests == RowTests(function="pair", setup="import math", cases=cases)


def test_the_first_test_is_shown_and_the_others_are_not() -> None:
    prompt = TASK.messages[0].content or ""
    assert [test in prompt for test in TESTS] == [True, False]


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (("assert f((1,)) == 1", "assert f((2,)) == 2"), "a test is not a call with JSON arguments"),
        (("assert f(1) == {1}", "assert f(2) == {2}"), "a test is not a call with JSON arguments"),
        (("assert f(1)", "assert not f(2)"), "a test is not a call with JSON arguments"),
        (("assert f(1) == 2", "assert g(2) == 3"), "its tests do not call one and the same function"),
        (("assert f(1) == 2",), "it has fewer than two tests"),
        (("assert f(1) == 2", "assert f(3) == 2"), "all its tests expect the same result"),
        (("assert f(1, 2) == 2", "assert f(3, 4) == 4"), "all its tests expect one of the arguments"),
    ],
)
def test_rows_that_make_no_task_are_left_out(tests: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as caught:
        MbppRow(code="def f(): ...", text="?", test_list=tests)
    assert [error["type"] for error in caught.value.errors()] == ["left_out"]


def test_a_row_without_a_question_is_broken() -> None:
    with pytest.raises(ValidationError, match="neither a text nor a prompt"):
        MbppRow(code=GOLD, test_list=TESTS)


def test_the_right_code_is_paid_and_attacks_are_not() -> None:
    gold = ENV.gold(TASK)
    attacks = [Completion(text=f"```python\n{source}\n```") for source in UNPAID.values()]
    rewards = asyncio.run(_score_all([gold or Completion(text=""), *attacks]))
    assert dict(zip(["gold", *UNPAID], rewards, strict=True)) == {"gold": 1.0, **dict.fromkeys(UNPAID, 0.0)}


async def _score_all(group: list[Completion]) -> list[float | None]:
    programs = JailedPrograms(1)
    try:
        return [score.reward for score in await ENV.score(TASK, group, Tools(panel=NoPanel(), programs=programs))]
    finally:
        await programs.close()
