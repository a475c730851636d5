"""What talks while no policy is named: a stand-in without a model, and servers on this machine that could be named.

The stand-in says what the sheet's examples say, and the newest event that the prompt tells. Its turns are not stored,
so that no scene, label or export comes of them. A client may send its lines back to a later policy, so each ends with
a mark, and a conversation with that mark is made into nothing either.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from pydantic import JsonValue

from app.characters.loading import dump_yaml
from app.characters.schema import CharacterSheet
from app.domain.errors import Conflict
from app.domain.tasks import Passage
from app.features.worlds.service import ConversationTurn, Moment
from app.inference.wire import parse_models
from app.ports.play import ChatBody, Chunk, PolicyServer, ReplyStream
from app.rag.world_retriever import extract_query_terms

# The stand-in.

STAND_IN: Final = "stand-in"
"""In place of a policy's name."""
STAND_IN_MODEL: Final = "answers from the sheet's examples, no model"
STAND_IN_MARK: Final = "(stand-in)"
"""Ends each of its replies."""


def holds_stand_in(conversation: Sequence[ConversationTurn]) -> bool:
    """Whether the stand-in said one of the character's lines."""
    return any(line.role == "assistant" and STAND_IN_MARK in line.content for line in conversation)


def write_reply(sheet: CharacterSheet, moment: Moment, passages: Sequence[Passage]) -> str:
    """The example whose line is nearest to what was said, of those that were not used yet, and the newest event that
    was not told yet. The same moment gets the same reply. Conflict for a sheet that has nothing to say."""
    before = "\n".join(line.content for line in moment.conversation if line.role == "assistant")
    asked = moment.event if moment.event is not None else moment.conversation[-1].content
    said = [part for part in (_pick_example(sheet, asked, before), _pick_event(passages, before)) if part]
    if not said:
        raise Conflict(
            f"the stand-in has nothing to say: the sheet of {sheet.identity.name} has no example and no greeting. Add "
            "an example under `voice.examples`, or name a policy"
        )
    return " ".join([*said, STAND_IN_MARK])


def _pick_example(sheet: CharacterSheet, asked: str, before: str) -> str | None:
    examples = sheet.voice.examples
    if not examples:
        return sheet.scenario.greeting
    fresh = [one for one in examples if one.reply not in before] or examples
    terms = set(extract_query_terms(asked))
    return max(fresh, key=lambda one: len(terms.intersection(extract_query_terms(one.player)))).reply


def _pick_event(passages: Sequence[Passage], before: str) -> str | None:
    dated = [(one.time, one.text) for one in passages if one.kind == "event" and one.time is not None]
    newest = max(dated, default=None)
    return None if newest is None or newest[1] in before else newest[1]


class StandInPolicy(PolicyServer):
    """A policy with one reply."""

    def __init__(self, reply: str) -> None:
        self._reply = reply

    @property
    def name(self) -> str:
        return STAND_IN

    @property
    def model(self) -> str:
        return STAND_IN_MODEL

    @property
    def takes_tools(self) -> bool:
        return False

    async def ask(self, body: ChatBody, *, continues: bool = False) -> Chunk:
        message: JsonValue = {"role": "assistant", "content": self._reply}
        return _build_chunk("chat.completion", {"index": 0, "message": message, "finish_reason": "stop"})

    async def stream(self, body: ChatBody, *, continues: bool = False) -> ReplyStream:
        return _WrittenStream(self._reply)


class _WrittenStream(ReplyStream):
    def __init__(self, reply: str) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        delta: JsonValue = {"role": "assistant", "content": self._reply}
        yield _build_chunk("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": None})
        yield _build_chunk("chat.completion.chunk", {"index": 0, "delta": {}, "finish_reason": "stop"})

    async def close(self) -> None:
        """It holds nothing."""


def _build_chunk(kind: str, choice: JsonValue) -> Chunk:
    head: Chunk = {"id": uuid4().hex, "object": kind, "created": int(time.time()), "model": STAND_IN_MODEL}
    return {**head, "choices": [choice]}


# Servers on this machine. By hand over a socket: the client of policies takes half a second to import, and the whole
# look may take less.

LOCAL_SERVERS: Final[Sequence[tuple[str, int]]] = (
    ("Ollama", 11434),
    ("LM Studio", 1234),
    ("llama.cpp", 8080),
    ("vLLM", 8000),
)
"""Programs, and the ports of loopback on which they listen unless told otherwise."""
_LOOK_SECONDS: Final = 0.3
_REMEMBERED_SECONDS: Final = 10.0
_MOST_BYTES: Final = 256 * 1024
"""Of a list of models."""
_MOST_NAMED: Final = 20
_LONGEST_NAME: Final = 200
_REQUEST: Final = "GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\r\n"
"""In HTTP 1.0, so that the body is neither cut into chunks nor followed by another."""
_DOCUMENTED_BLOCK: Final = ("my-model", "http://127.0.0.1:8001/v1", "the-name-of-the-model")


@dataclass(frozen=True)
class FoundServer:
    """`models` are its names of them, cut where there are many. A stranger wrote them."""

    program: str
    base_url: str
    models: tuple[str, ...]

    @property
    def block(self) -> str:
        """What to add to `gateway.yaml`."""
        return _write_block(re.sub(r"[^a-z0-9]+", "-", self.program.lower()), self.base_url, self.models[0])


def write_example_block() -> str:
    """What to add to `gateway.yaml` for a server that was not found."""
    return _write_block(*_DOCUMENTED_BLOCK)


def _write_block(name: str, base_url: str, model: str) -> str:
    return dump_yaml({"policies": {name: {"base_url": base_url, "model": model}}})


class LocalServers:
    """Those that list models at once. `own_ports` are this service's, and are left alone. What was found is remembered
    for some seconds, however often a page is opened."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        own_ports: Collection[int],
        read_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._asked = [(program, port) for program, port in servers if port not in own_ports]
        self._read_seconds = read_seconds
        self._found: tuple[FoundServer, ...] = ()
        self._looked_at = -math.inf
        self._looking = asyncio.Lock()

    async def find(self) -> tuple[FoundServer, ...]:
        async with self._looking:
            if self._read_seconds() - self._looked_at >= _REMEMBERED_SECONDS:
                looks = await asyncio.gather(*(_look(program, port) for program, port in self._asked))
                self._found = tuple(found for found in looks if found is not None)
                self._looked_at = self._read_seconds()
            return self._found


async def _look(program: str, port: int) -> FoundServer | None:
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            reply = await _fetch_models(port)
    except (OSError, TimeoutError):
        return None
    head, _, body = reply.partition(b"\r\n\r\n")
    listed = parse_models(body) if head.split(b" ", 2)[1:2] == [b"200"] else None
    models = tuple(name for name in listed or () if 0 < len(name) <= _LONGEST_NAME)[:_MOST_NAMED]
    return FoundServer(program, f"http://127.0.0.1:{port}/v1", models) if models else None


async def _fetch_models(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_REQUEST.format(port=port).encode())
        reply = b""
        while len(reply) < _MOST_BYTES and (more := await reader.read(_MOST_BYTES)):
            reply += more
        return reply
    finally:
        writer.close()
