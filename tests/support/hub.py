"""A small data set hub on loopback: repositories of files, as the `datasets` library asks for them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from urllib.parse import unquote

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


class _Hub(BaseHTTPRequestHandler):
    repositories: ClassVar[Repositories] = {}

    def do_GET(self) -> None:
        kind, _, path = unquote(self.path.partition("?")[0]).lstrip("/").removeprefix("api/").partition("/")
        for name, held in self.repositories.items():
            if kind == "datasets" and (path == name or path.startswith(f"{name}/")):
                return self._answer_for(name, _as_repository(held), path[len(name) + 1 :].split("/", 2))
        return self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _answer_for(self, name: str, repository: Repository, path: list[str]) -> None:
        """`path`: what is asked for, the revision, and a file or folder."""
        kind, wanted, rest = (*path, "", "", "")[:3]
        if repository.is_gated:
            return self._answer(401, b"", {"X-Error-Code": "GatedRepo"})
        commit = repository.names.get(wanted or "main", wanted)
        if commit not in repository.commits:
            return self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if kind == "resolve":
            return self._file(files, rest, commit)
        if kind == "tree":
            return self._listing(files, rest)
        return self._json({"id": name, "sha": commit, "siblings": [{"rfilename": f} for f in files]})

    def _file(self, files: Files, name: str, commit: str) -> None:
        if name not in files:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        return self._answer(200, files[name], {"ETag": f'"{_sha(files[name])}"', "X-Repo-Commit": commit})

    def _listing(self, files: Files, folder: str) -> None:
        self._json(
            [
                {"type": "file", "path": name, "size": len(content), "oid": _sha(content)}
                for name, content in files.items()
                if name.startswith(folder)
            ]
        )

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


def _as_repository(held: Files | Repository) -> Repository:
    return held if isinstance(held, Repository) else Repository({REVISION: held}, {"main": REVISION})


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:40]


@contextmanager
def hub(repositories: Repositories, port: int) -> Iterator[None]:
    """A hub at this port that serves `repositories`."""
    handler = type("Hub", (_Hub,), {"repositories": repositories})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
