"""Data sets from a hub on loopback: what is read, and what is said when it cannot be."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.hub import hub

ROOT = Path(__file__).parents[2]
TRAIN = [{"question": "1 + 1", "answer": 2, "source": "book"}, {"question": "2 + 2", "answer": 4, "hint": None}]
TEST = [{"question": "3 + 3", "answer": 6, "hint": "even"}]

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
        read = ConfiguredDatasets({"sums": location}, probe_seconds=1.0).rows("sums", Sum, subset="main")["default"]
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
            ["acme/half", ["1 + 1", "2 + 2"]],
            "acme/broken: subset main cannot be loaded (JSON parse error: Missing a name for object member. in row 0)",
            "acme/nothing: no such local folder, and no readable data set of this name on the hub",
        ],
        [READ, "acme/unknown: not in the cache, and the hub cannot be reached"],
    )
    assert time.monotonic() - began < 15, "the library alone takes 23 seconds"


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        details = _ask(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, "acme/sums")
    assert details == ["acme/sums: not in the cache, and the hub cannot be reached"]
