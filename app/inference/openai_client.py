"""The `openai` package over a transport of our own. Its import takes half a second: leave that to `connection`.

The package knows URLs, forms of Azure included, and how a body is written. It also reads many variables of the
environment, keeps cookies, follows redirects, repeats calls and reads replies of any size. So the transport lets
nothing through but method, URL and body. Headers come from the endpoint alone, and the package never sees a key.

The package is asked where requests go by the first of a path and model. It takes longer to make a request than HTTP
takes to send it, and all that the transport would use of the others is the same URL.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeVar

import aiohttp
import httpx2
import openai
import yarl
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from app.inference.connection import Endpoint, NoReply, OpenReply, ServerReply
from app.ports.tracing import build_trace_headers

_CONNECT_SECONDS: Final = 10.0
_NO_KEY: Final = "none"
"""What the package is told in place of a key. Without one it looks into the environment."""
_AZURE_KEY_HEADER: Final = "api-key"
_USER_AGENT: Final = f"atropos-environments openai/{openai.__version__}"
_RAW_RESPONSE: Final = "x-stainless-raw-response"
"""A header by which the package leaves a body unread. It is not sent."""
_TRANSFER_HEADERS: Final = frozenset(("content-encoding", "content-length", "transfer-encoding"))
"""Headers of what went over the wire. They do not describe the body that the transport hands on."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
"""As the package writes bodies."""

_Answer = TypeVar("_Answer")


class OpenaiClient:
    """Bound to the event loop of its first request."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._transport = _BoundedTransport(endpoint)
        self._urls: dict[tuple[str, str], yarl.URL] = {}
        """By path and model: where the package sent the first request."""
        http = httpx2.AsyncClient(transport=self._transport, follow_redirects=False, trust_env=False, timeout=None)
        _require_url(endpoint.base)
        build = _build_azure_client if endpoint.api_version else _build_client
        self._client = build(endpoint, http)

    async def close(self) -> None:
        await self._client.close()

    async def post(self, path: str, body: Mapping[str, JsonValue]) -> ServerReply:
        """NoReply when none came, or too large a one."""
        kind = path, str(body.get("model"))
        if (url := self._urls.get(kind)) is not None:
            return await _exchange(lambda: self._transport.exchange("POST", url, _encode_body(body)))
        response = await _ask_package(lambda: self._client.post(path, body=body, cast_to=httpx2.Response))
        self._urls[kind] = _as_address(response.request.url)
        return _as_reply(response)

    async def open(self, path: str, body: Mapping[str, JsonValue]) -> OpenReply:
        """Returns when the reply begins. NoReply when none came."""
        response = await _ask_package(
            lambda: self._client.post(
                path, body=body, cast_to=httpx2.Response, options={"headers": {_RAW_RESPONSE: "stream"}}
            )
        )
        return OpenReply(response.status_code, response.aiter_bytes(), response.aclose)

    async def get(self, path: str) -> ServerReply:
        """NoReply when none came, or too large a one."""
        return _as_reply(await _ask_package(lambda: self._client.get(path, cast_to=httpx2.Response)))


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends one request over aiohttp. Nothing outside of `endpoint` and the request decides where it goes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._key_header = _AZURE_KEY_HEADER if endpoint.api_version else "authorization"
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = _as_address(request.url)
        if request.headers.get(_RAW_RESPONSE) == "stream":
            response = await self._send(request.method, url, request.content)
            body = _UnreadBody(response, self._endpoint.largest_reply)
            return httpx2.Response(response.status, headers=_list_kept(response), stream=body, request=request)
        reply = await self.exchange(request.method, url, request.content)
        return httpx2.Response(reply.status, headers=reply.headers, content=reply.body, request=request)

    async def exchange(self, method: str, url: yarl.URL, content: bytes) -> ServerReply:
        async with await self._send(method, url, content) as response:
            return ServerReply(response.status, _list_kept(response), await self._read_body(response))

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _send(self, method: str, url: yarl.URL, content: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._open_session().request(
                method, url, data=content or None, headers=self._build_headers(), allow_redirects=False
            )
        except aiohttp.ClientConnectorError:
            raise NoReply("unreachable", "nothing accepts connections there") from None

    def _build_headers(self) -> dict[str, str]:
        own = {"content-type": "application/json", "accept": "application/json", "user-agent": _USER_AGENT}
        return own | self._endpoint.credentials.build_headers(self._key_header) | dict(build_trace_headers())

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > self._endpoint.largest_reply:
                response.close()
                raise NoReply("too_large", f"more than {self._endpoint.largest_reply} bytes")
        return b"".join(parts)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the caller's limit is the only one
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


class _UnreadBody(httpx2.AsyncByteStream):
    """A body as it arrives. Closing it early closes the connection, which tells the server that nobody listens."""

    def __init__(self, response: aiohttp.ClientResponse, most: int) -> None:
        self._response = response
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._response.content.iter_any():
                size += len(part)
                if size > self._most:
                    raise NoReply("too_large", f"more than {self._most} bytes")
                yield part
        except aiohttp.ClientError as error:
            raise NoReply("broken", type(error).__name__) from None

    async def aclose(self) -> None:
        self._response.close()


def _build_client(endpoint: Endpoint, http: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=_NO_KEY, base_url=endpoint.base, max_retries=0, timeout=None, http_client=http)


def _build_azure_client(endpoint: Endpoint, http: httpx2.AsyncClient) -> openai.AsyncAzureOpenAI:
    """With `/openai/deployments/NAME` in the URL that deployment is asked, else the one named as the model."""
    base_url = endpoint.base
    if "/openai" not in httpx2.URL(base_url).path:
        base_url += "/openai"
    return openai.AsyncAzureOpenAI(
        api_key=_NO_KEY,
        base_url=base_url,
        api_version=endpoint.api_version,
        max_retries=0,
        timeout=None,
        http_client=http,
    )


def _require_url(base_url: str) -> None:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise NoReply("unreachable", "its URL does not begin with http:// or https:// and a host")


async def _ask_package(send: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    try:
        return await _exchange(send)
    except openai.APIStatusError as error:
        return error.response


async def _exchange(send: Callable[[], Awaitable[_Answer]]) -> _Answer:
    try:
        return await send()
    except (NoReply, openai.APIStatusError):
        raise
    except Exception as error:
        raise NoReply("broken", type(error).__name__) from None


def _encode_body(body: Mapping[str, JsonValue]) -> bytes:
    """As the package writes bodies, in half the time. What is not finite, or no text, is refused as it does it."""
    try:
        written = to_json(body)
    except PydanticSerializationError:
        return _ENCODER.encode(body).encode()
    return _ENCODER.encode(body).encode() if b"NaN" in written or b"Infinity" in written else written


def _as_reply(response: httpx2.Response) -> ServerReply:
    return ServerReply(response.status_code, response.headers, response.content)


def _as_address(url: httpx2.URL) -> yarl.URL:
    return yarl.URL(str(url), encoded=True)


def _list_kept(response: aiohttp.ClientResponse) -> dict[str, str]:
    """By names in lower case."""
    named = ((name.lower(), value) for name, value in response.headers.items())
    return {name: value for name, value in named if name not in _TRANSFER_HEADERS}
