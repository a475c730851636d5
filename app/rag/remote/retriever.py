"""A retriever behind a URL: one POST for each query, tried again where that may help."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.domain.errors import InvalidRequest, RetrieverFailed
from app.domain.tasks import Context, ContextQuery
from app.rag.remote.addresses import CheckedResolver, MakeResolver, system_resolver
from app.rag.remote.contract import Bounds, names_no_world, question, read

PAUSE_SECONDS: Final = 0.1
"""Before the first further attempt; doubled with each."""


@dataclass(frozen=True)
class RemoteConfig:
    """`deadline_seconds` of a whole retrieval, which whoever asks holds to: no attempt begins that could not end by
    then. `allow_hosts`: those that `url` may name; any when empty."""

    url: str
    api_key: SecretStr | None = None
    deadline_seconds: float = 2.0
    retries: int = 2
    max_bytes: int = 1024 * 1024
    bounds: Bounds = field(default_factory=Bounds)
    allow_hosts: tuple[str, ...] = ()
    allow_private: bool = False
    max_concurrency: int = 64


class _Passing(Exception):
    """Worth another attempt, `after` so many seconds at the earliest."""

    def __init__(self, words: str, after: float = 0.0) -> None:
        super().__init__(words)
        self.after = after


class RemoteRetriever:
    def __init__(self, config: RemoteConfig, resolver: MakeResolver = system_resolver) -> None:
        """ValueError for a URL that cannot be asked, or must not be."""
        self._config = config
        _require_allowed(config)
        self._resolver = resolver
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        self._headers["accept-encoding"] = "identity"
        if config.api_key is not None:
            self._headers["authorization"] = f"Bearer {config.api_key.get_secret_value()}"
        self._session: Any = None

    async def open(self) -> None:
        import aiohttp  # takes long to import, and most starts need none of it

        resolver: Any = CheckedResolver(self._resolver(), allow_private=self._config.allow_private)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._config.max_concurrency, resolver=resolver),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def retrieve(self, query: ContextQuery) -> Context:
        body = question(query)
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._config.deadline_seconds
        attempt = 0
        while True:
            try:
                return await self._asked(body, query.world)
            except _Passing as failure:
                # not all at once, where many found the server busy
                pause = max(failure.after, PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))  # noqa: S311
                attempt += 1
                if attempt > self._config.retries or loop.time() + pause >= ends:
                    raise RetrieverFailed(str(failure)) from None
            await asyncio.sleep(pause)

    async def _asked(self, body: bytes, world: str) -> Context:
        if self._session is None:
            raise RetrieverFailed("the retriever is not open yet")
        import aiohttp

        try:
            async with self._session.post(
                self._config.url, data=body, headers=self._headers, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    await self._refuse(response, world)
                received = await self._received(response)
        except (_Passing, RetrieverFailed, InvalidRequest):
            raise
        except aiohttp.ClientError as error:
            raise _met(error) from None
        except Exception as error:  # what the other side sends must not surprise anybody
            raise RetrieverFailed(f"the exchange with the retriever broke: {type(error).__name__}") from None
        return read(received, self._config.bounds)

    async def _received(self, response: Any) -> bytes:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise RetrieverFailed("the retriever's answer is compressed, which it was asked not to be")
        parts: list[bytes] = []
        left = self._config.max_bytes
        async for part in response.content.iter_any():
            left -= len(part)
            if left < 0:
                response.close()
                raise RetrieverFailed(f"the retriever's answer is too large: more than {self._config.max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)

    async def _refuse(self, response: Any, world: str) -> NoReturn:
        status = response.status
        if status < 400:
            raise RetrieverFailed(f"the retriever answered {status}, a redirect: none is followed")
        if status == 429 or status >= 500:
            raise _Passing(f"the retriever answered {status}", _seconds(response.headers.get("retry-after", "")))
        if status == 404 and names_no_world(await self._received(response)):
            raise InvalidRequest(f"the retriever knows no world {world!r}", field="world")
        raise RetrieverFailed(f"the retriever answered {status}")


def _require_allowed(config: RemoteConfig) -> None:
    try:
        parts = urlsplit(config.url)
        sound = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not parts.hostname:
        raise ValueError("rag.remote.url is no address that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("rag.remote.url holds a user or a password: name a variable in rag.remote.api_key_env")
    if config.allow_hosts and parts.hostname not in {host.lower() for host in config.allow_hosts}:
        raise ValueError(f"rag.remote.url names {parts.hostname}, which is not in rag.remote.allow_hosts")


def _met(error: Exception) -> Exception:
    import aiohttp

    if isinstance(error, aiohttp.ClientSSLError):
        return RetrieverFailed(
            "the retriever's server and this one do not agree on TLS, or its certificate is not valid"
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _Passing("the name of the retriever's server could not be resolved")
    if isinstance(error, aiohttp.ClientConnectorError):
        return _Passing("the retriever's server could not be reached")
    if isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError):
        return _Passing("the retriever's server broke the connection")
    if isinstance(error, aiohttp.InvalidURL):
        return RetrieverFailed("rag.remote.url cannot be asked: its host is neither a name nor an address as usual")
    return RetrieverFailed(f"the retriever's server does not speak HTTP as it should: {type(error).__name__}")


def _seconds(header: str) -> float:
    """Of a Retry-After in seconds; a date counts as nothing."""
    return float(header) if header.isascii() and header.isdecimal() and len(header) < 6 else 0.0
