"""API keys, stored and compared as digests."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.web.problems import build_problem_response

ALWAYS_OPEN = frozenset({"/livez", "/readyz"})
"""Probed by orchestrators without a key."""

_NO_KEY = "An API key is required: `Authorization: Bearer <key>`, or HTTP Basic with the key as password."
_WRONG_KEY = (
    "The API key in the `Authorization` header is not one of this service. Send `Bearer <key>`, or HTTP Basic with the "
    "key as password."
)
_CHALLENGES = ("Bearer", 'Basic realm="gateway", charset="UTF-8"')
"""One header line each: Chromium ignores Basic after Bearer on the same line."""


def generate_key() -> str:
    """A new key of 256 random bits."""
    return f"gw_{secrets.token_urlsafe(32)}"


def compute_key_digest(key: str) -> str:
    """SHA-256 in hexadecimal: keys are random, so a slow hash would add nothing."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class KeyRing:
    """The digests of valid keys. `anonymous` lets everyone in without a key."""

    def __init__(self, digests: Iterable[str], anonymous: bool) -> None:
        self._digests = tuple(digests)
        self.anonymous = anonymous

    def admits(self, authorization: str | None) -> bool:
        """Whether the `Authorization` header is valid: `Bearer <key>`, or Basic with any user name and the key as
        password."""
        if self.anonymous:
            return True
        key = _read_bearer_or_basic_key(authorization or "")
        if key is None:
            return False
        digest = compute_key_digest(key)
        return any([hmac.compare_digest(digest, known) for known in self._digests])  # a list: time tells nothing


def _read_bearer_or_basic_key(authorization: str) -> str | None:
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip() or None
    if scheme.lower() != "basic":
        return None
    try:
        _, colon, password = base64.b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return password if colon and password else None


class ApiKeys:
    """Answers 401 to requests without a valid key, except on open paths. Web sockets are closed before they are
    accepted."""

    def __init__(self, app: ASGIApp, ring: KeyRing, open_paths: frozenset[str] = ALWAYS_OPEN) -> None:
        self._app = app
        self._ring = ring
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"} or self._admits(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": self._explain_closing(scope)})
        else:
            detail = _WRONG_KEY if "authorization" in Headers(scope=scope) else _NO_KEY
            response = build_problem_response(scope, 401, detail)
            for challenge in _CHALLENGES:
                response.headers.append("WWW-Authenticate", challenge)
            await response(scope, receive, send)

    def _explain_closing(self, scope: Scope) -> str:
        return "the API key is wrong" if "authorization" in Headers(scope=scope) else "an API key is required"

    def _admits(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._open_paths or self._ring.admits(Headers(scope=scope).get("authorization"))
