"""A chat completions server on a loopback socket that answers as its script says."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Reply:
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cut: int | None = None
    """The connection breaks after so many bytes of the body; before everything when negative."""


@dataclass
class Received:
    """One request as it came over the wire."""

    path: str
    authorization: str
    headers: Mapping[str, str]
    body: dict[str, object]

    @property
    def messages(self) -> list[dict[str, str]]:
        messages = self.body["messages"]
        assert isinstance(messages, list)
        return messages


Script = Callable[[int, Received], Reply]


class ChatServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """So many may connect at once: whom the default of 5 leaves out tries again only after a second."""

    def __init__(self, script: Script, port: int = 0, models: Sequence[str] | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.script = script
        self.models = models
        self.received: list[Received] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The list of models, of a server that has one."""
        server = self.server
        assert isinstance(server, ChatServer)
        if server.models is None or self.path != "/v1/models":
            self.send_error(404)
            return
        body = json.dumps({"object": "list", "data": [{"id": name} for name in server.models]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, ChatServer)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        received = Received(self.path, self.headers.get("authorization", ""), dict(self.headers), body)
        with server.lock:
            number = len(server.received)
            server.received.append(received)
        reply = server.script(number, received)
        time.sleep(reply.seconds)
        if reply.cut is not None:
            self.close_connection = True
        if reply.cut is not None and reply.cut < 0:
            return
        try:
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body[: reply.cut])
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(script: Script, models: Sequence[str] | None = None) -> Iterator[ChatServer]:
    server = ChatServer(script, models=models)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
