"""One HTTP request to a judge's server.

Retries, deadlines and parsing happen elsewhere in this package, so a larger client would add nothing. Decision 0010 has
the measurements.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import JsonValue, SecretStr

from app.judges.chat_response import extract_error_code, extract_error_message, parse_retry_after
from app.judges.failures import CallFailed

CONNECT_SECONDS: Final = 10.0
LARGEST_REPLY: Final = 4 * 1024 * 1024
"""Bytes. Larger responses are aborted."""


class Connection:
    """Opened by the first call. The caller sets the timeout."""

    def __init__(self, base_url: str, api_key: SecretStr | None) -> None:
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key.get_secret_value()}"
        self._session: Any = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, body: Mapping[str, JsonValue]) -> bytes:
        """Returns the body of a response with a status below 300. CallFailed for everything else."""
        import aiohttp  # takes long to import, and most starts need none of it

        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        try:
            return await self._exchange(content)
        except CallFailed:
            raise
        except aiohttp.ClientConnectorError:
            raise CallFailed("the judge's server could not be reached", reached=False) from None
        except Exception as error:
            raise CallFailed(f"the connection to the judge's server failed: {type(error).__name__}") from None

    async def _exchange(self, content: bytes) -> bytes:
        async with self._open_session().post(
            self._url, data=content, headers=self._headers, allow_redirects=False
        ) as response:
            parts: list[bytes] = []
            size = 0
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > LARGEST_REPLY:
                    response.close()
                    raise CallFailed(f"the judge's server sent more than {LARGEST_REPLY} bytes", status=200)
            received = b"".join(parts)
            if response.status < 300:
                return received
            said = _parse_json(received)
            raise CallFailed(
                f"the judge's server answered {response.status}",
                status=response.status,
                code=extract_error_code(said),
                told=extract_error_message(response.status, said),
                retry_after=parse_retry_after(response.headers),
            )

    def _open_session(self) -> Any:
        """An `aiohttp.ClientSession`."""
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the limit of the judge is the only one
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
                trust_env=False,
            )
        return self._session


def _parse_json(body: bytes) -> object:
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value
