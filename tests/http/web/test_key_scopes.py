"""What a named key opens, in the service as it is served."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from fastapi.routing import APIWebSocketRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from app.domain.access import ACCESS_SCOPES, AccessScope, KeyBounds, StoredKey, compute_key_digest
from app.domain.values import Frozen
from app.http.web import api_keys
from app.http.web.api_keys import (
    BoundKind,
    KeyRing,
    RouteAccess,
    build_gate,
    declare_access,
    find_access,
    list_methods,
    needs,
    open_to_all,
)
from app.main.application import create_app
from app.settings import Settings
from app.store.api_keys import KeyStore, KnownKeys
from tests.support.forked_programs import ROOT
from tests.support.tables import read_table


class Tables(Frozen):
    opened: tuple[tuple[AccessScope, list[int]], ...]
    asked: tuple[tuple[str, str], ...]


TABLES = read_table(__file__, "key_scopes.yaml", Tables)

SECRET = "gw_of-a-named-key"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_key(*scopes: AccessScope, **changes: object) -> StoredKey:
    made = {"name": "ada", "scopes": scopes, "hint": "gw_of", "created_at": NOW, "created_by": "command line"}
    return StoredKey.model_validate(made | {"digest": compute_key_digest(SECRET)} | changes)


class Kept(KeyStore):
    """Keys as a store has them."""

    def __init__(self, *keys: StoredKey) -> None:
        self.keys = keys

    async def load(self) -> KnownKeys:
        return KnownKeys(self.keys)


def find(*keys: StoredKey) -> str | None:
    ring = KeyRing([], False, known=KnownKeys(keys))
    caller = ring.find_caller(f"Bearer {SECRET}")
    return None if caller is None else caller.name


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder: Path = tmp_path_factory.mktemp("scopes")
    settings = Settings(database_url=f"sqlite:///{folder}/keys.db", host="127.0.0.1")
    return TestClient(create_app(settings), base_url="http://localhost", raise_server_exceptions=False)


def test_every_route_and_socket_has_a_scope(served: TestClient) -> None:
    routes = served.app.router.routes  # type: ignore[attr-defined]
    placed = [
        (find_access(route).scope, f"{method} {route.path}") for route in routes for method in list_methods(route)
    ]
    for_all = {place for scope, place in placed if scope is None}
    assert (len(placed) > 100, {scope for scope, _ in placed} - {None}) == (True, set(ACCESS_SCOPES))
    assert for_all == {"GET /livez", "GET /readyz", "GET /sign-in", "POST /sign-in", "POST /sign-out"}


def make_endpoint() -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response()

    return answer


def test_all_other_scopes_together_do_not_open_a_route(served: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyRing, "anonymous", False)
    opened, asked = [], 0
    for route in served.app.router.routes:  # type: ignore[attr-defined]
        needed = find_access(route).scope
        if needed is None or isinstance(route, APIWebSocketRoute):
            continue
        key = make_key(*(scope for scope in ACCESS_SCOPES if scope not in {needed, "admin"}))
        monkeypatch.setattr(KeyRing, "find_caller", lambda *_, caller=key.caller: caller)
        path = re.sub(r"\{[^}]*\}", "x", route.path)
        for method in list_methods(route):
            answer = served.request(method, path, headers={"Authorization": "Bearer any"})
            asked += 1
            if answer.status_code != 403 or f"lacks the scope `{needed}`" not in answer.json()["detail"]:
                opened.append((method, path, answer.status_code))
    # What the page is made of on which people give their key: no key is asked for there.
    assert (asked > 200, opened) == (True, [("GET", "/view/assets/x/x", 404), ("GET", "/favicon.svg", 200)])


async def allow_group(bounds: KeyBounds, group_id: str) -> None:
    pass


def test_a_route_of_which_nothing_is_said_stops_the_start() -> None:
    with pytest.raises(LookupError, match="no scope is set for POST /new: say with @needs"):
        build_gate(Route("/new", make_endpoint(), methods=["POST"]), allow_group)
    with pytest.raises(LookupError, match="no scope is set for GET /files"):
        build_gate(Mount("/files", StaticFiles(packages=[("app.http.web", "static")])), allow_group)


def test_a_place_that_nobody_knows_checks_nothing_and_stops_the_start() -> None:
    route = Route("/new", needs("read", cast(BoundKind, "grup"))(make_endpoint()))
    with pytest.raises(LookupError, match="grup is no place where bounds are checked: GET /new"):
        build_gate(route, allow_group)


def test_what_an_endpoint_says_counts_more_than_what_its_router_says() -> None:
    own, common = Route("/own", open_to_all(make_endpoint())), Route("/common", make_endpoint())
    declare_access([own, common], "train", "run")
    assert [find_access(one) for one in (own, common)] == [RouteAccess(None, "shared"), RouteAccess("train", "run")]


@pytest.mark.parametrize(("scope", "statuses"), TABLES.opened)
def test_a_key_opens_what_is_in_its_scopes(
    served: TestClient, monkeypatch: pytest.MonkeyPatch, scope: AccessScope, statuses: list[int]
) -> None:
    monkeypatch.setattr(KeyRing, "anonymous", False)
    monkeypatch.setattr(KeyRing, "find_caller", lambda *_: make_key(scope).caller)
    headers = {"Authorization": "Bearer any"}
    answers = [
        served.request(method, path, json={} if method == "POST" else None, headers=headers)
        for method, path in TABLES.asked
    ]
    assert [answer.status_code for answer in answers] == statuses
    refused = [answer.json()["detail"] for answer in answers if answer.status_code == 403]
    assert all(words.startswith("The key 'ada' lacks the scope `") for words in refused)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "ada"),
        ({"revoked_at": NOW}, None),
        ({"expires_at": NOW}, None),
        ({"expires_at": datetime(2999, 1, 1, tzinfo=UTC)}, "ada"),
        ({"digest": "0" * 64, "former_digest": compute_key_digest(SECRET), "grace_until": NOW}, None),
        (
            {
                "digest": "0" * 64,
                "former_digest": compute_key_digest(SECRET),
                "grace_until": datetime(2999, 1, 1, tzinfo=UTC),
            },
            "ada",
        ),
    ],
)
def test_a_key_is_valid_until_its_time_is_over(changes: dict[str, object], name: str | None) -> None:
    assert find(make_key("read", **changes)) == name


async def test_another_replica_notices_a_revoked_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(api_keys, "STALE_SECONDS", 0.01)
    kept = Kept(make_key("read"))
    ring = KeyRing([], True, kept)

    async def find_later() -> bool:
        await asyncio.sleep(0.02)
        await ring.refresh()
        return ring.find_caller(f"Bearer {SECRET}") is not None

    before = await find_later()
    kept.keys = (make_key("read", revoked_at=NOW),)
    assert (before, await find_later(), ring.anonymous) == (True, False, False)


def test_an_admin_makes_rotates_and_revokes_keys_over_http(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/a.db", host="127.0.0.1", api_key="gw_of-the-settings")
    admin = {"Authorization": "Bearer gw_of-the-settings"}
    with TestClient(create_app(settings), base_url="http://localhost", headers=admin) as client:
        made = client.post("/admin/keys", json={"name": "ada"})
        again = client.post("/admin/keys", json={"name": "ada"})
        turned = client.post("/admin/keys/ada/rotate", json={"grace_seconds": 60})
        ended = client.post("/admin/keys/ada/revoke", json={})
        late = client.post("/admin/keys/ada/rotate", json={})
        missing = client.post("/admin/keys/bob/revoke", json={})
        wrong = client.post("/admin/keys", json={"name": "bob", "scopes": ["all"]})
        audit = client.get("/admin/audit")
        listed = client.get("/admin/keys")
    answers = [made, again, turned, ended, late, missing, wrong, audit, listed]
    assert [answer.status_code for answer in answers] == [200, 409, 200, 200, 409, 404, 422, 200, 200]
    told = [(action["by"], action["action"], action["key"]) for action in audit.json()["actions"]]
    assert told == [("settings", action, "ada") for action in ("revoke", "rotate", "create")]
    assert (made.json()["secret"] in audit.text + listed.text, "digest" in audit.text + listed.text) == (False, False)


def test_an_open_service_has_no_admin(served: TestClient) -> None:
    answers = [served.get("/runs"), served.get("/admin/keys"), served.post("/admin/keys", json={"name": "eve"})]
    assert [answer.status_code for answer in answers] == [200, 403, 403]


def test_the_documentation_names_the_scope_of_each_route() -> None:
    """As it is kept; `make check` compares it with what is served."""
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    silent = [path for path, each in paths.items() for one in each.values() if "the scope `" not in str(one)]
    assert silent == ["/livez", "/readyz"]
