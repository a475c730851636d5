"""Data sets from folders and from a hub on loopback: what is read, and what is said when it cannot be."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, JsonValue

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable
from app.domain.sources import Dataset
from tests.support.hub import hub

ROOT = Path(__file__).parents[2]


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
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def _read(folder: Path) -> Dataset[Sum] | None:
    return ConfiguredDatasets({"sums": str(folder)}).rows("sums", Sum)


def _digest(folder: Path) -> str:
    read = _read(folder)
    assert read is not None
    return read.digest


@pytest.mark.parametrize("locations", [{}, {"sums": " "}, {"other": "acme/sums"}])
def test_what_is_not_configured_is_none(locations: dict[str, str]) -> None:
    assert ConfiguredDatasets(locations).rows("sums", Sum) is None


def test_the_library_is_not_imported_before_a_data_set_is_read() -> None:
    code = (
        "import sys, app.datasets.configured_datasets as c; c.ConfiguredDatasets({'a': 'b'}).rows('x', object);"
        "print('datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_folder_is_read_into_rows_and_left_as_it_was(tmp_path: Path) -> None:
    folder = _write(tmp_path / "sums", train=TRAIN, test=TEST)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    read = _read(folder)
    assert read is not None
    assert (read.origin, read.splits) == (
        "sums",
        {
            "train": (Sum(question="1 + 1", answer=2), Sum(question="2 + 2", answer=4)),
            "test": (Sum(question="3 + 3", answer=6, hint="even"),),
        },
    )
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


class Line(BaseModel):
    speaker: str = Field(alias="from")


def test_a_column_may_have_another_name_than_its_field(tmp_path: Path) -> None:
    folder = _write(tmp_path / "lines", train=[{"from": "Ada", "speaker": "Bo"}], test=[{"from": "Cy"}])
    read = ConfiguredDatasets({"lines": str(folder)}).rows("lines", Line)
    assert read is not None
    assert [row.speaker for split in ("train", "test") for row in read.splits[split]] == ["Ada", "Cy"]


class Anything(BaseModel):
    value: JsonValue


def test_values_of_a_folder_are_those_of_its_file(tmp_path: Path) -> None:
    values: list[JsonValue] = [1, 2.5, "2024-01-01", ["1", 2], {"a": None}, {"b": [True]}]
    rows = [{"value": value} for value in values]
    read = ConfiguredDatasets({"any": str(_write(tmp_path / "any", train=rows, test=rows[:2]))}).rows("any", Anything)
    assert read is not None
    assert [repr(row.value) for row in read.splits["train"]] == list(map(repr, values))


def test_the_digest_is_of_the_rows_and_not_of_the_place(tmp_path: Path) -> None:
    spaced = "\n".join(json.dumps({key: row[key] for key in reversed(row)}, indent=None) for row in TRAIN) + "\n\n\n"
    one = _digest(_write(tmp_path / "one", train=TRAIN, test=TEST))
    same = _digest(_write(tmp_path / "two", test=TEST, train=spaced))
    others = [
        _digest(_write(tmp_path / "reordered", train=TRAIN[::-1], test=TEST)),
        _digest(_write(tmp_path / "moved", train=TEST, test=TRAIN)),
        _digest(_write(tmp_path / "changed", train=TRAIN, test=[{"question": "3 + 3", "answer": 7}])),
    ]
    assert (same == one, len({one, *others})) == (True, 4)


def _refusal(folder: Path) -> str:
    with pytest.raises(EnvironmentUnavailable) as refused:
        _read(folder)
    return refused.value.detail


@pytest.mark.parametrize(
    ("test_file", "detail"),
    [
        ("", "sums: test.jsonl has no rows"),
        ("\n \n", "sums: test.jsonl has no rows"),
        ('{"question": "1", "answer": 1}\n\n{"question": ', "sums: test.jsonl, row 2: not JSON"),
        ('{"question": "1", "answer": 1}\n[1]\n', "sums: test.jsonl, row 2: not a JSON object"),
        ("[" * 100_000, "sums: test.jsonl, row 1: not JSON"),
        ('{"question": "1", "answer": NaN}\n', "sums: test.jsonl, row 1: not JSON"),
        ('{"question": "1"}\n', "sums: test.jsonl, row 1, answer: Field required"),
        ('{"question": "1", "answer": null}\n', "sums: test.jsonl, row 1, answer: Field required"),
        (
            '{"question": "1", "answer": 1}\n{"question": "", "answer": 1}\n',
            "sums: test.jsonl, row 2, question: String should have at least 1 character",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_by_file_and_row(tmp_path: Path, test_file: str, detail: str) -> None:
    assert _refusal(_write(tmp_path / "sums", train=TRAIN, test=test_file)) == detail


def test_a_missing_file_or_folder_is_named_without_its_path(tmp_path: Path) -> None:
    details = [_refusal(_write(tmp_path / "sums", train=TRAIN)), _refusal(tmp_path / "nowhere")]
    assert details == ["sums: test.jsonl is missing", "nowhere: folder not found"]


CARD = b"---\nconfigs:\n- config_name: main\n  data_files:\n%s---\n# Sums\n"
TRAIN_FILE = b"  - split: train\n    path: main/train.jsonl\n"
TEST_FILE = b"  - split: test\n    path: main/test.jsonl\n"


def _lines(rows: Sequence[Mapping[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


SAME_COLUMNS = [{"question": f"{n} + {n}", "answer": 2 * n, "source": "book"} for n in (1, 2, 3)]

REPOSITORIES = {
    "acme/sums": {
        "README.md": CARD % (TRAIN_FILE + TEST_FILE),
        "main/train.jsonl": _lines(SAME_COLUMNS[:2]),
        "main/test.jsonl": _lines(SAME_COLUMNS[2:]),
    },
    "acme/half": {"README.md": CARD % TRAIN_FILE, "main/train.jsonl": _lines(TRAIN)},
    "acme/broken": {
        "README.md": CARD % (TRAIN_FILE + TEST_FILE),
        "main/train.jsonl": b"{not json",
        "main/test.jsonl": _lines(TEST),
    },
}

ASK = """
import json, sys
from pydantic import BaseModel
from app.domain.errors import EnvironmentUnavailable
from app.datasets.configured_datasets import ConfiguredDatasets

class Sum(BaseModel):
    question: str
    answer: int

for location in sys.argv[1:]:
    try:
        read = ConfiguredDatasets({"sums": location}, probe_seconds=1.0).rows("sums", Sum, config="main")
        print(json.dumps([read.origin, [row.question for rows in read.splits.values() for row in rows]]))
    except EnvironmentUnavailable as refused:
        print(json.dumps(refused.detail))
"""


def _ask(endpoint: str, home: Path, *locations: str) -> list[object]:
    """What a fresh process answers, since the library reads the hub's address when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *locations],
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


READ = ["acme/sums", ["1 + 1", "2 + 2", "3 + 3"]]


def test_a_hub_is_asked_once_and_the_cache_serves_when_it_is_gone(tmp_path: Path) -> None:
    with hub(REPOSITORIES) as endpoint:
        online = _ask(endpoint, tmp_path, "acme/sums", "acme/half", "acme/broken", "acme/nothing")
    began = time.monotonic()
    offline = _ask(endpoint, tmp_path, "acme/sums", "acme/unknown")
    assert (online, offline) == (
        [
            READ,
            "acme/half: no test split",
            "acme/broken: configuration main cannot be loaded (DatasetGenerationError)",
            "acme/nothing: no such local folder, and no readable data set of this name on the hub",
        ],
        [READ, "acme/unknown: not in the cache, and the hub cannot be reached"],
    )
    assert time.monotonic() - began < 15, "the library alone takes 23 seconds"


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        details = _ask(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, "acme/sums")
    assert details == ["acme/sums: not in the cache, and the hub cannot be reached"]
