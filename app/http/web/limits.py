"""Limits on request bodies: the maximum size, and compression only on routes that decompress within that limit."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.web.problems import RefusedBody, problem_response

DEFAULT_MAX_BYTES = 64 * 1024 * 1024


class BodyLimits:
    """Answers 413 to bodies over `max_bytes`, announced or streamed. Answers 415 to any `Content-Encoding`, because a
    few kilobytes can expand to gigabytes; paths that start with `inflating` decompress gzip themselves, within the
    limit."""

    def __init__(self, app: ASGIApp, max_bytes: int = DEFAULT_MAX_BYTES, inflating: tuple[str, ...] = ()) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._inflating = inflating

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity" and not (encoding == "gzip" and scope["path"].startswith(self._inflating)):
            detail = "Send the body uncompressed: Content-Encoding is not accepted."
            await problem_response(scope, 415, detail, headers={"Accept-Encoding": "identity"})(scope, receive, send)
            return
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._max_bytes:
            await problem_response(scope, 413, self._detail)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise RefusedBody(413, self._detail)
            return message

        await self._app(scope, counted, send)

    @property
    def _detail(self) -> str:
        return f"The body is larger than {self._max_bytes} bytes."
