"""A way to a gateway on which replies are lost after the gateway has sent them."""

import http.cookiejar
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx

from tests.support.small_servers import Handler, Server, running

JSON = {"content-type": "application/json"}
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
    """Passes all requests on to a gateway. Of a lost reply so many bytes arrive, if any."""
    # Whose cookies they are is for those who ask.
    jar = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    with httpx.Client(base_url=gateway, timeout=120, cookies=jar, limits=httpx.Limits()) as client:

        class Relay(Handler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                passed = {name: value for name, value in self.headers.items() if name.lower() in PASSED}
                headers = {**JSON, **passed}
                reply = client.request(self.command, self.path, content=self.read_body(), headers=headers)
                loses = lossy.loses(self.path)
                self.close_connection |= loses
                if loses and not kept:
                    return
                cookies = {name: value for name, value in reply.headers.items() if name == "set-cookie"}
                with suppress(ConnectionError):  # who asked may have been killed
                    self.answer(reply.content, reply.status_code, {**JSON, **cookies}, kept if loses else None)

            do_GET = do_POST = do_PUT = pass_on

        with running(Server(Relay)) as server:
            lossy = Lossy(server.url, each, ends)
            yield lossy
