"""The math environment: its problems, a data set in their place, and hostile answers through real workers."""

import re
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import WorkerFailed, WorkExceeded
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import Split
from app.envs.math.environment import INSTRUCTION, Math, MathExercise, MathParams
from app.envs.math.problems import FAMILIES, write_fraction
from app.ports.environment import NoWorkers, Tools, Workers
from app.sandbox.workers import InProcessWorkers, ProcessWorkers
from app.service.judging import NoPanel
from app.toolkit.math_answers.expressions import parse_expression
from app.toolkit.math_answers.grading import ALL_EQUAL, GoldAnswer, MathRow, describe_undone
from app.toolkit.math_answers.parts import split_into_parts
from app.toolkit.procedural import MIXED, Level
from app.toolkit.seeded import SeededRandom
from tests.envs.replies import FailingWorkers, pose, score_texts
from tests.support.event_loop import closed_after

MATH = Math.open(ConfiguredDatasets({}))
SEVEN = MathRow(problem="What is $3 + 4$?", answer="7", level="Level 1", topic="Prealgebra")
ROOT = MathRow(problem="Compute $\\sqrt{8}$.", solution="First \\boxed{}, so $\\boxed{2\\sqrt{2}}$.", type="Algebra")
SPLITS: Mapping[Split, tuple[MathRow, ...]] = {"train": (SEVEN, ROOT), "test": (SEVEN,)}
ROWS = Math({"default": Dataset(name="default", origin="acme/math", digest="d1", splits=SPLITS)})


def scored(answers: Sequence[str], gold: GoldAnswer, workers: Workers) -> list[Score]:
    made = MathExercise(family="surds", values={}, gold=gold)
    return score_texts(MATH, pose(made), *(f"So \\boxed{{{answer}}}" for answer in answers), workers=workers)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", MIXED)
def test_every_right_answer_can_be_read_and_leaves_nothing_undone(family: str, level: Level) -> None:
    made = [FAMILIES[family].make(SeededRandom(f"{family} {number}"), level) for number in range(60)]
    golds = [one.gold for one in made]
    found = [split_into_parts(gold.latex, gold.shape) for gold in golds]
    texts = [(text, gold) for parts, gold in zip(found, golds, strict=True) if parts for text in parts.texts]
    nodes = [(parse_expression(text), gold) for text, gold in texts if "infinity" not in text]
    open_ends = [
        node and node.symbols | {node.kind}
        for node, gold in nodes
        if node is None or describe_undone(node, node, gold.form)
    ]
    assert (None in found, open_ends, len({str(one.values) for one in made}) > 20) == (False, [], True)


@pytest.mark.parametrize("level", MIXED)
def test_a_definite_integral_is_that_of_its_function(level: Level) -> None:
    """By Simpson's rule, which is exact up to the third power."""
    made = [FAMILIES["polynomial_integral"].make(SeededRandom(f"integral {number}"), level) for number in range(20)]
    integrals = []
    for values in (one.values for one in made):
        lower, upper = Fraction(values["lower"]), Fraction(values["upper"])
        ends = [_evaluate_polynomial(values["function"], at) for at in (lower, (lower + upper) / 2, upper)]
        integrals.append(write_fraction((upper - lower) * (ends[0] + 4 * ends[1] + ends[2]) / 6))
    assert [one.gold.latex for one in made] == integrals


def _evaluate_polynomial(text: str, at: Fraction) -> Fraction:
    """Of a text such as `-2x^{3} + x - 3`."""
    terms = re.findall(r"([-+]?)(\d*)(x?)(?:\^\{(\d)\})?", text.replace(" ", ""))
    return sum(
        (
            Fraction(f"{sign}{factor or 1}") * at ** int(power or len(x))
            for sign, factor, x, power in terms
            if factor or x
        ),
        Fraction(0),
    )


def test_topics_and_families_are_in_the_metadata_and_topics_may_be_asked_for() -> None:
    mixed = [MATH.task("train", index, MathParams()).metadata for index in range(600)]
    asked = [MATH.task("train", index, MathParams(topic="calculus")).metadata for index in range(100)]
    assert ({str(one["family"]) for one in mixed}, {str(one["topic"]) for one in asked}) == ({*FAMILIES}, {"calculus"})


def test_a_row_becomes_a_task() -> None:
    tasks = [ROWS.task("train", index, MathParams()) for index in range(2)]
    assert [(task.messages, task.metadata) for task in tasks] == [
        (
            (Message(role="system", content=INSTRUCTION), Message(role="user", content=row.task_text)),
            {"source": "acme/math", "dataset": "default", "split": "train", "index": index, **labels},
        )
        for index, (row, labels) in enumerate(
            ((SEVEN, {"level": "Level 1", "topic": "Prealgebra"}), (ROOT, {"topic": "Algebra"}))
        )
    ]
    assert (ROWS.size("test", MathParams()), ROWS.origin) == (1, "acme/math")
    assert ROWS.digests == {**MATH.digests, "dataset": "d1"}
    assert [ROWS.label("train", index, MathParams()) for index in range(2)] == ["Level 1", None]


def test_rows_of_a_folder_are_read(tmp_path: Path) -> None:
    for split in ("train", "test"):
        line = f'{{"question": "What is {split}?", "answer": 72, "solution": null, "level": 3, "id": "a"}}\n'
        (tmp_path / f"{split}.jsonl").write_text(line, encoding="utf-8")
    opened = Math.open(ConfiguredDatasets({"math": str(tmp_path)}))
    task = opened.task("test", 0, MathParams())
    assert (task.messages[-1].content, opened.gold(task)) == ("What is test?", Completion(text="\\boxed{72}"))


@pytest.mark.parametrize("row", [{"problem": "p"}, {"problem": "p", "solution": "no box"}, {"answer": "2"}])
def test_a_row_without_a_right_answer_is_refused(row: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        MathRow.model_validate(row)


def test_of_a_data_set_the_problem_itself_is_no_answer() -> None:
    task = ROWS.task("train", 1, MathParams())
    texts = ("2\\sqrt2", "\\sqrt{8}", "\\sqrt{4+4}", "2.83")
    scores = score_texts(ROWS, task, *(f"\\boxed{{{text}}}" for text in texts))
    assert [score.reward for score in scores] == [1.0, 0.0, 0.0, 0.0]


def test_only_what_may_be_right_and_is_written_differently_needs_a_worker() -> None:
    answers = ["2\\sqrt{3}", "\\sqrt3 \\cdot 2", "2\\sqrt{2}", "\\int x", "2 \\cdot 3", ""]
    scores = scored(answers, GoldAnswer(latex="2\\sqrt{3}"), NoWorkers())
    assert [score.reward for score in scores] == [1.0, None, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "gold", ["\\infty", "+\\infty", "-\\infty", "∞", "\\text{infinity}", "(1, \\infty)", "\\infty, 1"]
)
def test_what_is_said_of_infinity_always_has_a_score(gold: str) -> None:
    answers = ["\\infty", "+\\infty", "-\\infty", "2\\infty", "\\infty - \\infty", "\\infty^2", "+∞", "0", "x\\infty"]
    right = MathRow(problem="What is the limit?", answer=gold).gold
    scores = scored([*answers, gold], right, InProcessWorkers())
    assert ([score.reward for score in scores].count(None), scores[-1].reward) == (0, 1.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(WorkExceeded("too long", limit="cpu_seconds"), "verifier_killed"), (WorkerFailed("broke"), "verifier_failed")],
)
def test_what_could_not_be_compared_is_unscored_and_the_others_are_not(error: Exception, reason: str) -> None:
    scores = scored(["\\sqrt{12}", "2\\sqrt{3}"], GoldAnswer(latex="2\\sqrt{3}"), FailingWorkers(error))
    assert [(score.reward, score.reason) for score in scores] == [(None, reason), (1.0, None)]


ZEROS = (
    "\\sqrt{2}+\\sqrt{3}-\\sqrt{5+2\\sqrt{6}}",
    "\\sin^2 2+\\cos^2 2-1",
    "e^{\\ln 2}-2",
    "\\sqrt[3]{2+\\sqrt{5}}+\\sqrt[3]{2-\\sqrt{5}}-1",
)
LARGE = (
    *("(1+\\sqrt{2}+\\sqrt{3}+\\sqrt{5}+\\sqrt{7})^{100}", "(\\sqrt{2}+\\pi)^{8}", "9^{9^{9}}", "e^{e^{e^{e}}}"),
    *("99999999!", "((9!)!)!", "\\sum_{k=1}^{10^9} k", "\\int_0^1 x^{x^x} dx", "\\binom{10^9}{10^8}"),
    "\\sqrt{170141183460469231731687303715884105727}",
    "\\sqrt[19]{2+\\sqrt[17]{3}}",
    *("\\sqrt{" * 100 + "2" + "}" * 100, "(" * 300 + "1" + ")" * 300, "\\frac{1}{" * 6 + "\\pi" + "}" * 6),
)
GOLDS = (
    *(GoldAnswer(latex="2\\sqrt{3}"), GoldAnswer(latex="(4t - 11)e^{4t}"), GoldAnswer(latex="6")),
    GoldAnswer(latex="\\frac{t + 3}{t - 4}", form="reduced"),
    GoldAnswer(latex="y \\ge 2x + \\sqrt{3}", problem="Which half plane?"),
    GoldAnswer(latex="\\langle 1, 2 \\rangle", problem="Which vector?"),
)


@pytest.mark.slow
async def test_hostile_answers_do_not_stop_the_workers() -> None:
    """One of a few hundred may be killed and unscored; none is paid but what is equal, and ordinary answers are scored
    among them."""
    answers = [
        (gold, text)
        for gold in GOLDS
        for large in LARGE
        for text in (large, f"{gold.latex} + {large}", *(f"{gold.latex} + ({zero})({large})" for zero in ZEROS))
    ]
    scores, seconds = list[Score](), list[float]()
    async with closed_after(ProcessWorkers(2)) as workers:
        tools = Tools(panel=NoPanel(), workers=workers)
        await workers.run(ALL_EQUAL, [["x", "x"]])
        for gold, text in answers:
            reference = MathExercise(family="surds", values={}, gold=gold).model_dump(mode="json")
            begun = time.perf_counter()
            scores += await MATH.score(
                Task(messages=(), reference=reference), [Completion(text=f"\\boxed{{{text}}}")], tools
            )
            seconds.append(time.perf_counter() - begun)
    killed = [score for score in scores if score.reason == "verifier_killed"]
    assert {(score.outcome, score.reason) for score in scores} - {("unscored", "verifier_killed")} == {("scored", None)}
    assert (len(scores) == len(answers), len(killed) <= 20) == (True, True)
    assert sorted(seconds)[len(seconds) // 2] < 1.0
