"""A remote retriever: one POST per query, with retries."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.domain.errors import InvalidRequest, RetrieverFailed
from app.domain.tasks import Context, ContextQuery
from app.ports.tracing import build_trace_headers
from app.rag.remote.addresses import CheckedResolver, MakeResolver, create_system_resolver
from app.rag.remote.contract import AnswerBounds, encode_query, is_unknown_world, parse_answer

PAUSE_SECONDS: Final = 0.1
"""Pause before the first retry; doubled for each further one."""


@dataclass(frozen=True)
class RemoteRetrieverConfig:
    """`deadline_seconds`: time for a whole retrieval; the caller enforces it, and no retry starts after it.
    `allow_hosts`: allowed hosts of `url`; any when empty."""

    url: str
    api_key: SecretStr | None = None
    deadline_seconds: float = 2.0
    retries: int = 2
    max_bytes: int = 1024 * 1024
    bounds: AnswerBounds = field(default_factory=AnswerBounds)
    allow_hosts: tuple[str, ...] = ()
    allow_private: bool = False
    max_concurrency: int = 64


class _RetryableFailure(Exception):
    """A failure to retry, at the earliest `after` seconds later."""

    def __init__(self, words: str, after: float = 0.0) -> None:
        super().__init__(words)
        self.after = after


class RemoteRetriever:
    def __init__(self, config: RemoteRetrieverConfig, resolver: MakeResolver = create_system_resolver) -> None:
        """ValueError for an invalid or forbidden URL."""
        self._config = config
        _require_allowed_url(config)
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
        body = encode_query(query)
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._config.deadline_seconds
        attempt = 0
        while True:
            try:
                return await self._send_query(body, query.world)
            except _RetryableFailure as failure:
                # jitter, so that many clients of a busy server do not retry at once
                pause = max(failure.after, PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))  # noqa: S311
                attempt += 1
                if attempt > self._config.retries or loop.time() + pause >= ends:
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
        return parse_answer(received, self._config.bounds)

    async def _read_body(self, response: Any) -> bytes:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise RetrieverFailed("the retriever's answer is compressed although only identity was accepted")
        parts: list[bytes] = []
        left = self._config.max_bytes
        async for part in response.content.iter_any():
            left -= len(part)
            if left < 0:
                response.close()
                raise RetrieverFailed(f"the retriever's answer is too large: more than {self._config.max_bytes} bytes")
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
        raise ValueError("rag.remote.url must be a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("rag.remote.url must not contain a user or password; set rag.remote.api_key_env instead")
    if config.allow_hosts and parts.hostname not in {host.lower() for host in config.allow_hosts}:
        raise ValueError(f"rag.remote.url names {parts.hostname}, which is not in rag.remote.allow_hosts")


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
