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
from app.domain.values import Frozen
from tests.support.tables import read_table
from tests.support.tiers import examples


class Tables(Frozen):
    turned: tuple[tuple[str, str, dict[str, str]], ...]
    sums: list[dict[str, str]]


TABLES = read_table(__file__, "data_answers.yaml", Tables)

SUMS = TABLES.sums


def turn(reply: str, problem: str = "") -> dict[str, str]:
    """What becomes of the answer, by turn; without those that any number and text has."""
    answer = find_right_answer(reply, problem)
    assert answer is not None
    usual = {"zero put behind", "full stop put behind", "written in bold"}
    return {one.name: answer.write_reply(text) for one, text in iterate_turned(answer) if one.name not in usual}


@pytest.mark.parametrize(("reply", "problem", "turned"), TABLES.turned)
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
    assert {
        name: counted[name] for name in counted if name not in {"blanks dropped", "LaTeX written plainly"}
    } == read_table(__file__, "turned_answers.yaml", dict[str, tuple[str, int, int, int]])
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
