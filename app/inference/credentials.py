"""What a server is shown besides the question: a key, and headers that may hold secrets."""

from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

NO_HEADERS: Final[Mapping[str, SecretStr]] = {}
_HIDDEN: Final = "…"
_SHORTEST_SECRET: Final = 4
"""A shorter header is no secret, and hiding it would hide parts of ordinary words."""


class Credentials:
    """The key of one server and its further headers. Only the transport reads them."""

    def __init__(self, api_key: SecretStr | None = None, headers: Mapping[str, SecretStr] = NO_HEADERS) -> None:
        self._key = api_key
        self._headers = headers

    def build_headers(self, key_header: str = "authorization") -> dict[str, str]:
        """`key_header` is `authorization`, which gets a bearer token, or a header that gets the bare key."""
        headers: dict[str, str] = {}
        if self._key is not None:
            key = self._key.get_secret_value()
            headers[key_header] = f"Bearer {key}" if key_header == "authorization" else key
        return headers | {name.casefold(): value.get_secret_value() for name, value in self._headers.items()}

    def redact(self, words: str) -> str:
        """Without the secrets."""
        for secret in self._list_secrets():
            words = words.replace(secret, _HIDDEN)
        return words

    def _list_secrets(self) -> list[str]:
        """The longest first, since one may be a part of another."""
        given = [*([] if self._key is None else [self._key]), *self._headers.values()]
        secrets = {secret.get_secret_value() for secret in given}
        return sorted((secret for secret in secrets if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)
