"""`atropos-envs keys`, on a store of its own, and a service on the same store."""

import sqlite3
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.access import compute_key_digest
from app.http.web import api_keys
from app.main.application import create_app
from app.settings import read_settings


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/keys.db"
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", url)
    return url


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, ["keys", *words])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def ask(client: TestClient, secret: str, path: str = "/runs") -> int:
    return client.get(path, headers={"Authorization": f"Bearer {secret}"}).status_code


def test_a_running_service_follows_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "FRESH_SECONDS", 0.0)
    client = TestClient(create_app(read_settings()), base_url="http://localhost")
    monkeypatch.setattr(api_keys, "STALE_SECONDS", 0.0001)
    with client:
        statuses = [client.get("/runs").status_code]
        secret = run("create", "ada").strip()
        for _ in range(3):
            client.get("/runs")
        statuses += [client.get("/runs").status_code, ask(client, secret), ask(client, secret, "/admin/keys")]
        new = run("rotate", "ada").strip()
        for _ in range(3):
            client.get("/runs")
        statuses += [ask(client, secret), ask(client, new)]
        run("revoke", "ada")
        for _ in range(3):
            client.get("/runs")
        statuses += [ask(client, new), client.get("/runs").status_code]
    assert statuses == [200, 401, 200, 403, 401, 200, 401, 401]
    told = run("audit", "--json") + run("list", "--json")
    assert [word in told for word in (secret, new, compute_key_digest(new), '"revoke"')] == [False, False, False, True]


def test_a_file_is_applied_once(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(f"keys: [{{name: ada, digest: {'a' * 64}, scopes: [label]}}]")
    first, second = run("apply", str(file)), run("apply", str(file))
    file.write_text(f"keys: [{{name: ada, digest: {'a' * 64}, scopes: [label], quotas: 3}}]")
    wrong = CliRunner().invoke(cli, ["keys", "apply", str(file)])
    assert (first, second, wrong.exit_code, "keys.0.quotas" in wrong.stderr) == (
        "create ada\n1 changed, 0 as they were\n",
        "0 changed, 1 as they were\n",
        2,
        True,
    )


def test_quotas_are_replaced_and_said_in_words() -> None:
    run("create", "ada", "--leases", "8")
    told = [
        run("limit", "ada", "--requests-per-day", "5000", "--judge-usd-per-day", "2.5", "--hard"),
        run("limit", "ada", "--leases", "16"),
        run("limit", "ada"),
    ]
    assert told == [
        "ada: 5,000 requests a day, 2.5 USD for judges a day, never exceeded\n",
        "ada: 16 tasks leased at once\n",
        "ada: no quotas\n",
    ]


def test_who_lost_play_is_named_until_an_admin_says_what_the_key_opens(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    run("create", "player", "--scope", "read", "--scope", "talk")
    with sqlite3.connect(store.removeprefix("sqlite:///")) as connection:  # as the migration leaves it
        connection.execute("UPDATE named_keys SET body = json_set(body, '$.narrowed', json('true'))")
    connection.close()
    advised = ("open", "player", "--scope", "read", "--scope", "talk", "--scope", "play")
    command = f"`atropos-envs keys {' '.join(advised)}`"
    named = [run("list")]
    create_app(read_settings(), environments={})
    warned = command in caplog.text
    told = run(*advised)
    named.append(run("list"))
    bound = CliRunner().invoke(cli, ["keys", "open", "nobody", "--scope", "talk"])
    wrong = CliRunner().invoke(cli, ["keys", "open", "player", "--scope", "all"])
    assert [(command in one, "became `talk`" in one) for one in named] == [(True, True), (False, False)]
    assert (warned, told, bound.exit_code, wrong.exit_code) == (True, "player: read, talk, play\n", 2, 2)
