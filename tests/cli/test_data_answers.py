"""`data check` turns right answers round, and says which of them the rules pay."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.turned_answers import RowToTurn, check_answers, find_right_answer, iterate_turned
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from tests.support.tiers import examples

SUMS = [
    {"problem": "What are the roots of $x^2 - 5x + 6$?", "answer": "2, 3"},
    {"problem": "List the divisors of 9 from least to greatest.", "answer": "1, 3, 9"},
    {"problem": "Find $x$ and $y$ with $x + y = 8$ and $x - y = 2$.", "answer": "x = 5, y = 3"},
    {"problem": "At which point do the lines meet?", "answer": "(2, -3)"},
    {"problem": "How long is the side?", "answer": "5 \\text{ cm}"},
    {"problem": "What share is it?", "answer": "50\\%"},
    {"problem": "What is the probability?", "answer": "\\frac{1}{4}"},
]


def turn(reply: str, problem: str = "") -> dict[str, str]:
    """What becomes of the answer, by turn; without those that any number and text has."""
    answer = find_right_answer(reply, problem)
    assert answer is not None
    usual = {"zero put behind", "full stop put behind", "written in bold"}
    return {one.name: answer.write_reply(text) for one, text in iterate_turned(answer) if one.name not in usual}


@pytest.mark.parametrize(
    ("reply", "problem", "turned"),
    [
        ("#### 2, 3", "", {"list reversed": "#### 3, 2"}),
        ("#### 2 and 3", "", {"list reversed": "#### 3 and 2"}),
        ("<answer>a, b and c</answer>", "", {"list reversed": "<answer>c, b, a</answer>"}),
        ("#### 1,2", "Sort them.", {"list reversed where an order is asked for": "#### 2, 1"}),
        ("#### 1,2", "In any order.", {"list reversed": "#### 2, 1"}),
        ("#### 1,234", "", {"digits not grouped": "#### 1234"}),
        ("#### 1234", "", {"digits grouped": "#### 1,234"}),
        ("\\boxed{\\{1, 2\\}}", "", {"list reversed": "\\boxed{\\{2, 1\\}}"}),
        (
            "\\boxed{(1, (2, 3))}",
            "",
            {"pair reversed": "\\boxed{((2, 3), 1)}", "blanks dropped": "\\boxed{(1,(2,3))}"},
        ),
        (
            "\\boxed{q = 3, r = 5}",
            "",
            {"named values swapped": "\\boxed{q = 5, r = 3}", "blanks dropped": "\\boxed{q=3,r=5}"},
        ),
        (
            "\\boxed{5\\text{ cm}^2}",
            "",
            {"unit dropped": "\\boxed{5}", "LaTeX written plainly": "\\boxed{5 cm^2}"},
        ),
        ("\\boxed{90^\\circ}", "", {"unit dropped": "\\boxed{90}"}),
        ("#### 5 hours", "", {"unit dropped": "#### 5"}),
        ("#### $5.50", "", {"currency sign dropped": "#### 5.50"}),
        ("\\boxed{50\\%}", "", {"percent sign dropped": "\\boxed{50}", "LaTeX written plainly": "\\boxed{50%}"}),
        ("#### 30", "How many more clips has she?", {"unit put behind": "#### 30 clips"}),
        ("\\boxed{30}", "How many clips has she?", {"unit put behind": "\\boxed{30\\text{ clips}}"}),
        ("#### 30", "At $2 each, how much is it?", {"currency sign put in front": "#### $30"}),
        (
            "\\boxed{\\text{even}}",
            "",
            {"LaTeX written plainly": "\\boxed{even}"},
        ),
        (
            "\\boxed{even}",
            "",
            {"other case": "\\boxed{EVEN}", "plain text written in LaTeX": "\\boxed{\\text{even}}"},
        ),
        ("\\boxed{ab}", "", {}),
        (
            "\\boxed{\\frac{\\sqrt{3}}{2}}",
            "",
            {"LaTeX written plainly": "\\boxed{(sqrt(3))/2}"},
        ),
        (
            "\\boxed{-1/8}",
            "",
            {
                "plain text written in LaTeX": "\\boxed{-\\frac{1}{8}}",
                "fraction written as a decimal": "\\boxed{-0.125}",
            },
        ),
        ("#### 12", "", {"number spelt out": "#### twelve"}),
        (
            "<answer>B</answer>",
            "Which?\nA. oxygen\nB. argon",
            {
                "other case": "<answer>b</answer>",
                "letter in brackets": "<answer>(B)</answer>",
                "option's text put behind its letter": "<answer>B. argon</answer>",
            },
        ),
        ("\\boxed{1} and then\n\\boxed{x^{2} + 1}", "", {"blanks dropped": "\\boxed{1} and then\n\\boxed{x^{2}+1}"}),
    ],
)
def test_an_answer_is_turned_round_where_that_applies(reply: str, problem: str, turned: dict[str, str]) -> None:
    assert turn(reply, problem) == turned


@pytest.mark.parametrize("reply", ["42", "", "\\boxed{4", "<answer></answer>", '<answer>{"a": 1}</answer>', "#### "])
def test_what_commits_to_no_value_is_not_turned(reply: str) -> None:
    assert find_right_answer(reply) is None


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(
    st.sampled_from(["\\boxed{%s}", "#### %s", "<answer>%s</answer>"]),
    st.text("0123456789,./-=$%°\\{}()[] abAB") | st.text(max_size=20),
)
def test_only_the_answer_of_a_reply_is_turned(frame: str, text: str) -> None:
    answer = find_right_answer(frame % text, "How many clips at $2 in order?")
    if answer is not None:
        replies = [answer.write_reply(turned) for _, turned in iterate_turned(answer)]
        assert [
            reply for reply in replies if not (reply.startswith(answer.before) and reply.endswith(answer.after))
        ] == []
        assert answer.write_reply(answer.text) == frame % text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.yaml").write_text(f"cache_dir: {tmp_path / 'cache'}\n", encoding="utf-8")
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in SUMS), encoding="utf-8")
    return folder


def _check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["data", "check", *arguments])
    return done.exit_code, done.stdout


def _read_answers(said: str) -> Any:
    (read,) = json.loads(said)["datasets"]
    return read["answers"]


def test_each_turn_is_counted_and_ambiguous_rows_are_named(folder: Path) -> None:
    code, said = _check("math", str(folder), "--json")
    answers = _read_answers(said)
    counted = {one["turn"]: (one["means"], one["rows"], one["paid"], one["unpaid"]) for one in answers["turns"]}
    ambiguous = {one["turn"]: one["ambiguous"] for one in answers["turns"] if one["ambiguous"]}
    assert (code, answers["rows"], answers["unpaid"]) == (0, 7, [])
    assert {name: counted[name] for name in counted if name not in {"blanks dropped", "LaTeX written plainly"}} == {
        "list reversed": ("the same", 1, 1, 0),
        "list reversed where an order is asked for": ("another thing", 1, 0, 1),
        "pair reversed": ("another thing", 1, 0, 1),
        "named values swapped": ("another thing", 1, 0, 1),
        "unit dropped": ("the same", 1, 1, 0),
        "percent sign dropped": ("another thing", 1, 1, 0),
        "fraction written as a decimal": ("the same", 1, 1, 0),
    }
    assert ambiguous["percent sign dropped"] == [
        {"split": "train", "index": 5, "place": "train.jsonl, line 6", "right": "50\\%", "turned": "50"}
    ]


def test_people_read_the_counts_and_the_rows(folder: Path) -> None:
    code, said = _check("math", str(folder), "--tasks", "1")
    wanted = (
        "right answers of 7 rows, turned round",
        "│ named values swapped",
        "ambiguous, percent sign dropped, paid: train 5 (train.jsonl, line 6): 50\\% as 50",
    )
    assert (code, [text for text in wanted if text not in said]) == (0, [])


def test_a_gold_that_is_not_paid_is_named_and_what_cannot_be_scored_is_neither_paid_nor_not() -> None:
    """By rules that pay what is written in bold, cannot score a point, and know no gold 7."""
    golds = {"a": "#### 1/2", "b": "#### 7", "c": "none"}

    async def score(task: Task, group: Sequence[Completion]) -> list[Score]:
        texts = [one.answer for one in group]
        return [
            Score.unscored("verifier_killed")
            if "." in text
            else Score.exact(text == "#### 1/2" or (text.endswith("**") and task.reference == "a"))
            for text in texts
        ]

    rows = [
        RowToTurn("test", index, f"line {index + 1}", Task(messages=(), reference=name))
        for index, name in enumerate(golds)
    ]
    done: list[int] = []
    told = asyncio.run(
        check_answers(rows, lambda task: Completion(text=golds[str(task.reference)]), score, done.append)
    )
    counted = [(one.turn, one.rows, one.paid, one.unpaid) for one in told.turns]
    assert (told.rows, [(one.place, one.right) for one in told.unpaid], counted, done) == (
        1,
        [("line 2", "7")],
        [
            ("fraction written as a decimal", 1, 0, 0),
            ("full stop put behind", 1, 0, 0),
            ("written in bold", 1, 1, 0),
        ],
        [3],
    )


def test_fewer_answers_are_spread_evenly_and_none_are_turned_where_nobody_asks(folder: Path) -> None:
    few, none = (_read_answers(_check("math", str(folder), "--json", "--answers", most)[1]) for most in ("3", "0"))
    assert (few["rows"], none) == (3, None)


def test_answers_that_are_no_values_are_not_turned(folder: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "Hi"}], "preference": "short"}
    (folder / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    code, said = _check("rlaif", str(folder), "--json", "--column", "messages=prompt")
    assert (code, _read_answers(said)) == (0, None), said
