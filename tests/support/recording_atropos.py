"""The environment's side of an Atropos API on loopback, which keeps what it is sent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pydantic import JsonValue

Fails = Callable[[int], int]
"""The status for the n-th post; 200 keeps it."""


@dataclass
class Kept:
    posts: list[bytes] = field(default_factory=list)
    registrations: list[dict[str, JsonValue]] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    """What `/status-env` says, one after another; then 0."""
    asked: int = 0

    @property
    def groups(self) -> list[dict[str, JsonValue]]:
        """Equal bodies are one group, as our own API has it."""
        return [json.loads(body) for body in dict.fromkeys(self.posts)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, kept: Kept, fails: Fails, longest: int, patience: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept, self.fails, self.longest, self.patience = kept, fails, longest, patience
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/info":
            self._say(200, {"batch_size": 4, "max_token_len": server.longest})
            return
        with server.lock:
            queued = server.kept.queued.pop(0) if server.kept.queued else 0
        known = len(server.kept.registrations) > server.patience
        self._say(200 if known else 500, {"current_step": 0, "queue_size": queued})

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = self.rfile.read(int(self.headers["content-length"]))
        with server.lock:
            if self.path == "/register-env":
                server.kept.registrations.append(json.loads(body))
                early = len(server.kept.registrations) <= server.patience
                wait: JsonValue = {"status": "wait for trainer to start"}
                self._say(200, wait if early else {"status": "success", "env_id": 3})
                return
            status = server.fails(server.kept.asked)
            server.kept.asked += 1
            if status in {200, 502}:  # a gateway between us lost the acknowledgement
                server.kept.posts.append(body)
        self._say(status, {"status": "received"})

    def _say(self, status: int, value: JsonValue) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def recording(
    kept: Kept, fails: Fails = lambda number: 200, *, longest: int = 4096, patience: int = 0
) -> Iterator[str]:
    """Its address. The first `patience` registrations come before the trainer."""
    server = _Server(kept, fails, longest, patience)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
