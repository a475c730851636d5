"""Rows of IFEval: what they may look like, what is said of broken ones, and what replies to them earn."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable
from app.domain.tasks import LEFT_OUT, DatasetSource, Task
from app.envs.instruction_following.environment import InstructionFollowing
from app.envs.instruction_following.ifeval_rows import IfevalRow, IfevalTrainingRow
from tests.envs.replies import score_texts
from tests.support.tables import read_table

TABLE = read_table(__file__, "ifeval_rows.yaml", tuple[tuple[dict[str, JsonValue], str], ...])

LAKE: dict[str, Any] = {
    "key": 1,
    "prompt": "Write about a trip to a lake, without commas and in less than 40 words.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{"relation": None}, {"relation": "less than", "num_words": 40, "letter": None}],
}
SALT: dict[str, Any] = {
    "key": 2,
    "prompt": "Is the sea salty? Say one of: My answer is yes. My answer is no. My answer is maybe.",
    "instruction_id_list": ["detectable_format:constrained_response"],
    "kwargs": [{}],
}
TRIP = "We left before dawn and rowed out until the town was only a line behind us."


def open_rows(folder: Path, *rows: Mapping[str, Any]) -> InstructionFollowing:
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    sources = {"instruction_following": {"ifeval": DatasetSource(source=str(folder))}}
    return InstructionFollowing.open(ConfiguredDatasets(sources, hub_cache=folder / "cache"))


def reward(environment: InstructionFollowing, task: Task, *replies: str) -> list[tuple[float | None, str]]:
    return [(score.reward, score.rationale) for score in score_texts(environment, task, *replies)]


def test_a_row_is_a_task_that_pays_where_all_instructions_are_followed(tmp_path: Path) -> None:
    environment = open_rows(tmp_path, LAKE)
    task = environment.task("train", 0, environment.Params())
    assert task.messages[0].content == LAKE["prompt"]
    assert task.metadata["instructions"] == LAKE["instruction_id_list"]
    assert reward(
        environment, task, TRIP, f"<think>No, no.</think>{TRIP}", f"Sure, here:\n{TRIP}", f"<think>{TRIP}"
    ) == [
        (1.0, "all instructions are followed"),
        (1.0, "all instructions are followed"),
        (0.0, "1 comma where none was asked"),
        (0.0, "the thinking never ended"),
    ]


@pytest.mark.parametrize(("strictness", "paid"), [(None, 0.0), ("ours", 0.0), ("published", 0.0), ("loose", 1.0)])
def test_the_loose_meaning_takes_lines_away(tmp_path: Path, strictness: str | None, paid: float) -> None:
    environment = open_rows(tmp_path, LAKE)
    task = environment.task("train", 0, environment.Params.model_validate({"strictness": strictness}))
    assert [earned for earned, _ in reward(environment, task, f"Sure, here it is:\n{TRIP}")] == [paid]


def test_both_verdicts_are_told_whichever_meaning_pays(tmp_path: Path) -> None:
    environment = open_rows(tmp_path, LAKE)
    task = environment.task("train", 0, environment.Params.model_validate({"strictness": "loose"}))
    told = []
    for text in (TRIP, "ok", f"<think>{TRIP}"):
        (score,) = score_texts(environment, task, text)
        told.append((score.reward, {one.name: one.value for one in score.criteria[2:]}))
    assert told == [
        (1.0, {"ours": 1.0, "published": 1.0}),
        (1.0, {"ours": 0.0, "published": 1.0}),
        (0.0, {"ours": 0.0, "published": 0.0}),
    ]


def test_what_says_nothing_or_everything_is_not_paid(tmp_path: Path) -> None:
    """Constants, the prompt, one word over and over, and a list of all answers."""
    environment = open_rows(tmp_path, LAKE, SALT)
    lake, salt = (environment.task("train", index, environment.Params()) for index in range(2))
    tricks = ["ok", "", LAKE["prompt"].replace(",", ""), "lake " * 30, "I cannot help with that."]
    listed = " ".join(f"My answer is {word}." for word in ("yes", "no", "maybe"))
    assert {earned for earned, _ in reward(environment, lake, *tricks)} == {0.0}
    assert [earned for earned, _ in reward(environment, salt, "My answer is yes.", listed, SALT["prompt"])] == [
        1.0,
        0,
        0,
    ]


def test_strictness_changes_nothing_of_tasks_without_a_data_set() -> None:
    environment, params = InstructionFollowing(), InstructionFollowing.Params
    plain, strict = params(), params.model_validate({"strictness": "loose"})
    assert environment.task("train", 3, plain) == environment.task("train", 3, strict)
    assert set(plain.model_dump()) == {"level", "instructions"}


@pytest.mark.parametrize(("change", "said"), TABLE)
def test_a_broken_row_is_named_by_its_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"train\.jsonl.*line 2") as refused:
        open_rows(tmp_path, LAKE, {**LAKE, **change})
    assert said in str(refused.value)


def test_cells_of_csv_and_training_rows_are_read_as_literals_and_never_run(tmp_path: Path) -> None:
    kinds, kwargs = LAKE["instruction_id_list"], LAKE["kwargs"]
    truth = repr([{"instruction_id": kinds, "kwargs": kwargs}])
    messages = [{"role": "user", "content": LAKE["prompt"]}]
    cells = IfevalRow.model_validate({**LAKE, "instruction_id_list": repr(kinds), "kwargs": json.dumps(kwargs)})
    training = IfevalTrainingRow.model_validate({"messages": messages, "ground_truth": truth})
    assert cells.instructions == training.instructions == IfevalRow.model_validate(LAKE).instructions
    with pytest.raises(ValidationError, match="neither JSON nor a Python literal"):
        IfevalTrainingRow.model_validate({"messages": messages, "ground_truth": f"open({str(tmp_path / 'x')!r}, 'w')"})
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("form", "row"),
    [
        (IfevalRow, {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "xx"}]}),
        (
            IfevalTrainingRow,
            {
                "messages": [{"role": "user", "content": "Count."}],
                "ground_truth": "[{'instruction_id': ['count:numbers'], 'kwargs': [{'N': 3}]}]",
            },
        ),
    ],
)
def test_rows_that_cannot_be_checked_are_left_out(
    form: type[IfevalRow | IfevalTrainingRow], row: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as refused:
        form.model_validate({"prompt": "Count.", **row})
    assert [error["type"] for error in refused.value.errors()] == [LEFT_OUT]
