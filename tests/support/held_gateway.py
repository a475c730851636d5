"""A way to a gateway on which one request, or its reply, is held until whoever asked is dead."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


@dataclass
class Hold:
    """A place where a command is held: `reached` once it is there, and left there until it is `freed`."""

    reached: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.reached.set()
        self.freed.wait(120)


@dataclass(frozen=True)
class Passing:
    """A request on its way, or its reply."""

    method: str
    path: str
    replied: bool
    scored: int
    """Replies to `POST /score` until now, this one included."""

    @property
    def scores(self) -> bool:
        return (self.method, self.path) == ("POST", "/score")

    @property
    def reads_group(self) -> bool:
        return self.method == "GET" and self.path.startswith("/groups/")


@contextmanager
def holding(gateway: str, hold: Hold, holds: Callable[[Passing], bool]) -> Iterator[str]:
    """The address. What is held has no reply; until it is freed, nothing else of its kind is held."""
    counts: Counter[str] = Counter()
    with httpx.Client(base_url=gateway, timeout=120) as client:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self._is_held(replied=False):
                    return
                reply = client.request(
                    self.command, self.path, content=body, headers={"content-type": "application/json"}
                )
                counts[f"{self.command} {self.path}"] += 1
                if self._is_held(replied=True):
                    return
                with suppress(ConnectionError):  # it was killed while another request was held
                    self.send_response(reply.status_code)
                    self.send_header("content-type", reply.headers["content-type"])
                    self.send_header("content-length", str(len(reply.content)))
                    self.end_headers()
                    self.wfile.write(reply.content)

            def _is_held(self, *, replied: bool) -> bool:
                passing = Passing(self.command, self.path, replied, counts["POST /score"])
                if hold.reached.is_set() or not holds(passing):
                    return False
                hold.wait()
                self.close_connection = True
                return True

            do_GET = do_POST = do_PUT = pass_on

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        with Server(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            hold.freed.set()
            server.shutdown()
