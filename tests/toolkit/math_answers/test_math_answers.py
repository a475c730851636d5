"""Answers in LaTeX: a table of awkward ones, boxes, and what is too large."""

import subprocess
import sys
import time
from typing import Literal

import pytest
from pydantic import JsonValue

from app.domain.values import Frozen
from app.sandbox.workers import InProcessWorkers
from app.toolkit.math_answers.expressions import (
    MOST_CHARACTERS,
    CommittedBoxes,
    extract_boxes,
    parse_expression,
)
from app.toolkit.math_answers.grading import (
    ALL_EQUAL,
    Form,
    GoldAnswer,
    MathRow,
    check_answer,
    check_boxes,
    grade_boxed,
)
from app.toolkit.math_answers.parts import Shape
from tests.support.event_loop import finish
from tests.support.tables import read_table


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


KINDS = read_table(__file__, "math_answers.yaml", tuple[Kind, ...])


def paid(answer: str, gold: GoldAnswer) -> bool:
    return paid_in(f"Therefore \\boxed{{{answer}}}.", gold)


def paid_in(reply: str, gold: GoldAnswer) -> bool:
    boxes = extract_boxes(reply)
    if not boxes.texts:
        return False
    checked = check_boxes(boxes.texts, gold)
    pairs: list[JsonValue] = [list(pair) for pair in checked.pairs]
    return not checked.fault and finish(InProcessWorkers().run(ALL_EQUAL, pairs)) is True


@pytest.mark.parametrize("which", ["right", "wrong"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.gold} {kind.form}")
def test_of_awkward_answers_the_right_ones_are_paid(kind: Kind, which: Literal["right", "wrong"]) -> None:
    answers = kind.right if which == "right" else kind.wrong + kind.refused
    assert {answer: paid(answer, kind.wanted) for answer in answers} == dict.fromkeys(answers, which == "right")


class Boxes(Frozen):
    """The tables of boxes.yaml, which says what each holds."""

    found: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    several: tuple[tuple[str, tuple[str, ...], bool], ...]
    differ: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]
    no_expression: tuple[str, ...]
    marks: tuple[str, ...]
    golds: tuple[str, ...]


BOXES = read_table(__file__, "boxes.yaml", Boxes)


@pytest.mark.parametrize(
    ("reply", "texts", "flags"),
    [
        *BOXES.found,
        ("".join(f"\\boxed{{{number}}}" for number in range(200)), (), ("conflicting_boxes",)),
        (f"\\boxed{{{'1+' * 600}1}}", (), ("unreadable_answer",)),
        (f"\\boxed{{1}} \\boxed{{{'1+' * 600}1}}", (), ("conflicting_boxes",)),
    ],
)
def test_the_boxes_that_count(reply: str, texts: tuple[str, ...], flags: tuple[str, ...]) -> None:
    assert extract_boxes(reply) == CommittedBoxes(texts, flags)


@pytest.mark.parametrize(("gold", "boxes", "right"), BOXES.several)
def test_several_boxes_are_paid_if_all_are_right(gold: str, boxes: tuple[str, ...], right: bool) -> None:
    reply = " so ".join(f"$\\boxed{{{box}}}$" for box in boxes)
    assert paid_in(reply, MathRow(problem="Find it.", answer=gold).gold) == right


@pytest.mark.parametrize(("boxes", "flags", "rationale"), BOXES.differ)
def test_boxes_are_said_to_differ_only_if_they_do(
    boxes: tuple[str, ...], flags: tuple[str, ...], rationale: str
) -> None:
    reply = " so ".join(f"$\\boxed{{{box}}}$" for box in boxes)
    score = finish(grade_boxed(reply, GoldAnswer(latex="\\frac12"), InProcessWorkers()))
    assert (score.flags, score.rationale) == (flags, rationale)


@pytest.mark.parametrize("text", [*BOXES.no_expression, "x+" * 200 + "x", "x" * (MOST_CHARACTERS + 1)])
def test_what_is_no_expression_or_too_large_is_not_read(text: str) -> None:
    assert parse_expression(text) is None


@pytest.mark.parametrize(
    "unit", ["{", "}", "\\boxed{", "\\boxed{1}", "\\frac", "^", "(", "\\text{", "\\pm", "1,", "_{"]
)
def test_reading_takes_linear_time(unit: str) -> None:
    gold = GoldAnswer(latex="\\frac{1}{2}, \\sqrt{2}", shape="set")
    begun = time.process_time()
    boxes = extract_boxes(f"\\boxed{{{unit * 100_000}}}")
    check_answer((unit * 1_000)[:1_000], gold)
    assert (boxes.texts in ((), ("1",)), time.process_time() - begun < 2.0) == (True, True)


MARKS = (*(chr(code) for code in range(0x20, 0x7F)), *BOXES.marks, "\ud800")


@pytest.mark.parametrize("gold", BOXES.golds)
def test_no_run_of_marks_holds_the_check_up(gold: str) -> None:
    """As long as an answer may be. Five hundred escaped blanks took for ever once."""
    right = MathRow(problem="Find $x$.", answer=gold).gold
    took: list[tuple[float, str, str]] = []
    for mark in MARKS:
        for lead in ("", "(", "\\{x \\mid ", "7 "):
            began = time.process_time()
            check_answer(f"{lead}{mark * 1_000}"[:999] + "x", right)
            took.append((time.process_time() - began, lead, mark))
    seconds, lead, mark = max(took)
    assert seconds < 0.25, f"{mark!r} behind {lead!r}"


def test_nothing_of_algebra_is_imported_by_the_service() -> None:
    code = (
        "import sys, app.envs.math.environment;"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'sympy', 'math_verify', 'antlr4', 'mpmath'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
