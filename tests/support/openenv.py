"""A client of OpenEnv's web socket that shows every frame."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from starlette.testclient import TestClient
from websockets.sync.client import ClientConnection, connect

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Isolation, Message
from app.main.components import discover
from app.service.catalogue import Catalogue

PREFIX = "/compat/openenv"


@dataclass(frozen=True)
class Talk:
    send: Callable[[str], None]
    receive: Callable[[], str]

    def raw(self, text: str) -> Any:
        self.send(text)
        return json.loads(self.receive())

    def ask(self, kind: str, **data: Any) -> Any:
        """What a frame of that type is answered with."""
        return self.raw(json.dumps({"type": kind, "data": data}))

    def told(self, kind: str, **data: Any) -> Any:
        """The `data` of an answer that is no error."""
        answer = self.ask(kind, **data)
        assert answer["type"] != "error", answer
        return answer["data"]

    def refused(self, kind: str, **data: Any) -> tuple[str, str]:
        """Code and message of an error."""
        answer = self.ask(kind, **data)
        assert answer["type"] == "error", answer
        return answer["data"]["code"], answer["data"]["message"]


@contextmanager
def talking(client: TestClient, environment: str) -> Iterator[Talk]:
    """To an app in this process."""
    with client.websocket_connect(f"ws://127.0.0.1:8000{PREFIX}/{environment}/ws") as socket:
        yield Talk(socket.send_text, socket.receive_text)


@contextmanager
def connected(url: str, environment: str, **options: Any) -> Iterator[tuple[Talk, ClientConnection]]:
    """To a gateway in another."""
    address = f"{url.replace('http', 'ws', 1)}{PREFIX}/{environment}/ws"
    with connect(address, proxy=None, open_timeout=30, **options) as socket:
        yield Talk(socket.send, lambda: str(socket.recv(timeout=60))), socket


@cache
def _solver() -> Catalogue:
    catalogue = Catalogue(discover())
    catalogue.open(ConfiguredDatasets({}))
    catalogue.set_isolation(Isolation(protections=()), weak_will_do=True)
    return catalogue


def right_actions(name: str, seed: int, params: Mapping[str, object] = MappingProxyType({})) -> list[dict[str, Any]]:
    """What earns 1 with that seed, step by step; nothing where no win is sure."""
    environment = _solver().get_environment_or_current(name).environment
    gold = environment.gold(environment.task("train", seed, environment.Params.model_validate(dict(params))))
    if gold is None:
        return []
    return [
        {"text": message.content, "tool_calls": [call.model_dump(mode="json") for call in message.tool_calls]}
        for message in gold.messages or (Message(role="assistant", content=gold.text),)
        if message.role == "assistant"
    ]
