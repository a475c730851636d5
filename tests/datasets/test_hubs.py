"""Data sets from a hub on loopback: what is read, and what is said when it cannot be."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.hub import Repository, hub

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
    source, _, revision = location.partition("@")
    chosen = {"default": {"source": source, "revision": revision or None}}
    try:
        read = ConfiguredDatasets({"sums": chosen}, probe_seconds=1.0).rows("sums", Sum, subset="main")["default"]
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


OLD, NEW = "1" * 40, "2" * 40


def _with_history(names: Mapping[str, str]) -> Mapping[str, Repository]:
    files = {
        OLD: {"README.md": CARD % TRAIN_FILE, "main/train.jsonl": _lines(SAME_COLUMNS[:1])},
        NEW: {"README.md": CARD % TRAIN_FILE, "main/train.jsonl": _lines(SAME_COLUMNS[1:2])},
    }
    return {"acme/sums": Repository(files, names)}


def test_a_revision_is_what_it_names_with_the_hub_and_without(tmp_path: Path) -> None:
    """A pinned commit is asked for once; a tag that was moved is followed, and offline is what it was last."""
    with hub(_with_history({"main": NEW, "v1": OLD})) as endpoint:
        first = _ask(endpoint, tmp_path, f"acme/sums@{NEW}", "acme/sums@v1", f"acme/sums@{OLD}", "acme/sums@v2")
    with hub({}) as endpoint:
        pinned = _ask(endpoint, tmp_path, f"acme/sums@{OLD}", f"acme/sums@{NEW}")
    offline = _ask("http://127.0.0.1:9", tmp_path, "acme/sums@v1", "acme/sums@main", f"acme/sums@{'3' * 40}")
    with hub(_with_history({"main": NEW, "v1": NEW})) as endpoint:
        moved = _ask(endpoint, tmp_path, "acme/sums@v1")
    unreachable = "acme/sums: not in the cache, and the hub cannot be reached"
    old, new = ["acme/sums", ["1 + 1"]], ["acme/sums", ["2 + 2"]]
    assert (first, pinned, offline, moved) == (
        [new, old, old, "acme/sums: it has no such revision"],
        [old, new],
        [old, unreachable, unreachable],
        [new],
    )


def test_a_gated_data_set_says_what_to_do(tmp_path: Path) -> None:
    with hub({"acme/sums": Repository({}, {}, is_gated=True)}) as endpoint:
        details = _ask(endpoint, tmp_path, "acme/sums")
    assert details == [
        "acme/sums: it is gated: accept its terms on the hub, and give the token of that account in HF_TOKEN"
    ]
