"""A small data set hub on loopback: repositories of files, as the `datasets` library asks for them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

REVISION = "a" * 40

Repositories = Mapping[str, Mapping[str, bytes]]
"""By id, the files of each by path."""


class _Hub(BaseHTTPRequestHandler):
    repositories: ClassVar[Repositories] = {}

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        for repository, files in self.repositories.items():
            if path.startswith(f"/datasets/{repository}/resolve/"):
                return self._file(files, path.split("/", 6)[6])
            if path.startswith(f"/api/datasets/{repository}/tree/"):
                return self._listing(files, path.removeprefix(f"/api/datasets/{repository}/tree/{REVISION}").strip("/"))
            if path.startswith(f"/api/datasets/{repository}"):
                return self._json({"id": repository, "sha": REVISION, "siblings": [{"rfilename": f} for f in files]})
        return self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _file(self, files: Mapping[str, bytes], name: str) -> None:
        if name not in files:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        return self._answer(200, files[name], {"ETag": f'"{_sha(files[name])}"', "X-Repo-Commit": REVISION})

    def _listing(self, files: Mapping[str, bytes], folder: str) -> None:
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


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:40]


@contextmanager
def hub(repositories: Repositories) -> Iterator[str]:
    """The address of a hub that serves `repositories`."""
    handler = type("Hub", (_Hub,), {"repositories": repositories})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
