"""What a request body may be: no larger than configured, and compressed only where its reader inflates it in bounds."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.web.problems import RefusedBody, problem_response

DEFAULT_MAX_BYTES = 64 * 1024 * 1024


class BodyLimits:
    """413 for more than `max_bytes`, announced or streamed; 415 for any `Content-Encoding`, since a few kilobytes of it
    can become gigabytes, but for paths that begin with `inflating`: those routes inflate gzip themselves, in bounds."""

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
