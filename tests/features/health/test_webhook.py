"""Alarms are posted signed, once, without redirects; what is not taken is said to be so."""

import asyncio
import hashlib
import hmac
import json
import socket

import pytest
from pydantic import SecretStr

from app.features.health.webhook import SIGNATURE_HEADER, AlarmWebhook
from tests.support.chat_server import Reply, serving
from tests.support.store_cases import alarm

ALARM = alarm()


@pytest.mark.parametrize(("status", "taken"), [(204, True), (302, False), (500, False)])
def test_a_notice_is_signed_and_sent_once(status: int, taken: bool) -> None:
    """Without a secret it has no signature, and when nobody is there that is no error."""
    with serving(lambda number, received: Reply(b"", status=status, headers={"location": "/v1"})) as server:
        signed, bare = AlarmWebhook(server.url, SecretStr("key")), AlarmWebhook(server.url)
        found = [asyncio.run(webhook.send("a", ALARM)) for webhook in (signed, bare)]
    first, second = server.received
    sent = json.dumps(first.body, separators=(",", ":"), sort_keys=True).encode()
    signature = "sha256=" + hmac.new(b"key", sent, hashlib.sha256).hexdigest()
    told = [one.headers.get(SIGNATURE_HEADER) for one in (first, second)]
    assert (told, found, asyncio.run(bare.send("a", ALARM))) == ([signature, None], [taken] * 2, False)
    notice = {"event": "run_alarm", "run": "a", "alarm": ALARM.model_dump(mode="json", exclude={"released_at"})}
    assert [first.body, second.body] == [notice] * 2


def test_who_never_answers_has_not_taken_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhook = AlarmWebhook(f"http://127.0.0.1:{silent.getsockname()[1]}/hook", timeout_seconds=0.05)
        assert asyncio.run(webhook.send("a", ALARM)) is False
