"""Alarms are posted signed, once, without redirects; what is not taken is said to be so."""

import asyncio
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from app.features.health.webhook import SIGNATURE_HEADER, AlarmWebhook
from tests.support.store_cases import alarm

ALARM = alarm()


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.received: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.headers.get(SIGNATURE_HEADER, ""), body))
        self.send_response(self.server.status)
        self.send_header("location", self.server.url)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def receiving(status: int) -> Iterator[Receiver]:
    with Receiver(status) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "taken"), [(204, True), (302, False), (500, False)])
def test_a_notice_is_signed_and_sent_once(status: int, taken: bool) -> None:
    """Without a secret it has no signature, and when nobody is there that is no error."""
    with receiving(status) as server:
        signed, bare = AlarmWebhook(server.url, SecretStr("key")), AlarmWebhook(server.url)
        found = [asyncio.run(webhook.send("a", ALARM)) for webhook in (signed, bare)]
    (signature, body), (none, same) = server.received
    told = json.loads(body)
    assert signature == "sha256=" + hmac.new(b"key", body, hashlib.sha256).hexdigest()
    assert (none, same, found, asyncio.run(bare.send("a", ALARM))) == ("", body, [taken] * 2, False)
    assert (told["event"], told["run"], told["alarm"]["series"]) == ("run_alarm", "a", "length")


def test_who_never_answers_has_not_taken_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhook = AlarmWebhook(f"http://127.0.0.1:{silent.getsockname()[1]}/hook", timeout_seconds=0.05)
        assert asyncio.run(webhook.send("a", ALARM)) is False
