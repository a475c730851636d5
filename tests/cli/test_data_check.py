"""`data check`: what is used, what is left out and why, and whether golds are paid."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.support.tables import read_table

TABLE = read_table(__file__, "data_check.yaml", tuple[tuple[tuple[str, ...], str], ...])

ROWS = [
    {"problem": "What is $1 + 1$?", "answer": "2"},
    {"problem": "What is $2 + 2$?", "answer": ""},
    {"problem": "What is $1 + 1$?", "answer": "2"},
    {"problem": "What is $3 \\cdot 3$?\u001b[31m", "solution": "It is \\boxed{9}."},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(f"cache_dir: {tmp_path / 'cache'}\n", encoding="utf-8")
    folder = tmp_path / "sums"
    folder.mkdir()
    for split, rows in (("all", ROWS), ("dev", ROWS[:1])):
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder


def _run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["data", "check", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_what_is_used_and_left_out_is_said_and_golds_are_scored(folder: Path) -> None:
    code, said, _ = _run("math", str(folder), "--split", "train=all", "--split", "test=dev", "--json")
    report = json.loads(said)
    (read,) = report.pop("datasets")
    left_out = read_table(__file__, "left_out_rows.yaml", list[Any])
    assert (code, report) == (0, {"environment": "math", "passed": True})
    assert (read["name"], read["origin"], read["splits"]) == (
        "checked",
        "sums",
        {"train": {"used": 2, "in_both": 1, "left_out": left_out}, "test": {"used": 1, "in_both": 1, "left_out": []}},
    )
    assert [(task["split"], task["index"], task["gold"], task["reward"]) for task in read["tasks"]] == [
        ("train", 0, "\\boxed{2}", 1.0),
        ("train", 1, "\\boxed{9}", 1.0),
    ]


def test_people_read_a_table_and_texts_of_rows_cannot_move_the_cursor(folder: Path) -> None:
    code, said, _ = _run("math", str(folder), "--split", "train=all")
    wanted = (
        "it repeats another row",
        "all.jsonl, line 3",
        "user: What is $1 + 1$?",
        "reward of the gold: 1 (correct)",
    )
    assert (code, [text for text in wanted if text not in said], "\u001b" in said) == (0, [], False)


def test_data_sets_of_the_settings_are_checked_without_a_path(folder: Path) -> None:
    with Path("gateway.yaml").open("a", encoding="utf-8") as settings:
        settings.write("datasets: {math: {ours: {source: sums, splits: {train: dev}}}}\n")
    code, said, _ = _run("math", "--json")
    (read,) = json.loads(said)["datasets"]
    assert (code, read["name"], read["splits"]["train"]["used"]) == (0, "ours", 1)


@pytest.mark.parametrize(("arguments", "problem"), TABLE)
def test_what_cannot_be_read_is_said_in_a_sentence(folder: Path, arguments: tuple[str, ...], problem: str) -> None:
    code, said, complaint = _run(*arguments)
    assert (code, said, complaint.strip()) == (2, "", problem)
