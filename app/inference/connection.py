"""A connection to one OpenAI-compatible server: what it is shown, what is sent to it, and what its errors say.

Requests go through the `openai` package over a transport of our own (`app.inference.openai_client`, decision 0024),
which the first of them imports. Limits of time and number, and retries, are the caller's. A key and secret headers are
sent to this server alone, and hidden in whatever it answers before that is stored or shown.
"""

import asyncio
import contextlib
import importlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, Protocol

from pydantic import JsonValue, SecretStr

from app.domain.errors import UserError

# Credentials: a key, and headers that may hold secrets.

NO_HEADERS: Final[Mapping[str, SecretStr]] = {}
_HIDDEN: Final = "…"
_SHORTEST_SECRET: Final = 4
"""Hiding anything shorter would hide parts of ordinary words."""
_MOST_KEYS_HIDDEN: Final = 8
"""A key that was replaced may still be quoted by an answer that is under way."""
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+")


def clean_key(key: SecretStr) -> SecretStr:
    """Without the space around it, such as the line break at the end of a file. UserError, without the key, for what
    no header can hold."""
    value = key.get_secret_value().strip()
    if not _HEADER_VALUE.fullmatch(value):
        raise UserError("holds no key" if not value else "holds a key with spaces or characters outside of ASCII")
    return SecretStr(value)


@lru_cache(maxsize=256)
def _match_escaped(secret: str) -> re.Pattern[str]:
    """The secret as a JSON string may hold it, within other JSON strings too: any character as its number, any after
    backslashes. Linear time."""
    return re.compile(r"(?<!\\)" + "".join(map(_match_escaped_character, secret)))


def _match_escaped_character(character: str) -> str:
    number = rf"u(?i:{ord(character):04x})"
    if character == "\\":
        return rf"\\++(?:{number})?"
    return rf"\\*+(?:{number}|{re.escape(character)})"


class KeyFile:
    """A key in a mounted file. It is read again when the file changes; while that fails, the last key stays."""

    def __init__(self, path: Path) -> None:
        """UserError when the file holds no key now, OSError when it cannot be read."""
        self._path = path
        self._version = self._stat()
        self._key = self._read()

    def get_key(self) -> SecretStr:
        with contextlib.suppress(OSError, ValueError):
            version = self._stat()
            if version != self._version:
                self._key, self._version = self._read(), version
        return self._key

    def _stat(self) -> tuple[int, int, int]:
        status = self._path.stat()
        # The inode too: a mounted key is replaced by another file, whose time and size may be the same.
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _read(self) -> SecretStr:
        return clean_key(SecretStr(self._path.read_text(encoding="utf-8")))


class Credentials:
    """A key, or the file that holds it, and further headers. They are sent to one server and hidden everywhere else."""

    def __init__(
        self, api_key: SecretStr | KeyFile | None = None, headers: Mapping[str, SecretStr] = NO_HEADERS
    ) -> None:
        self._source = api_key
        self._headers = {name.casefold(): value.get_secret_value() for name, value in headers.items()}
        self._keys: list[str] = []
        """Those that were sent, the newest last."""

    def build_headers(self, key_header: str = "authorization") -> dict[str, str]:
        """`key_header` is `authorization`, which gets a bearer token, or a header that gets the bare key."""
        key = self._get_key()
        if key is None:
            return dict(self._headers)
        return {key_header: f"Bearer {key}" if key_header == "authorization" else key, **self._headers}

    def redact(self, words: str, asked: Sequence[str] = ()) -> str:
        """Without the secrets, also where JSON spells their characters in another way. What was `asked` is kept: a
        header may be a word of it, which the answer quotes."""
        self._get_key()
        if not self._keys and not self._headers:
            return words
        secrets = {secret for secret in (*self._keys, *self._headers.values()) if len(secret) >= _SHORTEST_SECRET}
        secrets = {secret for secret in secrets if not any(secret in text for text in asked)}
        for secret in sorted(secrets, key=len, reverse=True):  # one may be a part of another
            words = words.replace(secret, _HIDDEN)
            if "\\" in words:
                words = _match_escaped(secret).sub(_HIDDEN, words)
        return words

    def _get_key(self) -> str | None:
        if self._source is None:
            return None
        key = (self._source.get_key() if isinstance(self._source, KeyFile) else self._source).get_secret_value()
        if key not in self._keys:
            self._keys = [*self._keys, key][-_MOST_KEYS_HIDDEN:]
        return key


# Requests and replies.

LARGEST_REPLY: Final = 4 * 1024 * 1024
"""Bytes of a judge's reply. Those of policies hold tokens, and may be larger."""


@dataclass(frozen=True)
class Endpoint:
    """`base_url` excludes `/chat/completions`. With an `api_version` the server is Azure OpenAI: `base_url` is the
    resource, or a deployment of it."""

    base_url: str
    credentials: Credentials = field(default_factory=Credentials)
    api_version: str | None = None
    largest_reply: int = LARGEST_REPLY
    """Bytes, after decompression. Larger replies are aborted."""

    @property
    def base(self) -> str:
        """The base URL in its plainest form, for messages."""
        return self.base_url.rstrip("/")


@dataclass(frozen=True)
class ServerReply:
    """Whatever the server answered, errors and redirects included. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class OpenReply:
    """A reply whose body is still to come. Whoever closes it before the end breaks off the server's work."""

    status: int
    body: AsyncIterator[bytes]
    """NoReply when it breaks off."""
    close: Callable[[], Awaitable[None]]


class NoReply(Exception):
    """`unreachable` means that nothing was sent. `reason` holds nothing of what was sent or received."""

    def __init__(self, kind: Literal["unreachable", "broken", "too_large"], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


CHAT_PATH: Final = "/chat/completions"


class _RequestSender(Protocol):
    """Of `app.inference.openai_client`."""

    async def post(self, path: str, body: Mapping[str, JsonValue]) -> ServerReply: ...

    async def get(self, path: str) -> ServerReply: ...

    async def open(self, path: str, body: Mapping[str, JsonValue]) -> OpenReply: ...

    async def close(self) -> None: ...


class Connection:
    """Opened by the first request. Time limits, retries and the number of requests at once are the caller's."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._sender: _RequestSender | None = None

    async def aclose(self) -> None:
        if self._sender is not None:
            await self._sender.close()

    async def post(self, body: Mapping[str, JsonValue], path: str = CHAT_PATH) -> ServerReply:
        """NoReply when none came, or too large a one."""
        return await (await self._open()).post(path, body)

    async def open(self, body: Mapping[str, JsonValue], path: str = CHAT_PATH) -> OpenReply:
        """Returns when the reply begins. NoReply when none came."""
        return await (await self._open()).open(path, body)

    async def get(self, path: str) -> ServerReply:
        """NoReply when none came, or too large a one."""
        return await (await self._open()).get(path)

    async def prepare(self) -> None:
        """What the first request would wait for. NoReply for a URL that is none."""
        await self._open()

    async def _open(self) -> _RequestSender:
        if self._sender is None:
            build = await asyncio.to_thread(_import_client)
            if self._sender is None:  # another request may have been faster
                self._sender = build(self.endpoint)
        return self._sender


def _import_client() -> Callable[[Endpoint], _RequestSender]:
    """Takes half a second. Undoes what OPENAI_LOG does to logging meanwhile."""
    package, root = logging.getLogger("openai"), logging.getLogger()
    level, handlers = package.level, list(root.handlers)
    build: Callable[[Endpoint], _RequestSender] = importlib.import_module("app.inference.openai_client").OpenaiClient
    package.setLevel(level)
    root.handlers[:] = handlers
    return build


# Errors of servers, which come in many forms.

_MOST_NESTED: Final = 4
"""Errors within errors: a gateway quotes a provider, which may quote another."""
_LONGEST_MESSAGE: Final = 4_000
_FILTER_MARKS: Final = frozenset(("flagged_input", "content_filter_result", "content_filter_results"))
"""Fields of an error that come from a content filter."""
_NO_MONEY_CODES: Final = frozenset(
    (
        "insufficient_quota",
        "insufficient_user_quota",
        "insufficient_balance",
        "insufficient_credits",
        "billing_hard_limit_reached",
        "billing_not_active",
    )
)
_NO_MONEY_WORDS: Final = re.compile(
    r"insufficient (?:account )?(?:balance|credits?|funds|quota)|credit balance is too low", re.I
)
_WAIT: Final = re.compile(r"(?:try again|retry|retrying) (?:in|after) ((?:[0-9][0-9.]* ?[a-z]+[ ,]*){1,4})", re.I)
_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|millisec|h|m|s)", re.I)
_SECONDS_BY_UNIT: Final = {"ms": 0.001, "millisec": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class ServerError:
    """`codes` holds codes and types, `fields` what the error names of the request."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    filtered: bool = False
    """A content filter stopped the request."""

    @property
    def status(self) -> int | None:
        """The HTTP status that stands in the body."""
        numbers = [int(code) for code in self.codes if code.isascii() and code.isdigit() and len(code) == 3]
        return next((number for number in numbers if 400 <= number < 600), None)

    @property
    def may_pass(self) -> bool:
        """Whether the same may be answered when it is asked again."""
        return self.status is None or is_passing(self.status)

    @property
    def lacks_money(self) -> bool:
        """No request is answered until somebody pays."""
        return bool(self.codes & _NO_MONEY_CODES) or _NO_MONEY_WORDS.search(self.message) is not None

    @property
    def wait_seconds(self) -> float:
        """How long to wait, where the words say so; 0 where they do not."""
        match = _WAIT.search(self.message)
        spans = _SPAN.findall(match[1]) if match is not None else ()
        return sum(float(number) * _SECONDS_BY_UNIT[unit.lower()] for number, unit in spans)


NO_ERROR: Final = ServerError()
_PASSING_STATUSES: Final = frozenset({408, 409, 425, 429})


def is_passing(status: int) -> bool:
    """Whether a status other than of success says nothing of the request itself."""
    return status >= 500 or status in _PASSING_STATUSES or status < 400


def parse_server_error(value: object) -> ServerError:
    """Reads a decoded body. Empty where `value` tells of no error. Never raises."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, str):
        return ServerError(message=_shorten(first))
    if not isinstance(first, dict):
        return NO_ERROR
    parts = list(_iterate_parts(first, 0))
    messages = [message for part in parts for message in _extract_messages(part)]
    return ServerError(
        message=_shorten(": ".join(dict.fromkeys(filter(None, messages)))),
        codes=frozenset(code for part in parts for code in _extract_codes(part)),
        fields=frozenset(field for part in parts for field in _extract_fields(part)),
        filtered=any(not _FILTER_MARKS.isdisjoint(part) for part in parts),
    )


def tells_error(value: object) -> bool:
    """Whether a body with status 200 is an error."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict) or first.get("choices"):
        return False
    return bool(first.get("error")) or first.get("object") == "error" or "detail" in first


def _iterate_parts(value: dict[str, object], depth: int) -> Iterator[dict[str, object]]:
    """The error, and the errors that it quotes: of another server, or as JSON within a text."""
    error = value.get("error")
    own = error if isinstance(error, dict) else value
    yield own
    if own is not value and "error_type" in value:
        yield {"type": value["error_type"]}
    if depth == _MOST_NESTED:
        return
    metadata = own.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict):
        yield {**metadata, "message": raw if isinstance(raw, str) and not _decode(raw) else None}
    details = own.get("details")
    inner = [own.get("innererror"), *(details if isinstance(details, list) else ())]
    for quoted in (*map(_decode, (own.get("message"), own.get("error"), raw)), *inner):
        if isinstance(quoted, dict):
            yield from _iterate_parts(quoted, depth + 1)


def _extract_messages(part: dict[str, object]) -> Iterator[str]:
    for name in ("message", "error", "detail", "msg"):
        value = part.get(name)
        if isinstance(value, str) and not _decode(value):
            yield value
        elif isinstance(value, list):
            yield from (message for item in value if isinstance(item, dict) for message in _extract_messages(item))
        elif isinstance(value, dict) and name == "message":
            yield from _extract_messages(value)
    delay = part.get("retryDelay")
    if isinstance(delay, str):
        yield f"retry after {delay}"


def _extract_codes(part: dict[str, object]) -> Iterator[str]:
    for name in ("code", "type", "error_type", "status", "reason"):
        value = part.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            yield str(value).casefold()


def _extract_fields(part: dict[str, object]) -> Iterator[str]:
    named = part.get("param")
    if isinstance(named, str):
        yield named
    message = part.get("message")
    for listed in (part.get("detail"), message.get("detail") if isinstance(message, dict) else message):
        for item in listed if isinstance(listed, list) else ():
            where = item.get("loc") if isinstance(item, dict) else None
            yield from (str(step) for step in where if step != "body") if isinstance(where, list) else ()


def _decode(value: object) -> dict[str, object] | None:
    """The JSON object that a text is, if it is one."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return None
    first = decoded[0] if isinstance(decoded, list) and decoded else decoded
    return first if isinstance(first, dict) else None


def _shorten(words: str) -> str:
    return " ".join(words[:_LONGEST_MESSAGE].split())
