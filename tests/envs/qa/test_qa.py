"""Questions and answers: what is right for each kind, which rows make tasks, and what the page of the docs shows."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.tasks import LEFT_OUT, DatasetSource, Message
from app.domain.values import Frozen
from app.envs.qa.environment import Qa, QaParams
from app.envs.qa.questions import KINDS, Kind, QaRow
from tests.envs.replies import score_texts
from tests.support.serving import ROOT
from tests.support.tables import read_table


class Tables(Frozen):
    tagged: tuple[tuple[dict[str, Any], list[str], list[str]], ...]
    numbers: tuple[tuple[dict[str, Any], list[str], list[str]], ...]
    left_out: tuple[dict[str, JsonValue], ...]
    broken: tuple[dict[str, JsonValue], ...]
    between_tags: tuple[tuple[dict[str, Any], list[str], list[str]], ...]


TABLES = read_table(__file__, "qa.yaml", Tables)

MADE = Qa.open(ConfiguredDatasets({}))
PAGE = (ROOT / "docs" / "qa.md").read_text(encoding="utf-8")
SHOWN = [json.loads(line) for line in PAGE.partition("```json\n")[2].partition("```")[0].splitlines()]
RECORD = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def _open(folder: Path, rows: list[dict[str, Any]], **settings: Any) -> Qa:
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    source = DatasetSource.model_validate({"source": str(folder), **settings})
    return Qa.open(ConfiguredDatasets({"qa": {"rows": source}}, hub_cache=folder / "cache"))


def _pay(row: dict[str, Any], replies: list[str], folder: Path) -> list[float | None]:
    opened = _open(folder, [{"question": "What is asked?", **row}])
    task = opened.task("train", 0, QaParams())
    return [one.reward for one in score_texts(opened, task, *replies)]


@pytest.mark.parametrize(("row", "right", "wrong"), TABLES.between_tags)
def test_what_is_right_between_tags(row: dict[str, Any], right: list[str], wrong: list[str], tmp_path: Path) -> None:
    tagged = [f"<think>no</think><answer>{text}</answer>" for text in (*right, *wrong)]
    bare = [right[0], f"<think><answer>{right[0]}</answer>", f"<answer>{wrong[0]}</answer><answer>{right[0]}</answer>"]
    assert _pay(row, [*tagged, *bare], tmp_path) == [1.0] * len(right) + [0.0] * (len(wrong) + 3)


@pytest.mark.parametrize(("row", "right", "wrong"), TABLES.numbers)
def test_what_is_right_as_a_number_and_in_a_box(
    row: dict[str, Any], right: list[str], wrong: list[str], tmp_path: Path
) -> None:
    assert _pay(row, [*right, *wrong], tmp_path) == [1.0] * len(right) + [0.0] * len(wrong)


@pytest.mark.parametrize("row", [*TABLES.left_out, {"answer": "x" * 10_001}])
def test_a_sound_row_without_an_answer_that_can_be_said_is_left_out(row: dict[str, JsonValue]) -> None:
    with pytest.raises(ValidationError) as raised:
        QaRow.model_validate({"question": "q", **row})
    assert [error["type"] for error in raised.value.errors()] == [LEFT_OUT]


@pytest.mark.parametrize("row", TABLES.broken)
def test_a_broken_row_is_refused_by_its_line(row: dict[str, Any], tmp_path: Path) -> None:
    sound = {"question": "q", "answer": "a"}
    with pytest.raises(EnvironmentUnavailable) as raised:
        _open(tmp_path, [sound, {"question": "q", **row}])
    said = raised.value.detail
    assert ("train.jsonl, line 2" in said, "secret" in said) == (True, False)


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_each_kind_are_made_and_may_be_asked_for_alone(kind: Kind) -> None:
    tasks = [MADE.task("train", index, QaParams(kind=kind)) for index in range(60)]
    mixed = Counter(MADE.label("train", index, QaParams()) for index in range(300))
    assert ({task.metadata["kind"] for task in tasks}, mixed[kind] > 20) == ({kind}, True)


def test_rows_as_the_page_shows_them_are_paid(tmp_path: Path) -> None:
    opened = _open(tmp_path, SHOWN)
    tasks = [opened.task("train", index, QaParams()) for index in range(len(SHOWN))]
    golds = [(task, gold) for task in tasks if (gold := opened.gold(task)) is not None]
    paid = [score_texts(opened, task, gold.answer)[0].reward for task, gold in golds]
    assert ([row["kind"] for row in SHOWN], paid) == (list(KINDS), [1.0] * len(KINDS))
    assert [task.metadata["kind"] for task in tasks] == list(KINDS)
    assert (tasks[0].metadata["topic"], tasks[2].metadata["level"]) == ("geography", "easy")
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)[1:] == list(KINDS)


def test_cells_of_csv_hold_lists_and_objects_as_json(tmp_path: Path) -> None:
    names = list(dict.fromkeys(name for row in SHOWN for name in row))
    with (tmp_path / "train.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in SHOWN:
            writer.writerow(
                {
                    name: json.dumps(value)
                    if name in ("schema", "options", "aliases") or not isinstance(value, str)
                    else value
                    for name, value in row.items()
                }
            )
    opened = Qa.open(ConfiguredDatasets({"qa": str(tmp_path)}, hub_cache=tmp_path / "cache"))
    rows = [opened.find_row(opened.task("train", index, QaParams())) for index in range(len(SHOWN))]
    keys = [row.build_key("exact") for row in rows if row is not None]
    assert keys == [QaRow.model_validate(row).build_key("exact") for row in SHOWN]


def test_the_kind_comes_from_the_row_the_settings_or_the_params(tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3", "kind": "exact"}]
    settled = _open(tmp_path, rows, values={"kind": "math", "system": "Be brief."})
    plain = _open(tmp_path, rows)
    asked = [
        [opened.task("train", index, QaParams(kind=kind)).metadata["kind"] for index in range(2)]
        for opened, kind in ((settled, None), (settled, "number"), (plain, "number"), (plain, None))
    ]
    assert asked == [["math", "exact"], ["math", "exact"], ["number", "exact"], ["exact", "exact"]]
    assert settled.task("train", 0, QaParams()).messages[0] == Message(role="system", content="Be brief.")
    assert settled.digests["dataset.rows"] != plain.digests["dataset.rows"]
    with pytest.raises(InvalidRequest) as raised:
        plain.check_params(QaParams(kind="choice"))
    assert (raised.value.field, "a choice needs `options`" in raised.value.detail) == ("params.kind", True)


def test_a_value_for_a_column_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"values\.kinds: there is no such column"):
        _open(tmp_path, [{"question": "q", "answer": "a"}], values={"kinds": "exact"})


def test_values_do_not_change_which_rows_are_held_out(tmp_path: Path) -> None:
    rows = [{"question": f"{number}?", "answer": str(number)} for number in range(200)]
    plain, other = (
        _open(tmp_path, rows, hold_out=0.2, values=values).datasets["rows"].splits["test"]
        for values in ({}, {"system": "Be brief."})
    )
    held_out = [[row.question for row in rows] for rows in (plain, other)]
    assert (held_out[0] == held_out[1], 20 < len(held_out[0]) < 60, other[0].system) == (True, True, "Be brief.")


def test_an_answer_without_an_example_has_no_gold(tmp_path: Path) -> None:
    opened = _open(
        tmp_path,
        [{"kind": "regex", "question": "q", "answer": "a+"}, {"kind": "json", "question": "q", "answer": RECORD}],
    )
    assert [opened.gold(opened.task("train", index, QaParams())) for index in range(2)] == [None, None]
