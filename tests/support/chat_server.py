"""A chat completions server on a loopback socket that answers as its script says."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.support.small_servers import Handler, Server, running


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


class ChatServer(Server):
    def __init__(self, script: Script, port: int = 0, models: Sequence[str] | None = None) -> None:
        super().__init__(_Handler, port)
        self.script = script
        self.models = models
        self.received: list[Received] = []

    @property
    def url(self) -> str:
        return f"{super().url}/v1"


class _Handler(Handler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The list of models, of a server that has one."""
        server = self.server
        assert isinstance(server, ChatServer)
        if server.models is None or self.path != "/v1/models":
            return self.send_error(404)
        models = [{"id": name} for name in server.models]
        return self.answer(json.dumps({"object": "list", "data": models}).encode())

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, ChatServer)
        body = json.loads(self.read_body())
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
            self.answer(reply.body, reply.status, {"content-type": "application/json", **reply.headers}, reply.cut)
        except ConnectionError:
            self.close_connection = True


def serving(script: Script, models: Sequence[str] | None = None) -> AbstractContextManager[ChatServer]:
    return running(ChatServer(script, models=models))
