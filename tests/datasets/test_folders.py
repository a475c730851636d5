"""Data sets from folders: what is read, and what is said when it cannot be."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow
import pytest
from pyarrow import parquet
from pydantic import BaseModel, Field, JsonValue, field_validator

from app.datasets.configured_datasets import ConfiguredDatasets
from app.datasets.rows import LeftOut
from app.domain.errors import EnvironmentUnavailable
from app.domain.tasks import Dataset, DatasetSource, leave_out
from app.domain.values import Frozen
from tests.support.tables import read_table


class Tables(Frozen):
    wrong: tuple[tuple[str, str], ...]
    splits: tuple[tuple[tuple[str, ...], dict[str, object], dict[str, str] | str], ...]


TABLES = read_table(__file__, "folders.yaml", Tables)

ROOT = Path(__file__).parents[2]
RowT = TypeVar("RowT", bound=BaseModel)


class Sum(BaseModel):
    question: str = Field(min_length=1)
    answer: int
    hint: str = "none"


TRAIN = [{"question": "1 + 1", "answer": 2, "source": "book"}, {"question": "2 + 2", "answer": 4, "hint": None}]
TEST = [{"question": "3 + 3", "answer": 6, "hint": "even"}]


def _write(folder: Path, **splits: str | Sequence[Mapping[str, object]]) -> Path:
    folder.mkdir()
    for name, rows in splits.items():
        text = rows if isinstance(rows, str) else "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8", errors="surrogateescape")
    return folder


def _read(folder: Path, **options: object) -> Dataset[Sum]:
    source = DatasetSource.model_validate({"source": str(folder), **options})
    configured = ConfiguredDatasets({"sums": {"ours": source}}, hub_cache=folder.parent / "cache")
    return configured.rows("sums", Sum)["ours"]


def _list_rows(read: Dataset[RowT]) -> dict[str, list[RowT]]:
    return {split: list(rows) for split, rows in read.splits.items()}


@pytest.mark.parametrize("sources", [{}, {"sums": " "}, {"other": "acme/sums"}])
def test_without_a_data_set_there_are_no_rows(sources: dict[str, str]) -> None:
    assert ConfiguredDatasets(sources).rows("sums", Sum) == {}


def test_the_library_is_not_imported_before_a_data_set_is_read() -> None:
    code = (
        "import sys, app.datasets.configured_datasets as c; c.ConfiguredDatasets({'a': 'b'}).rows('x', object);"
        "print('datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_folder_is_read_into_rows_and_left_as_it_was(tmp_path: Path) -> None:
    folder = _write(tmp_path / "sums", train=TRAIN, test=TEST)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    read = _read(folder)
    assert (read.name, read.origin, read.folder, _list_rows(read)) == (
        "ours",
        "sums",
        folder,
        {
            "train": [Sum(question="1 + 1", answer=2), Sum(question="2 + 2", answer=4)],
            "test": [Sum(question="3 + 3", answer=6, hint="even")],
        },
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


class Line(BaseModel):
    speaker: str = Field(alias="from")


def test_a_column_may_have_another_name_than_its_field(tmp_path: Path) -> None:
    folder = _write(tmp_path / "lines", train=[{"from": "Ada", "speaker": "Bo"}], test=[{"from": "Cy"}])
    read = ConfiguredDatasets({"lines": str(folder)}, hub_cache=tmp_path).rows("lines", Line)["default"]
    assert [row.speaker for split in ("train", "test") for row in read.splits[split]] == ["Ada", "Cy"]


class Anything(BaseModel):
    value: JsonValue


def test_values_of_a_folder_are_those_of_its_file(tmp_path: Path) -> None:
    values: list[JsonValue] = [1, 2.5, "2024-01-01", ["1", 2], {"a": None}, {"b": [True]}]
    rows = [{"value": value} for value in values]
    folder = _write(tmp_path / "any", train=rows, test=rows[:2])
    read = ConfiguredDatasets({"any": str(folder)}, hub_cache=tmp_path).rows("any", Anything)["default"]
    assert [repr(row.value) for row in read.splits["train"]] == list(map(repr, values))


def test_the_digest_is_of_the_rows_and_not_of_the_place(tmp_path: Path) -> None:
    spaced = "\n".join(json.dumps({key: row[key] for key in reversed(row)}, indent=None) for row in TRAIN) + "\n\n\n"
    one = _read(_write(tmp_path / "one", train=TRAIN, test=TEST)).digest
    same = _read(_write(tmp_path / "two", test=TEST, train=spaced)).digest
    others = [
        _read(_write(tmp_path / "reordered", train=TRAIN[::-1], test=TEST)).digest,
        _read(_write(tmp_path / "moved", train=TEST, test=TRAIN)).digest,
        _read(_write(tmp_path / "changed", train=TRAIN, test=[{"question": "3 + 3", "answer": 7}])).digest,
    ]
    assert (same == one, len({one, *others})) == (True, 4)


def _refuse(folder: Path, **options: object) -> str:
    with pytest.raises(EnvironmentUnavailable) as refused:
        _read(folder, **options)
    return refused.value.detail


@pytest.mark.parametrize(
    ("test_file", "detail"), [*TABLES.wrong, ("[" * 100_000, "sums: test.jsonl, line 1: not JSON")]
)
def test_what_is_wrong_with_a_folder_is_said_by_file_and_row(tmp_path: Path, test_file: str, detail: str) -> None:
    assert _refuse(_write(tmp_path / "sums", train=TRAIN, test=test_file)) == detail


def test_a_missing_folder_is_named_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    details = [_refuse(tmp_path / "nowhere"), _refuse(tmp_path / "empty")]
    assert details == ["nowhere: folder not found", "empty: no file ends with .jsonl, .json, .csv, .parquet"]


def _write_parquet(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)


def test_each_kind_of_file_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    for shard, rows in enumerate((TRAIN[:1], TRAIN[1:])):
        _write_parquet(folder / f"train-{shard:05}-of-00002.parquet", rows)
    (folder / "test.csv").write_text('question,answer,hint\n"3 +\n3",6,"even"\n,,\n', encoding="utf-8")
    (folder / "more.json").write_text(json.dumps(TEST), encoding="utf-8")
    refused = _refuse(folder)
    (folder / "test.csv").write_text('question,answer,hint\n"3 +\n3",6,"even"\n', encoding="utf-8")
    read = _list_rows(_read(folder, splits={"train": ["train", "more"], "test": "test"}))
    assert (refused, read) == (
        "sums: test.csv, line 4, question: wanted is text that is not empty",
        {
            "train": [*(Sum.model_validate(row) for row in _drop_nulls(TRAIN)), Sum.model_validate(TEST[0])],
            "test": [Sum(question="3 +\n3", answer=6, hint="even")],
        },
    )


def _drop_nulls(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_columns_that_are_called_otherwise_are_found(tmp_path: Path) -> None:
    rows = [{"Problem": f"{n} + {n}", "reward": {"truth": 2 * n}} for n in range(3)]
    folder = _write(tmp_path / "sums", train=rows)
    named = {"question": "Problem", "answer": "reward.truth"}
    refusals = [_refuse(folder, columns={"quesion": "Problem"}), _refuse(folder, columns={"question": "Problem"})]
    assert [row.answer for row in _read(folder, columns=named).splits["train"]] == [0, 2, 4]
    assert refusals == [
        "columns.quesion: there is no such column; there are question, answer, hint",
        "sums: train.jsonl, line 1, answer: missing; wanted is a whole number",
    ]


def test_a_share_is_held_out_by_the_text_of_a_row(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + {n}", "answer": 2 * n} for n in range(2_000)]
    folder = _write(tmp_path / "sums", train=rows)
    read = _list_rows(_read(folder, hold_out=0.1))
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[::-1]), encoding="utf-8")
    turned = _list_rows(_read(folder, hold_out=0.1))
    assert 160 < len(read["test"]) < 240
    assert len(read["train"]) + len(read["test"]) == 2_000
    assert turned == {split: found[::-1] for split, found in read.items()}


@pytest.mark.parametrize(("files", "options", "splits"), TABLES.splits)
def test_splits_are_the_files_that_are_called_so(
    tmp_path: Path, files: Sequence[str], options: Mapping[str, object], splits: Mapping[str, str] | str
) -> None:
    folder = tmp_path / "sums"
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{file}.jsonl").write_text(json.dumps({"question": file, "answer": 1}), encoding="utf-8")
    source = DatasetSource.model_validate({"source": str(folder), **options})
    assert _describe_splits(source, tmp_path) == splits


def _describe_splits(source: DatasetSource, cache: Path) -> Mapping[str, str] | str:
    """The first question of each, or what is refused."""
    try:
        read = ConfiguredDatasets({"sums": {"ours": source}}, hub_cache=cache).rows("sums", Sum, subset="main")
    except EnvironmentUnavailable as refused:
        return refused.detail
    return {split: rows[0].question for split, rows in read["ours"].splits.items()}


def test_what_is_left_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = _write(tmp_path / "sums", train=[*TRAIN, *TRAIN, *TEST], test=TEST)
    with caplog.at_level("WARNING", "app.datasets"):
        _read(folder)
    assert [record.getMessage() for record in caplog.records] == [
        "sums: 2 rows of train left out: it repeats another row (train.jsonl, line 3 and others)",
        "sums: 1 rows are in train and in test",
    ]


class Answered(BaseModel):
    question: str
    answer: str = ""

    @field_validator("answer")
    @classmethod
    def _require_answer(cls, answer: str) -> str:
        if not answer:
            raise leave_out("it has no answer")
        return answer


def test_rows_that_make_no_task_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"question": "1", "answer": "a"}, {"question": "2", "answer": ""}, {"question": "1", "answer": "a"}]
    folder = _write(tmp_path / "sums", train=rows, test=[*rows[:1], {"question": "3", "answer": "c"}])
    configured = ConfiguredDatasets({"sums": str(folder)}, hub_cache=tmp_path)
    read = configured.rows("sums", Answered)["default"]
    left_out = (
        LeftOut("it has no answer", 1, ("train.jsonl, line 2",)),
        LeftOut("it repeats another row", 1, ("train.jsonl, line 3",)),
    )
    assert _list_rows(read)["train"] == [Answered(question="1", answer="a")]
    assert {
        split: (one.used, one.shared, one.left_out) for split, one in configured.reports["sums"]["default"].items()
    } == {"train": (1, 1, left_out), "test": (2, 1, ())}


class Choice(BaseModel):
    question: str
    choices: list[str]


def test_the_form_is_that_whose_columns_are_there(tmp_path: Path) -> None:
    folder = _write(tmp_path / "sums", train=[{"question": "Which?", "choices": ["a", "b"]}])
    configured = ConfiguredDatasets({"sums": str(folder)}, hub_cache=tmp_path)
    read = configured.rows("sums", Sum, Choice)["default"]
    with pytest.raises(EnvironmentUnavailable) as refused:
        configured.rows("sums", Sum, Line)
    assert (list(read.splits["train"]), refused.value.detail) == (
        [Choice(question="Which?", choices=["a", "b"])],
        "sums: train.jsonl has the columns question, choices; needed are question, answer; or from. Set `columns`",
    )


def test_a_changed_file_is_another_data_set(tmp_path: Path) -> None:
    folder = _write(tmp_path / "sums", train=TRAIN)
    first = _read(folder)
    (folder / "train.jsonl").write_text(json.dumps({"question": "4 + 4", "answer": 8}), encoding="utf-8")
    second = _read(folder)
    assert (first.digest != second.digest, [row.answer for row in first.splits["train"]]) == (True, [2, 4])
    assert [row.answer for row in second.splits["train"]] == [8]
