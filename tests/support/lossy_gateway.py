"""A way to a gateway on which requests break off, or replies are lost after the gateway has sent them."""

import http.cookiejar
import threading
from collections.abc import Callable, Iterator
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


Breaks = Callable[[str, str, bool], int | None]
"""Gets the method, the path, and whether there is a reply. Of one that breaks off so many bytes arrive."""


@contextmanager
def relaying(gateway: str, breaks: Breaks) -> Iterator[str]:
    """The address of what passes all requests on to a gateway, but for those that break off."""
    # Whose cookies they are is for those who ask.
    jar = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    with httpx.Client(base_url=gateway, timeout=120, cookies=jar, limits=httpx.Limits()) as client:

        class Relay(Handler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                passed = {name: value for name, value in self.headers.items() if name.lower() in PASSED}
                headers = {**JSON, **passed}
                body, kept = self.read_body(), breaks(self.command, self.path, False)
                if kept is None:
                    reply = client.request(self.command, self.path, content=body, headers=headers)
                    kept = breaks(self.command, self.path, True)
                self.close_connection |= kept is not None
                if kept == 0:
                    return
                cookies = {name: value for name, value in reply.headers.items() if name == "set-cookie"}
                with suppress(ConnectionError):  # who asked may have been killed
                    self.answer(reply.content, reply.status_code, {**JSON, **cookies}, kept)

            do_GET = do_POST = do_PUT = pass_on

        with running(Server(Relay)) as server:
            yield server.url


@contextmanager
def losing_replies(gateway: str, each: int, ends: tuple[str, ...] = ("",), kept: int = 0) -> Iterator[Lossy]:
    """Of a lost reply so many bytes arrive, if any."""

    def breaks(_: str, path: str, replied: bool) -> int | None:
        return kept if replied and lossy.loses(path) else None

    with relaying(gateway, breaks) as url:
        lossy = Lossy(url, each, ends)
        yield lossy
