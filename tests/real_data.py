"""The real GSM8K, which lies beside the checkout where the project is developed and is never part of it."""

import os
from pathlib import Path

import pytest

from tests.serving import ROOT

_PLACES = (os.environ.get("ATROPOS_ENVS_DATASETS__GSM8K", ""), str(ROOT.parent / "shared" / "data" / "gsm8k"))


def gsm8k_folder() -> Path:
    """Skips the test where the data is not there."""
    for place in _PLACES:
        if place and (Path(place) / "train.jsonl").is_file():
            return Path(place)
    pytest.skip("the real GSM8K is not here: set ATROPOS_ENVS_DATASETS__GSM8K to a folder with its two files")
