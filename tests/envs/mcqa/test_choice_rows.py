"""Multiple choice over data sets: each form of a row, which rows are left out or refused, and what is paid."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable
from app.domain.tasks import LEFT_OUT, DatasetSource
from app.domain.values import Frozen
from app.envs.mcqa.environment import ChoiceQuestion, ChoiceRow, Mcqa, McqaParams, UnorderedChoiceRow
from tests.envs.replies import score_texts
from tests.support.tables import read_table


class Tables(Frozen):
    letters: tuple[tuple[dict[str, JsonValue], str], ...]
    left_out: tuple[dict[str, JsonValue], ...]
    broken: tuple[dict[str, JsonValue], ...]
    paid: dict[str, float]


TABLES = read_table(__file__, "choice_rows.yaml", Tables)

FOUR = ["maxilla", "ulna", "tibia", "femur"]
ASKED = {"question": "The upper jaw is called"}
TRAIN = {"splits": {"train": "train"}}


def _open(folder: Path, *rows: dict[str, Any]) -> Mcqa:
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    source = DatasetSource.model_validate({"source": str(folder), **TRAIN})
    return Mcqa.open(ConfiguredDatasets({"mcqa": {"rows": source}}, hub_cache=folder / "cache"))


@pytest.mark.parametrize(("columns", "letter"), TABLES.letters)
def test_the_right_option_is_read_from_every_form(columns: dict[str, Any], letter: str) -> None:
    assert ChoiceRow.model_validate({**ASKED, **columns}).options.letter == letter


@pytest.mark.parametrize("columns", TABLES.left_out)
def test_a_row_without_one_sure_choice_is_left_out(columns: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        ChoiceRow.model_validate({**ASKED, **columns})
    assert {error["type"] for error in raised.value.errors()} == {LEFT_OUT}


@pytest.mark.parametrize("columns", TABLES.broken)
def test_a_broken_row_is_refused_by_its_line_and_never_quoted(columns: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable) as raised:
        _open(tmp_path, {**ASKED, "choices": FOUR, "answer": 0}, {**ASKED, **columns})
    said = raised.value.detail
    assert ("train.jsonl, line 2" in said, [text for text in (*FOUR, "jaw", "mandible") if text in said]) == (True, [])


def _write_unordered(number: int, **changed: object) -> dict[str, Any]:
    wrong = {f"Incorrect Answer {place}": f"wrong {place}" for place in (1, 2, 3)}
    return {"Question": f"Question {number}?", "Correct Answer": " right  one ", **wrong, **changed}


def test_without_an_order_the_row_makes_one() -> None:
    rows = [UnorderedChoiceRow.model_validate(_write_unordered(number)) for number in range(400)]
    places = Counter(row.options.right for row in rows)
    assert {row.options.texts[row.options.right] for row in rows} == {"right one"}
    assert (sorted(places), min(places.values()) > 70) == ([0, 1, 2, 3], True)
    assert rows[0].options == UnorderedChoiceRow.model_validate(_write_unordered(0)).options


@pytest.mark.parametrize(
    ("changed", "count"), [({"Incorrect Answer 3": None}, 3), ({"Incorrect Answer 2": " "}, 3), ({}, 4)]
)
def test_absent_options_are_dropped(changed: dict[str, object], count: int) -> None:
    assert len(UnorderedChoiceRow.model_validate(_write_unordered(1, **changed)).options.texts) == count


@pytest.mark.parametrize("changed", [{"Correct Answer": " "}, {"Incorrect Answer 1": "right one"}])
def test_an_unordered_row_without_a_choice_is_left_out(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as raised:
        UnorderedChoiceRow.model_validate(_write_unordered(1, **changed))
    assert [error["type"] for error in raised.value.errors()] == [LEFT_OUT]


def test_a_row_is_a_task_with_its_topic_and_as_shuffled_as_asked(tmp_path: Path) -> None:
    rows = [{"question": f"{number}?", "choices": FOUR, "answer": 2, "subject": "anatomy"} for number in range(200)]
    opened = _open(tmp_path, *rows)
    plain, shuffled = McqaParams(), McqaParams(shuffle_options=True)
    letters = [
        Counter(
            ChoiceQuestion.model_validate(opened.task("train", index, params).reference).right for index in range(200)
        )
        for params in (plain, shuffled)
    ]
    task = opened.task("train", 7, plain)
    assert (opened.label("train", 7, plain), task.metadata["topic"], opened.size("train", plain)) == (
        "anatomy",
        "anatomy",
        200,
    )
    assert "A. maxilla\nB. ulna\nC. tibia\nD. femur" in str(task.messages[0].content)
    assert (letters[0], len(letters[1])) == (Counter({2: 200}), 4)
    assert _build_own(opened, shuffled) == _build_own(opened, plain)


def _build_own(opened: Mcqa, params: McqaParams) -> BaseModel:
    return opened.task("train", 0, params.model_copy(update={"dataset": "built-in"}))


@pytest.mark.parametrize(("reply", "reward"), [*TABLES.paid.items()])
def test_of_a_row_one_committed_letter_is_paid(reply: str, reward: float, tmp_path: Path) -> None:
    opened = _open(tmp_path, {**ASKED, "choices": FOUR, "answer": 2})
    task = opened.task("train", 0, McqaParams())
    (score,) = score_texts(opened, task, reply)
    assert score.reward == reward
