"""A remote retriever: a stranger's server that is asked over HTTP for passages, one POST per query (decision 0018).

What it answers is untrusted: it must follow the contract to the letter, within bounds, and no message quotes it. Where
it lies is checked at every connection, by the addresses that its host name resolves to: a public name that leads to a
private address would let it reach what only this machine can. Redirects are not followed, and nothing is decompressed.
A query is repeated, after a pause, where that may help and its deadline allows it.
"""

import asyncio
import json
import random
import socket
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated, Any, Final, Literal, NoReturn, Protocol
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError

from app.domain.errors import InvalidRequest, RetrieverFailed, UserError
from app.domain.faults import explain_faults
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.values import Frozen, require_encodable
from app.domain.worlds import GameTime
from app.ports.tracing import build_trace_headers

# Addresses.


class _Resolver(Protocol):
    """aiohttp's AbstractResolver and ResolveResult, without importing them: most starts need none of it."""

    async def resolve(self, host: str, port: int = ..., family: socket.AddressFamily = ...) -> list[Any]: ...
    async def close(self) -> None: ...


MakeResolver = Callable[[], _Resolver]
"""Called inside a running event loop."""

_NAT64 = ip_network("64:ff9b::/96")
_RESERVED_NETWORKS = tuple(map(ip_network, ("::/96", "64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24")))
"""Further non-public networks, which Python's tables lack or treat differently between versions."""


def is_public(address: str) -> bool:
    """Whether the address is public, and does not embed a private one."""
    named = ip_address(address.partition("%")[0])
    reached = (_unwrap_embedded_address(named) if isinstance(named, IPv6Address) else None) or named
    return (
        reached.is_global and not reached.is_multicast and not any(reached in network for network in _RESERVED_NETWORKS)
    )


def is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def _unwrap_embedded_address(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a gateway or the machine translates it to."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


class CheckedResolver:
    """Returns only allowed addresses, which the connection then uses (no DNS rebinding). A name with any forbidden
    address is rejected. `localhost` may resolve to loopback addresses only."""

    def __init__(self, resolver: _Resolver, *, allow_private: bool) -> None:
        self._resolver = resolver
        self._allow_private = allow_private

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Any]:
        results = await self._resolver.resolve(host, port, family)
        if not all(self._is_allowed(host, result["host"]) for result in results):
            raise RetrieverFailed(
                "the retriever's host name resolves to a private address, and rag.remote.allow_private is not set"
            )
        return results

    async def close(self) -> None:
        await self._resolver.close()

    def _is_allowed(self, host: str, address: str) -> bool:
        if self._allow_private:
            return True
        return is_loopback(address) if host.rstrip(".").lower() == "localhost" else is_public(address)


def create_system_resolver() -> _Resolver:
    from aiohttp import ThreadedResolver  # takes long to import

    return ThreadedResolver()


# The contract, version 1.

_CONTRACT_VERSION: Final = 1
_DEFAULT_SOURCE: Final = "remote"
"""Source of passages without one."""
_UNKNOWN_WORLD: Final = "unknown_world"
"""Error code of a 404 for an unknown world."""

_LINE_BREAKS = "\n\r\t"


def _require_readable(text: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in text if character not in _LINE_BREAKS):
        raise ValueError("it has control characters other than line breaks and tabs")
    if not text.strip():
        raise ValueError("it is blank")
    return require_encodable(text)


def _require_one_line(text: str) -> str:
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        raise ValueError("wanted is one line")
    return _require_readable(text)


OneLineText = Annotated[str, Field(max_length=200), AfterValidator(_require_one_line)]
ReadableText = Annotated[str, AfterValidator(_require_readable)]


class RemotePassage(Frozen):
    id: OneLineText
    text: ReadableText
    source: OneLineText = _DEFAULT_SOURCE
    time: GameTime | None = None
    kind: Literal["event", "lore"] = "event"


class RemoteWithheld(Frozen):
    id: OneLineText
    reason: OneLineText
    text: ReadableText | None = None
    leak_terms: Annotated[tuple[OneLineText, ...], Field(max_length=64)] = ()


class RetrieverAnswer(Frozen):
    passages: tuple[RemotePassage, ...]
    withheld: tuple[RemoteWithheld, ...] = ()
    as_of: GameTime | None = None

    @property
    def context(self) -> Context:
        return Context(
            passages=tuple(Passage(**passage.model_dump()) for passage in self.passages),
            withheld=tuple(
                Withheld(id=one.id, reason=one.reason, text=one.text or "", leak_terms=one.leak_terms)
                for one in self.withheld
            ),
            as_of=self.as_of,
        )


class RetrieverRefusal(Frozen):
    """The body of a 404 with an error code."""

    error: str


# A retriever is a stranger: these bound what it can make this service read, keep and put before a model. They are far
# above what a prompt has room for, so that a retriever which meets them has something wrong.
MOST_BYTES: Final = 1024 * 1024
MOST_PASSAGES: Final = 64
"""Of an answer, and of what it withholds."""
MOST_CHARACTERS: Final = 8000
"""Of a passage."""


def encode_query(query: ContextQuery) -> bytes:
    """Times are in UTC."""
    as_of = None if query.as_of is None else query.as_of.astimezone(UTC)
    asked = {"version": _CONTRACT_VERSION, "query": query.model_copy(update={"as_of": as_of}).model_dump(mode="json")}
    return json.dumps(asked, allow_nan=False).encode()


def parse_answer(body: bytes) -> Context:
    """RetrieverFailed, with a message that quotes nothing of the body."""
    try:
        answer = RetrieverAnswer.model_validate_json(body)
    except ValidationError as error:
        fault = explain_faults(error, RetrieverAnswer, quotes=False)[0]
        raise RetrieverFailed(f"the retriever's answer violates the contract: {fault.sentence}") from None
    _require_bounds("passages", [passage.text for passage in answer.passages])
    _require_bounds("withheld", [one.text or "" for one in answer.withheld])
    _require_unique_ids([*(passage.id for passage in answer.passages), *(one.id for one in answer.withheld)])
    return answer.context


def is_unknown_world(body: bytes) -> bool:
    """Whether a 404 is about the world, and not about the URL."""
    try:
        return RetrieverRefusal.model_validate_json(body).error == _UNKNOWN_WORLD
    except ValidationError:
        return False


def _require_bounds(name: str, texts: Sequence[str]) -> None:
    if len(texts) > MOST_PASSAGES:
        raise RetrieverFailed(f"the retriever's answer is too large: more than {MOST_PASSAGES} {name}")
    for index, text in enumerate(texts):
        if len(text) > MOST_CHARACTERS:
            long = f"{name}[{index}].text has more than {MOST_CHARACTERS} characters"
            raise RetrieverFailed(f"the retriever's answer is too large: {long}")


def _require_unique_ids(ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        raise RetrieverFailed("the retriever's answer violates the contract: two items have the same id")


# The retriever.

_RETRIES: Final = 2
"""After a connection that broke, 429 or 5xx. The deadline ends them sooner; more would only be load."""
_MOST_CONNECTIONS: Final = 64
"""At once. A query that has to wait for one has so much less time."""
_PAUSE_SECONDS: Final = 0.1
"""Pause before the first retry; doubled for each further one."""


@dataclass(frozen=True)
class RemoteRetrieverConfig:
    """`deadline_seconds`: time for a whole retrieval; the caller enforces it, and no retry starts after it.
    `allow_hosts`: allowed hosts of `url`; any when empty."""

    url: str
    api_key: SecretStr | None = None
    deadline_seconds: float = 2.0
    allow_hosts: tuple[str, ...] = ()
    allow_private: bool = False


class _RetryableFailure(Exception):
    """A failure to retry, at the earliest `after` seconds later."""

    def __init__(self, words: str, after: float = 0.0) -> None:
        super().__init__(words)
        self.after = after


class RemoteRetriever:
    def __init__(self, config: RemoteRetrieverConfig, resolver: MakeResolver = create_system_resolver) -> None:
        """UserError for an invalid or forbidden URL."""
        self._config = config
        _require_allowed_url(config)
        self._resolver = resolver
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        self._headers["accept-encoding"] = "identity"  # a small body could unpack to an immense one
        if config.api_key is not None:
            self._headers["authorization"] = f"Bearer {config.api_key.get_secret_value()}"
        self._session: Any = None

    async def open(self) -> None:
        import aiohttp  # takes long to import, and most starts need none of it

        resolver: Any = CheckedResolver(self._resolver(), allow_private=self._config.allow_private)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, resolver=resolver),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # a proxy of the environment would resolve the name unchecked
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def retrieve(self, query: ContextQuery) -> Context:
        body = encode_query(query)
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._config.deadline_seconds
        attempt = 0
        while True:
            try:
                return await self._send_query(body, query.world)
            except _RetryableFailure as failure:
                # jitter, so that many clients of a busy server do not retry at once
                pause = max(failure.after, _PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))  # noqa: S311
                attempt += 1
                if attempt > _RETRIES or loop.time() + pause >= ends:
                    raise RetrieverFailed(str(failure)) from None
            await asyncio.sleep(pause)

    async def _send_query(self, body: bytes, world: str) -> Context:
        if self._session is None:
            raise RetrieverFailed("the retriever is not open yet")
        import aiohttp

        headers = {**self._headers, **build_trace_headers()}
        try:
            async with self._session.post(
                self._config.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    await self._raise_for_status(response, world)
                received = await self._read_body(response)
        except (_RetryableFailure, RetrieverFailed, InvalidRequest):
            raise
        except aiohttp.ClientError as error:
            raise _translate_error(error) from None
        except Exception as error:  # whatever the server sends, the caller gets RetrieverFailed
            raise RetrieverFailed(f"the request to the retriever failed: {type(error).__name__}") from None
        return parse_answer(received)

    async def _read_body(self, response: Any) -> bytes:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise RetrieverFailed("the retriever's answer is compressed although only identity was accepted")
        parts: list[bytes] = []
        left = MOST_BYTES
        async for part in response.content.iter_any():
            left -= len(part)
            if left < 0:
                response.close()
                raise RetrieverFailed(f"the retriever's answer is too large: more than {MOST_BYTES} bytes")
            parts.append(part)
        return b"".join(parts)

    async def _raise_for_status(self, response: Any, world: str) -> NoReturn:
        status = response.status
        if status < 400:
            raise RetrieverFailed(f"the retriever answered {status}: redirects are not followed")
        if status == 429 or status >= 500:
            raise _RetryableFailure(
                f"the retriever answered {status}", _parse_retry_after(response.headers.get("retry-after", ""))
            )
        if status == 404 and is_unknown_world(await self._read_body(response)):
            raise InvalidRequest(f"the retriever does not know the world {world!r}", field="world")
        raise RetrieverFailed(f"the retriever answered {status}")


def _require_allowed_url(config: RemoteRetrieverConfig) -> None:
    try:
        parts = urlsplit(config.url)
        sound = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not parts.hostname:
        raise UserError("rag.remote.url must be a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise UserError("rag.remote.url must not contain a user or password; set rag.remote.api_key_env instead")
    if config.allow_hosts and parts.hostname not in {host.lower() for host in config.allow_hosts}:
        raise UserError(f"rag.remote.url names {parts.hostname}, which is not in rag.remote.allow_hosts")


def _translate_error(error: Exception) -> Exception:
    import aiohttp

    if isinstance(error, aiohttp.ClientSSLError):
        return RetrieverFailed("the TLS handshake with the retriever's server failed, or its certificate is invalid")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _RetryableFailure("the retriever's host name could not be resolved")
    if isinstance(error, aiohttp.ClientConnectorError):
        return _RetryableFailure("the retriever's server could not be reached")
    if isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError):
        return _RetryableFailure("the connection to the retriever's server failed")
    if isinstance(error, aiohttp.InvalidURL):
        return RetrieverFailed("rag.remote.url has an invalid host")
    return RetrieverFailed(f"the retriever's server sent invalid HTTP: {type(error).__name__}")


def _parse_retry_after(header: str) -> float:
    """Seconds of a Retry-After header; 0 for a date."""
    return float(header) if header.isascii() and header.isdecimal() and len(header) < 6 else 0.0
