"""Tells alarms of runs to a URL of the operator's, signed, without redirects."""

import asyncio
import hashlib
import hmac
import json
import logging
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from app.domain.runs import Alarm

log = logging.getLogger(__name__)

SIGNATURE_HEADER: Final = "X-Atropos-Signature-256"


@dataclass(frozen=True)
class AlarmWebhook:
    """`secret` signs the body as GitHub signs its webhooks: `sha256=` and the HMAC in hexadecimal digits."""

    url: str
    secret: SecretStr | None = None
    timeout_seconds: float = 10.0
    """Of one attempt. What is not taken is sent again for hours, so that no receiver needs longer."""

    async def send(self, run: str, alarm: Alarm) -> bool:
        body = _build_notice(run, alarm)
        try:
            status = await self._post(body)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever happens there, nothing here depends on it
            log.warning("the alarm webhook could not be reached: %s", type(error).__name__)
            return False
        if not 200 <= status < 300:
            log.warning("the alarm webhook answered %d%s", status, ": redirects are not followed" * (status < 400))
        return 200 <= status < 300

    async def _post(self, body: bytes) -> int:
        import aiohttp  # takes long to import, and most starts need none of it

        headers = {"content-type": "application/json", **self._sign(body)}
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.post(self.url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return response.status

    def _sign(self, body: bytes) -> dict[str, str]:
        if self.secret is None:
            return {}
        signature = hmac.new(self.secret.get_secret_value().encode(), body, hashlib.sha256).hexdigest()
        return {SIGNATURE_HEADER: f"sha256={signature}"}


def _build_notice(run: str, alarm: Alarm) -> bytes:
    """The same for every attempt, so that a receiver can tell repeats by `alarm_id`."""
    notice = {"event": "run_alarm", "run": run, "alarm": alarm.model_dump(mode="json", exclude={"released_at"})}
    return json.dumps(notice, separators=(",", ":"), sort_keys=True).encode()
