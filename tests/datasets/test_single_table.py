"""One table from a file of each kind, or a split of a data set in the library's form."""

import json
from pathlib import Path

import pytest
from pyarrow import Table, parquet

from app.datasets.configured_datasets import read_table
from app.domain.errors import InvalidRequest

ROWS = [{"prompt": "p", "chosen": "a\u2028b"}, {"prompt": "q", "chosen": "c"}]


def write(folder: Path, kind: str) -> Path:
    file = folder / f"rows.{kind}"
    match kind:
        case "jsonl":
            file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in ROWS), encoding="utf-8")
        case "json":
            file.write_text(json.dumps(ROWS), encoding="utf-8")
        case "csv":
            file.write_text("prompt,chosen\np,a\u2028b\nq,c\n", encoding="utf-8")
        case _:
            parquet.write_table(Table.from_pylist(ROWS), file)
    return file


@pytest.mark.parametrize(
    ("kind", "first"), [("jsonl", "line 1"), ("json", "row 1"), ("csv", "line 2"), ("parquet", "row 1")]
)
def test_a_file_is_read_and_each_row_has_its_place(tmp_path: Path, kind: str, first: str) -> None:
    read = read_table(str(write(tmp_path, kind)))
    assert (read[0][0], [row for _, row in read]) == (f"rows.{kind}, {first}", ROWS)


def test_a_split_in_the_librarys_form_is_chosen_by_name(tmp_path: Path) -> None:
    """A folder with one file a split is what the library reads a hub's data set from."""
    for split in ("filtered", "raw"):
        (tmp_path / "bench" / "data").mkdir(parents=True, exist_ok=True)
        parquet.write_table(Table.from_pylist(ROWS), tmp_path / "bench" / "data" / f"{split}-00000-of-00001.parquet")
    assert [row for _, row in read_table(str(tmp_path / "bench"), "raw")] == ROWS


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.txt", "a", "rows.txt: the name must end with .jsonl, .json, .csv, .parquet"),
        ("rows.json", "{}", "rows.json: it is no list of rows"),
        ("rows.json", "[1", "rows.json: not JSON: line 1, column 3"),
        ("rows.jsonl", "[1]\n", "rows.jsonl, line 1: not a JSON object"),
        ("rows.parquet", "no", "rows.parquet: "),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=words):
        read_table(str(tmp_path / name))
