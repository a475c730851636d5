"""Nothing but the endpoint decides where a request goes and what it carries, and no reply is read without bound."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.inference.connection import Connection, Credentials, Endpoint, NoReply, ServerReply
from tests.support.chat_server import Received, Reply, Script, serving

KEY = "sk-the-key-of-the-settings"
OTHER = "sk-a-key-from-the-environment"
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hällo."}],
    "stream": True,
    "new_field": {"a": [1, None]},
}

HOSTILE = {
    "OPENAI_API_KEY": OTHER,
    "OPENAI_ADMIN_KEY": OTHER,
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_ORG_ID": "another-organisation",
    "OPENAI_PROJECT_ID": "another-project",
    "OPENAI_WEBHOOK_SECRET": OTHER,
    "OPENAI_CUSTOM_HEADERS": f"Authorization: {OTHER}\nauthorization: {OTHER}\nX-More: 1\nuser-agent: x\nApi-Key: y",
    "OPENAI_LOG": "debug",
    "OPENAI_API_VERSION": "1999-01-01",
    "AZURE_OPENAI_API_KEY": OTHER,
    "AZURE_OPENAI_AD_TOKEN": OTHER,
    "AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:9",
    **{name: "http://someone:secret@127.0.0.1:9" for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY")},
}
"""Whatever the package, its HTTP client and ours could look for."""

AZURE = "2024-10-21"
ENDPOINTS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (KEY, "", "/v1/chat/completions", {"authorization": f"Bearer {KEY}"}),
    ("", "", "/v1/chat/completions", {}),
    (KEY, AZURE, f"/v1/openai/deployments/m/chat/completions?api-version={AZURE}", {"api-key": KEY}),
    ("", AZURE, f"/v1/openai/deployments/m/chat/completions?api-version={AZURE}", {}),
)
"""Key, version of Azure's interface, and what is asked with which authorisation."""

PROGRAM = Path(__file__).with_name("asking_program.txt").read_text(encoding="utf-8")


def asked_in(environment: Mapping[str, str], *arguments: str) -> str:
    """Everything that a process with this environment writes while it asks each endpoint four times."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout + done.stderr


def tempting(number: int, received: Received) -> Reply:
    """Sets a cookie, redirects, fails and breaks off."""
    cookie = {"set-cookie": "session=1; Path=/"}
    away = {"location": "http://127.0.0.1:9/", "x-should-retry": "true", **cookie}
    return [Reply(b"{}", 200, cookie), Reply(b"", 307, away), Reply(b"{}", 500, away), Reply(b"", cut=-1)][number % 4]


def test_nothing_outside_of_the_endpoint_decides_anything(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(f"default login someone password {OTHER}\n", encoding="utf-8")
    environment = {**HOSTILE, "HOME": str(tmp_path), "NETRC": str(tmp_path / ".netrc")}
    with serving(tempting) as server:
        endpoints = json.dumps([endpoint[:2] for endpoint in ENDPOINTS])
        written = asked_in(environment, server.url.replace("127.0.0.1", "localhost"), endpoints)
    host = server.url.removeprefix("http://").removesuffix("/v1").replace("127.0.0.1", "localhost")
    sent = [(one.path, {name.lower(): value for name, value in one.headers.items()}) for one in server.received]
    own = {"accept": "application/json", "content-type": "application/json", "x-own": "own value"}
    agent = {name: sent[0][1].get(name, "") for name in ("user-agent", "accept-encoding", "content-length")}
    assert agent["user-agent"].startswith("atropos-environments openai/")
    wanted = [(path, {"host": host, **agent, **own, **authorization}) for _, _, path, authorization in ENDPOINTS]
    assert sent == [each for each in wanted for _ in range(4)]
    assert written.splitlines() == ["200", "307", "500", "broken"] * 4, "one request each, and no line of a log"


async def asked(
    script: Script, body: Mapping[str, object] = BODY, **more: object
) -> tuple[ServerReply, list[Received]]:
    with serving(script) as server:
        endpoint = Endpoint(server.url, Credentials(SecretStr(KEY)), **more)  # type: ignore[arg-type]
        async with aclosing(Connection(endpoint)) as connection:
            return await connection.post(body), server.received  # type: ignore[arg-type]


async def test_the_body_goes_out_as_it_is_and_the_reply_comes_in_as_it_is() -> None:
    said = Reply(b" \n\xff not json", 418, {"Retry-After": "7", "content-type": "text/event-stream"})
    answer, received = await asked(lambda number, received: said)
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (418, b" \n\xff not json", "7")
    assert [one.body for one in received] == [BODY]


async def test_requests_after_the_first_are_the_same() -> None:
    with serving(lambda number, received: Reply(b"{}", 200 + number)) as server:
        async with aclosing(Connection(Endpoint(server.url, Credentials(SecretStr(KEY)), "2024-10-21"))) as connection:
            told = [await connection.post({"model": model, "said": "Hällo."}) for model in ("a b", "a b", "c", "c")]
    assert [one.status for one in told] == [200, 201, 202, 203]
    first, second, third, fourth = [(one.path, one.headers, one.body) for one in server.received]
    assert (first, third) == (second, fourth)
    assert (first[0], third[2]["model"]) == (
        "/v1/openai/deployments/a%20b/chat/completions?api-version=2024-10-21",
        "c",
    )


@pytest.mark.parametrize("status", [200, 400])
async def test_replies_are_bounded_after_decompression(status: int) -> None:
    bomb = Reply(gzip.compress(b" " * 50_000_000), status, {"content-encoding": "gzip"})
    with pytest.raises(NoReply, match="more than 100000 bytes") as caught:
        await asked(lambda number, received: bomb, largest_reply=100_000)
    assert caught.value.kind == "too_large"


async def test_compressed_replies_are_read() -> None:
    told = json.dumps({"choices": []}).encode()
    answer, _ = await asked(lambda number, received: Reply(gzip.compress(told), 200, {"content-encoding": "gzip"}))
    assert (answer.status, answer.body) == (200, told)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://[/v1", "no-url", ""])
async def test_a_server_that_is_not_there(url: str) -> None:
    async with aclosing(Connection(Endpoint(url, Credentials(SecretStr(KEY))))) as connection:
        with pytest.raises(NoReply) as caught:
            await connection.post(BODY)  # type: ignore[arg-type]
    assert KEY not in str(caught.value)
    assert caught.value.kind == "unreachable"


@pytest.mark.parametrize(
    ("base", "asked_at"),
    [
        ("", "/openai/deployments/m/chat/completions"),
        ("/openai/", "/openai/deployments/m/chat/completions"),
        ("/openai/deployments/other", "/openai/deployments/other/chat/completions"),
    ],
)
async def test_forms_of_azures_url(base: str, asked_at: str) -> None:
    with serving(lambda number, received: Reply(b"{}")) as server:
        endpoint = Endpoint(server.url.removesuffix("/v1") + base, api_version="2024-10-21")
        async with aclosing(Connection(endpoint)) as connection:
            await connection.post(BODY)  # type: ignore[arg-type]
    assert [one.path for one in server.received] == [f"{asked_at}?api-version=2024-10-21"]


def test_what_asks_judges_sends_traces_and_searches_events_is_imported_when_it_is_needed() -> None:
    program = (
        "import sys, app.main.application, app.cli.serve, app.inference.connection\n"
        "from app.main.components import build_tracer, Settings; assert build_tracer(Settings(), '1') is None\n"
        "loaded = 'openai', 'httpx2', 'aiohttp', 'opentelemetry.sdk', 'opentelemetry.exporter', 'google.protobuf', "
        "'numpy', 'sqlalchemy.dialects.postgresql'\n"
        "print([name for name in loaded if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[]"
