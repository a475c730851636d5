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
    return paid_in(f"Therefore \\boxed{{{answer}}}.", gold)


def paid_in(reply: str, gold: GoldAnswer) -> bool:
    boxes = extract_boxes(reply)
    if not boxes.texts:
        return False
    checked = check_boxes(boxes.texts, gold)
    pairs: list[JsonValue] = [list(pair) for pair in checked.pairs]
    return not checked.fault and finish(InProcessWorkers().run(ALL_EQUAL, pairs)) is True


@pytest.mark.parametrize("which", ["right", "wrong"])
@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: f"{kind.gold} {kind.form}")
def test_of_awkward_answers_the_right_ones_are_paid(kind: Kind, which: Literal["right", "wrong"]) -> None:
    answers = kind.right if which == "right" else kind.wrong + kind.refused
    assert {answer: paid(answer, kind.wanted) for answer in answers} == dict.fromkeys(answers, which == "right")


@pytest.mark.parametrize(
    ("reply", "texts", "flags"),
    [
        ("\\boxed{\\frac{1}{2}}", ("\\frac{1}{2}",), ()),
        ("\\boxed{x+1} … \\boxed{x + 1}", ("x + 1",), ()),
        ("\\boxed{\\frac12} … \\boxed{0.5}", ("\\frac12", "0.5"), ()),
        ("\\boxed{\\{1, 2\\}}", ("\\{1, 2\\}",), ()),
        ("\\boxed{} then \\boxed{your answer} and \\boxed{2}", ("2",), ()),
        ("\\fbox{2}", ("2",), ()),
        ("<think>\\boxed{3}</think> \\boxed{2}", ("2",), ()),
        ("\\boxed{2} … \\boxed{3}", ("2", "3"), ()),
        ("\\boxed{12} … \\boxed{1 2}", ("12", "1 2"), ()),
        ("".join(f"\\boxed{{{number}}}" for number in range(6)), (), ("conflicting_boxes",)),
        ("".join(f"\\boxed{{{number}}}" for number in range(200)), (), ("conflicting_boxes",)),
        ("<think>\\boxed{2}</think>", (), ("no_answer",)),
        ("<think>\\boxed{2}", (), ("no_answer", "unfinished_thinking")),
        ("\\boxed{2", (), ("no_answer",)),
        ("the answer is 2 #### 2 <answer>2</answer>", (), ("no_answer",)),
        ("There are 5 of 12, so the answer is **73**", (), ("no_answer",)),
        (f"\\boxed{{{'1+' * 600}1}}", (), ("unreadable_answer",)),
        (f"\\boxed{{1}} \\boxed{{{'1+' * 600}1}}", (), ("conflicting_boxes",)),
    ],
)
def test_the_boxes_that_count(reply: str, texts: tuple[str, ...], flags: tuple[str, ...]) -> None:
    assert extract_boxes(reply) == CommittedBoxes(texts, flags)


@pytest.mark.parametrize(
    ("gold", "boxes", "right"),
    [
        ("\\sqrt2", ["x = \\sqrt2", "\\sqrt2"], True),
        ("\\sqrt2", ["\\sqrt2", "\\sqrt3"], False),
        ("\\sqrt2", ["\\sqrt2", "1.414"], False),
        ("\\frac{\\pi}{2}", ["\\frac{\\pi}{2}", "\\pi/2", "0.5\\pi"], True),
        ("B", ["\\text{(B)}", "B"], True),
        ("B", ["\\text{(B)}", "C"], False),
        ("1, 2", ["1, 2", "2, 1"], True),
        ("1, 2", ["1", "2"], False),
        ("1, 2", ["1, 2", "1, 3"], False),
        ("7", ["7", "7 \\text{ or } 8"], False),
        ("(-\\infty, 3]", ["x \\le 3", "(-\\infty, 3]"], True),
        ("y = 2x + 1", ["y = 2x + 1", "2x + 1"], True),
        ("x = 1, y = 2", ["x = 1", "y = 2"], True),
        ("x = 1, y = 2", ["y = 2", "x = 1"], True),
        ("x = 1, y = 2", ["x = 2", "y = 1"], False),
        ("x = 1, y = 2", ["x = 1", "y = 2", "y = 3"], False),
        ("x = 1, y = 2", ["1", "2"], False),
        ("5\\text{ cm}", ["5\\text{ m}", "5\\text{ cm}"], False),
        ("5\\text{ cm}", ["5", "5\\text{ cm}"], True),
        ("133 apples", ["133 pears", "133 apples"], False),
    ],
)
def test_several_boxes_are_paid_if_all_are_right(gold: str, boxes: list[str], right: bool) -> None:
    reply = " so ".join(f"$\\boxed{{{box}}}$" for box in boxes)
    assert paid_in(reply, MathRow(problem="Find it.", answer=gold).gold) == right


@pytest.mark.parametrize(
    ("boxes", "flags", "rationale"),
    [
        (["50", "50\\%"], ("conflicting_boxes",), "two boxes were filled that differ"),
        (["\\frac12", "0.5", "50\\%"], (), "correct"),
        (["\\frac13", "1/3", "x = \\frac{2}{6}"], (), "it is another number"),
        (["\\frac{\\pi}{2}", "\\pi/2"], (), "it is no single number that is worked out"),
        (["2", "3"], ("conflicting_boxes",), "two boxes were filled that differ"),
    ],
)
def test_boxes_are_said_to_differ_only_if_they_do(boxes: list[str], flags: tuple[str, ...], rationale: str) -> None:
    reply = " so ".join(f"$\\boxed{{{box}}}$" for box in boxes)
    score = finish(grade_boxed(reply, GoldAnswer(latex="\\frac12"), InProcessWorkers()))
    assert (score.flags, score.rationale) == (flags, rationale)


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
    boxes = extract_boxes(f"\\boxed{{{unit * 100_000}}}")
    check_answer((unit * 1_000)[:1_000], gold)
    assert (boxes.texts in ((), ("1",)), time.process_time() - begun < 2.0) == (True, True)


MARKS = (
    *(chr(code) for code in range(0x20, 0x7F)),
    *(
        "\t",
        "\u0301",
        "½",
        "−",
        "，",
        "…",
        "√",
        "\ud800",
        "\\ ",
        "\\,",
        "\\!",
        "{,}",
        "a ",
        "1,",
        "(1,",
        "a=1,",
        "x>",
        "_{",
    ),
    *(
        "\\left(",
        "\\quad ",
        "\\text{",
        "\\frac{1}{",
        "\\{",
        "\\sqrt",
        "\\pm",
        "\\cup",
        "\\in",
        "\\text{or}",
        " or ",
        "\\lor ",
        " and ",
        "\\mid",
        "\\over ",
        "{1 \\over ",
        "(mod ",
        "\\text{(mod ",
        "\\equiv(\\mod 1",
        "~",
        "\\langle ",
        "x=",
        "]1,",
        "\\binom{1999}{9}",
    ),
)


@pytest.mark.parametrize(
    "gold",
    [
        *(
            "7",
            "a = 3, b = 5",
            "(1,2),(3,4)",
            "x \\ge 2",
            "\\sqrt{1/m}",
            "133 apples",
            "(1, 3)",
            "\\langle 1, 3 \\rangle",
        ),
        *("x \\equiv 4 \\pmod{8}", "1 + \\cdots + n", "\\binom{29}{11}", "x = 2 \\text{ or } x = 7"),
    ],
)
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
