"""What a server is shown besides the question: a key, and headers that may hold secrets."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import SecretStr

NO_HEADERS: Final[Mapping[str, SecretStr]] = {}
_HIDDEN: Final = "…"
_SHORTEST_SECRET: Final = 4
"""Hiding anything shorter would hide parts of ordinary words."""
_MOST_KEYS_HIDDEN: Final = 8
"""A key that was replaced may still be quoted by an answer that is under way."""
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+")


def clean_key(key: SecretStr) -> SecretStr:
    """Without the space around it, such as the line break at the end of a file. ValueError, without the key, for what
    no header can hold."""
    value = key.get_secret_value().strip()
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError("holds no key" if not value else "holds a key with spaces or characters outside of ASCII")
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
        """ValueError when the file holds no key now, OSError when it cannot be read."""
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
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size

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
