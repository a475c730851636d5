"""Data sets from a hub on loopback: what is read, and what is said when it cannot be."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import pytest

from tests.support.small_servers import Handler, Server, running

REVISION = "a" * 40

Files = Mapping[str, bytes]
"""By path."""


@dataclass(frozen=True)
class Repository:
    """One with a history: its files by commit, commits by branch or tag."""

    commits: Mapping[str, Files]
    names: Mapping[str, str]
    is_gated: bool = False


Repositories = Mapping[str, Files | Repository]
"""By id. Files alone are those of `REVISION`, the newest commit of `main`."""


class _Hub(Handler):
    repositories: ClassVar[Repositories] = {}

    def do_GET(self) -> None:
        kind, _, path = unquote(self.path.partition("?")[0]).lstrip("/").removeprefix("api/").partition("/")
        for name, held in self.repositories.items():
            if kind == "datasets" and (path == name or path.startswith(f"{name}/")):
                return self._answer_for(name, _as_repository(held), path[len(name) + 1 :].split("/", 2))
        return self.answer(b"", 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _answer_for(self, name: str, repository: Repository, path: list[str]) -> None:
        """`path`: what is asked for, the revision, and a file or folder."""
        kind, wanted, rest = (*path, "", "", "")[:3]
        if repository.is_gated:
            return self.answer(b"", 401, {"X-Error-Code": "GatedRepo"})
        commit = repository.names.get(wanted or "main", wanted)
        if commit not in repository.commits:
            return self.answer(b"", 404, {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if kind == "resolve":
            return self._file(files, rest, commit)
        if kind == "tree":
            return self._listing(files, rest)
        return self._json({"id": name, "sha": commit, "siblings": [{"rfilename": f} for f in files]})

    def _file(self, files: Files, name: str, commit: str) -> None:
        if name not in files:
            return self.answer(b"", 404, {"X-Error-Code": "EntryNotFound"})
        return self.answer(files[name], headers={"ETag": f'"{_sha(files[name])}"', "X-Repo-Commit": commit})

    def _listing(self, files: Files, folder: str) -> None:
        self._json(
            [
                {"type": "file", "path": name, "size": len(content), "oid": _sha(content)}
                for name, content in files.items()
                if name.startswith(folder)
            ]
        )

    def _json(self, value: object) -> None:
        self.answer(json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def _as_repository(held: Files | Repository) -> Repository:
    return held if isinstance(held, Repository) else Repository({REVISION: held}, {"main": REVISION})


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:40]


@contextmanager
def hub(repositories: Repositories, port: int) -> Iterator[None]:
    """A hub at this port that serves `repositories`."""
    handler = type("Hub", (_Hub,), {"repositories": repositories})
    with running(Server(handler, port)):
        yield


ROOT = Path(__file__).parents[2]
TRAIN = [{"question": "1 + 1", "answer": 2, "source": "book"}, {"question": "2 + 2", "answer": 4, "hint": None}]
TEST = [{"question": "3 + 3", "answer": 6, "hint": "even"}]

CARD = b"---\nconfigs:\n- config_name: main\n  data_files:\n%s---\n# Sums\n"
TRAIN_FILE = b"  - split: train\n    path: main/train.jsonl\n"
TEST_FILE = b"  - split: test\n    path: main/test.jsonl\n"


def _lines(rows: Sequence[Mapping[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


SAME_COLUMNS = [{"question": f"{n} + {n}", "answer": 2 * n, "source": "book"} for n in (1, 2, 3)]

REPOSITORIES: dict[str, Mapping[str, bytes] | Repository] = {
    "acme/gated": Repository({}, {}, is_gated=True),
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

ANSWER = Path(__file__).with_name("hub_reader.txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Asker:
    """A process that reads data sets from the hub at a port, since the library reads its address when imported."""

    port: int
    process: subprocess.Popen[str]

    def ask(self, *locations: str) -> list[object]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{' '.join(locations)}\n")
        self.process.stdin.flush()
        found: list[object] = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    home = {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(tmp_path_factory.mktemp("cache"))}
    with subprocess.Popen(
        [sys.executable, "-c", ANSWER],
        cwd=ROOT,
        env={**os.environ, **home, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Asker(port, process)
        process.kill()


READ = ["acme/sums", ["1 + 1", "2 + 2", "3 + 3"]]
UNREACHABLE = "not in the cache, and the hub cannot be reached"


def test_a_hub_is_asked_once_and_the_cache_serves_when_it_is_gone(asker: Asker) -> None:
    with hub(REPOSITORIES, asker.port):
        online = asker.ask("acme/sums", "acme/half", "acme/broken", "acme/nothing", "acme/gated")
    offline = asker.ask("acme/sums", "acme/unknown")
    assert (online, offline) == (
        [
            READ,
            ["acme/half", ["1 + 1", "2 + 2"]],
            "acme/broken: subset main cannot be loaded (JSON parse error: Missing a name for object member. in row 0)",
            "acme/nothing: no such local folder, and no readable data set of this name on the hub",
            "acme/gated: it is gated: accept its terms on the hub, and give the token of that account in HF_TOKEN",
        ],
        [READ, f"acme/unknown: {UNREACHABLE}"],
    )


def test_a_hub_that_never_answers_is_given_up(asker: Asker) -> None:
    with socket.create_server(("127.0.0.1", asker.port)):
        assert asker.ask("acme/silent") == [f"acme/silent: {UNREACHABLE}"]


OLD, NEW = "1" * 40, "2" * 40


def _with_history(names: Mapping[str, str]) -> Mapping[str, Repository]:
    files = {
        OLD: {"README.md": CARD % TRAIN_FILE, "main/train.jsonl": _lines(SAME_COLUMNS[:1])},
        NEW: {"README.md": CARD % TRAIN_FILE, "main/train.jsonl": _lines(SAME_COLUMNS[1:2])},
    }
    return {"acme/told": Repository(files, names)}


def test_a_revision_is_what_it_names_with_the_hub_and_without(asker: Asker) -> None:
    """A pinned commit is asked for once; a tag that was moved is followed, and offline is what it was last."""
    with hub(_with_history({"main": NEW, "v1": OLD}), asker.port):
        first = asker.ask(f"acme/told@{NEW}", "acme/told@v1", f"acme/told@{OLD}", "acme/told@v2")
    with hub({}, asker.port):
        pinned = asker.ask(f"acme/told@{OLD}", f"acme/told@{NEW}")
    offline = asker.ask("acme/told@v1", "acme/told@main", f"acme/told@{'3' * 40}")
    with hub(_with_history({"main": NEW, "v1": NEW}), asker.port):
        moved = asker.ask("acme/told@v1")
    old, new = ["acme/told", ["1 + 1"]], ["acme/told", ["2 + 2"]]
    assert (first, pinned, offline, moved) == (
        [new, old, old, "acme/told: it has no such revision"],
        [old, new],
        [old, *[f"acme/told: {UNREACHABLE}"] * 2],
        [new],
    )
