"""Decompression of gzip bodies up to a limit."""

import asyncio
import zlib
from collections.abc import Callable, Coroutine

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

from app.http.web.bodies import JsonRequest
from app.http.web.lazy_routes import LazyRoute
from app.http.web.problems import RefusedBody

_GZIP = 16 + zlib.MAX_WBITS
_SMALL = 16 * 1024

NOT_GZIP = "Invalid gzip payload"
"""The message of Atropos' own server."""


class NotGzip(Exception):
    pass


def is_gzip(headers: Headers) -> bool:
    return "gzip" in headers.get("content-encoding", "").lower()


def inflate(body: bytes, limit: int) -> bytes:
    """Raises NotGzip for corrupt or truncated bodies, and RefusedBody with 413 beyond `limit` bytes."""
    whole = bytearray()
    while body:
        stream = zlib.decompressobj(_GZIP)
        try:
            whole += stream.decompress(body, limit + 1 - len(whole))
        except zlib.error as error:
            raise NotGzip from error
        if len(whole) > limit:
            raise RefusedBody(413, f"The body is larger than {limit} bytes after decompression.")
        if not stream.eof:
            raise NotGzip
        body = stream.unused_data
    return bytes(whole)


def create_gzip_route(limit: int) -> type[APIRoute]:
    """A route class that decompresses request bodies to at most `limit` bytes and answers invalid gzip with Atropos'
    400."""

    class InflatedRequest(JsonRequest):
        async def body(self) -> bytes:
            if not hasattr(self, "_inflated"):
                raw = await super().body()
                compressed = raw and is_gzip(self.headers)
                self._inflated = await _inflate_body(raw, limit) if compressed else raw
            return self._inflated

    class InflatingRoute(LazyRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
            handle = super().get_route_handler()

            async def read_inflated(request: Request) -> Response:
                inflated = InflatedRequest(request.scope, request.receive)
                try:
                    await inflated.body()  # here, since FastAPI would make its own 400 of the failure
                except NotGzip:
                    return PlainTextResponse(NOT_GZIP, status_code=400)
                return await handle(inflated)

            return read_inflated

    return InflatingRoute


async def _inflate_body(raw: bytes, limit: int) -> bytes:
    return inflate(raw, limit) if len(raw) < _SMALL else await asyncio.to_thread(inflate, raw, limit)
