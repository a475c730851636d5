"""A way to a gateway on which some replies are lost after the gateway has sent them."""

import http.cookiejar
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PASSED = {"cookie", "x-session-id"}
"""Headers of requests, in lower case."""


@dataclass
class Lossy:
    """Every `each`th reply of a path does not arrive, where its end is one of `ends`."""

    url: str
    each: int
    ends: tuple[str, ...] = ("",)
    replies: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def loses(self, path: str) -> bool:
        kind = path.rsplit("/", 1)[-1] if path.startswith("/envs") else "groups"
        if not path.endswith(self.ends):
            return False
        with self.lock:
            self.replies[kind] = self.replies.get(kind, 0) + 1
            lost = self.replies[kind] % self.each == 1
            self.lost[kind] = self.lost.get(kind, 0) + lost
        return lost


@contextmanager
def losing_replies(gateway: str, each: int, ends: tuple[str, ...] = ("",), kept: int = 0) -> Iterator[Lossy]:
    """Of a lost reply so many bytes arrive, if any."""
    # Whose cookies they are is for those who ask.
    jar = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    with httpx.Client(base_url=gateway, timeout=120, cookies=jar, limits=httpx.Limits()) as client:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                cookies = {name: value for name, value in self.headers.items() if name.lower() in PASSED}
                headers = {"content-type": "application/json", **cookies}
                reply = client.request(self.command, self.path, content=body, headers=headers)
                lost = lossy.loses(self.path)
                self.close_connection |= lost
                if lost and not kept:
                    return
                self.send_response(reply.status_code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply.content)))
                for cookie in reply.headers.get_list("set-cookie"):
                    self.send_header("set-cookie", cookie)
                self.end_headers()
                self.wfile.write(reply.content[:kept] if lost else reply.content)

            do_GET = do_POST = pass_on

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        with Server(("127.0.0.1", 0), Handler) as server:
            lossy = Lossy(f"http://127.0.0.1:{server.server_address[1]}", each, ends)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield lossy
            server.shutdown()
