"""Answers in LaTeX: a table of awkward ones, boxes, and what is too large."""

import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Literal

import pytest
from pydantic import JsonValue, TypeAdapter

from app.domain.values import Frozen
from app.sandbox.workers import InProcessWorkers
from app.toolkit.math_answers.expressions import MOST_CHARACTERS, extract_committed_box, parse_expression
from app.toolkit.math_answers.grading import ALL_EQUAL, Form, GoldAnswer, MathRow, check_answer
from app.toolkit.math_answers.parts import Shape
from app.toolkit.templates import read_packaged_data
from tests.support.event_loop import finish


class Kind(Frozen):
    """Answers to what has this right answer. With a problem it is of a data set, and says its shape by its look."""

    gold: str
    shape: Shape = "single"
    form: Form = "value"
    problem: str = ""
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    refused: tuple[str, ...] = ()

    @property
    def wanted(self) -> GoldAnswer:
        if self.problem:
            return MathRow(problem=self.problem, answer=self.gold).gold
        return GoldAnswer(latex=self.gold, shape=self.shape, form=self.form)


@lru_cache
def kinds() -> tuple[Kind, ...]:
    return read_packaged_data(Path(__file__).with_name("math_answers.yaml"), TypeAdapter(tuple[Kind, ...]))


def paid(answer: str, gold: GoldAnswer) -> bool:
    committed = extract_committed_box(f"Therefore \\boxed{{{answer}}}.")
    if committed.text is None:
        return False
    checked = check_answer(committed.text, gold)
    pairs: list[JsonValue] = [list(pair) for pair in checked.pairs]
    return not checked.fault and finish(InProcessWorkers().run(ALL_EQUAL, pairs)) is True


@pytest.mark.parametrize("which", ["right", "wrong"])
@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: f"{kind.gold} {kind.form}")
def test_of_awkward_answers_the_right_ones_are_paid(kind: Kind, which: Literal["right", "wrong"]) -> None:
    answers = kind.right if which == "right" else kind.wrong + kind.refused
    assert {answer: paid(answer, kind.wanted) for answer in answers} == dict.fromkeys(answers, which == "right")


@pytest.mark.parametrize(
    ("reply", "text", "flags"),
    [
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", ()),
        ("\\boxed{x+1} … \\boxed{x + 1}", "x + 1", ()),
        ("\\boxed{\\frac12} … \\boxed{0.5}", "0.5", ()),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}", ()),
        ("\\boxed{} then \\boxed{your answer} and \\boxed{2}", "2", ()),
        ("\\fbox{2}", "2", ()),
        ("<think>\\boxed{3}</think> \\boxed{2}", "2", ()),
        ("\\boxed{2} … \\boxed{3}", None, ("conflicting_boxes",)),
        ("\\boxed{12} … \\boxed{1 2}", None, ("conflicting_boxes",)),
        ("<think>\\boxed{2}</think>", None, ("no_answer",)),
        ("<think>\\boxed{2}", None, ("no_answer", "unfinished_thinking")),
        ("\\boxed{2", None, ("no_answer",)),
        ("the answer is 2 #### 2 <answer>2</answer>", None, ("no_answer",)),
        (f"\\boxed{{{'1+' * 600}1}}", None, ("unreadable_answer",)),
    ],
)
def test_the_box_that_counts(reply: str, text: str | None, flags: tuple[str, ...]) -> None:
    committed = extract_committed_box(reply)
    assert (committed.text, committed.flags) == (text, flags)


@pytest.mark.parametrize(
    "text",
    [
        *("(" * 21 + "x" + ")" * 21, "x^{101}", "2^3^4", "9" * 42, "x+" * 200 + "x", "x" * (MOST_CHARACTERS + 1)),
        *(
            *("", "+", "\\frac{1}", "x)", "\\sqrt[x]{2}", "5!", "x'", "\\int x", "2 3", "\\unknown", "x = 1"),
            "\\text{abc d}",
        ),
    ],
)
def test_what_is_no_expression_or_too_large_is_not_read(text: str) -> None:
    assert parse_expression(text) is None


@pytest.mark.parametrize(
    "unit", ["{", "}", "\\boxed{", "\\boxed{1}", "\\frac", "^", "(", "\\text{", "\\pm", "1,", "_{"]
)
def test_reading_takes_linear_time(unit: str) -> None:
    gold = GoldAnswer(latex="\\frac{1}{2}, \\sqrt{2}", shape="set")
    begun = time.process_time()
    committed = extract_committed_box(f"\\boxed{{{unit * 100_000}}}")
    check_answer((unit * 1_000)[:1_000], gold)
    assert (committed.text is None or committed.text == "1", time.process_time() - begun < 2.0) == (True, True)


def test_nothing_of_algebra_is_imported_by_the_service() -> None:
    code = (
        "import sys, app.envs.math.environment;"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'sympy', 'math_verify', 'antlr4', 'mpmath'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
