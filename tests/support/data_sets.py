"""Data sets for tests: the real GSM8K, which is never part of the project, and numbered rows of its form."""

import json
import os
from pathlib import Path

import pytest

from tests.support.serving import ROOT

_PLACES = (os.environ.get("ATROPOS_ENVS_DATASETS__GSM8K", ""), str(ROOT.parent / "shared" / "data" / "gsm8k"))


def gsm8k_folder() -> Path:
    """Skips the test where the data is not there."""
    for place in _PLACES:
        if place and (Path(place) / "train.jsonl").is_file():
            return Path(place)
    pytest.skip("the real GSM8K is not here: set ATROPOS_ENVS_DATASETS__GSM8K to a folder with its two files")


def numbered_rows(folder: Path, test_size: int) -> Path:
    """A data set whose test split has this many rows, each with its own answer."""
    folder.mkdir()
    for name, count in (("train", 1), ("test", test_size)):
        rows = [{"question": f"What is {number} and none?", "answer": f"#### {number}"} for number in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder
