"""Servers of tests on loopback sockets, each in a thread of this process."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """So many may connect at once: whom the default of 5 leaves out tries again only after a second."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Writes no log."""

    def answer(
        self, body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None, cut: int | None = None
    ) -> None:
        """Of which so many bytes are sent."""
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def log_message(self, *_: object) -> None:
        pass


ServerT = TypeVar("ServerT", bound=Server)


@contextmanager
def running(server: ServerT) -> Iterator[ServerT]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
