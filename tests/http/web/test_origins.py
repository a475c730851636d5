"""What a page of another site cannot make a visitor's browser do."""

import base64
from typing import Any

import pytest
from fastapi import FastAPI, Request, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.domain.access import compute_key_digest
from app.http.web.api_keys import KeyRing, ProxySignIn
from app.http.web.middleware import LOOPBACK_HOSTS, MiddlewareOptions, install_middleware
from tests.support.tables import read_table

HERE = "http://127.0.0.1:8000"
REQUESTS = read_table(__file__, "origins.yaml", dict[str, Any])


GAME = "https://game.example"
KEY = "gw_of-a-game"
KEPT = base64.b64encode(f"anyone:{KEY}".encode()).decode()


def small_app(
    hosts: frozenset[str] | None = LOOPBACK_HOSTS, origins: frozenset[str] = frozenset(), keys: KeyRing | None = None
) -> TestClient:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.api_route("/x", methods=["GET", "POST"])
    async def anything() -> str:
        return "ok"

    @app.get("/view/x")
    async def page() -> str:
        return "ok"

    @app.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    @app.get("/livez")
    async def probe() -> str:
        return "ok"

    ring = KeyRing((), anonymous=True) if keys is None else keys
    install_middleware(app, MiddlewareOptions(ring, hosts=hosts, origins=origins))
    return TestClient(app, base_url=HERE)


def test_programs_and_our_own_pages_are_served() -> None:
    client = small_app()
    told = [client.request(method, "/x", headers=headers).status_code for method, headers in REQUESTS["ours"]]
    assert told == [200] * len(told)


def test_other_sites_and_rebound_names_are_refused() -> None:
    client = small_app()
    told = [client.request(method, "/x", headers=headers) for method, headers in REQUESTS["theirs"]]
    assert [(one.status_code, one.json()["code"]) for one in told] == [(403, "forbidden")] * len(told)


def test_a_link_from_another_site_opens_pages_alone() -> None:
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    client = small_app()
    assert [client.get(path, headers=linked).status_code for path in ("/view/x", "/x", "/viewx")] == [200, 403, 403]


def test_any_host_is_answered_where_none_is_named() -> None:
    assert small_app(hosts=None).get("/x", headers={"Host": "gateway.svc"}).status_code == 200


def test_a_probe_may_name_any_host() -> None:
    told = [small_app().get(path, headers={"Host": "10.1.2.3:8000"}).status_code for path in ("/livez", "/x")]
    assert told == [200, 403]


def test_a_site_that_is_allowed_may_call_with_a_key_of_its_own() -> None:
    client = small_app(origins=frozenset({GAME}), keys=KeyRing([compute_key_digest(KEY)], anonymous=False))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    first = client.options("/x", headers={"Origin": GAME, "Sec-Fetch-Site": "cross-site", **asked})
    told = {
        name: client.post("/x", headers={"Origin": origin, "Sec-Fetch-Site": "cross-site", **more})
        for name, origin, more in (
            ("with a key", GAME, {"Authorization": f"Bearer {KEY}"}),
            ("without a key", GAME, {}),
            ("with what a browser kept", GAME, {"Authorization": f"Basic {KEPT}"}),
            ("of another site", "https://game.example.evil", {"Authorization": f"Bearer {KEY}"}),
        )
    }
    assert (first.status_code, first.headers["access-control-allow-origin"]) == (200, GAME)
    assert "access-control-allow-credentials" not in first.headers
    assert {name: (one.status_code, one.headers.get("access-control-allow-origin")) for name, one in told.items()} == {
        "with a key": (200, GAME),
        "without a key": (401, GAME),
        "with what a browser kept": (401, GAME),
        "of another site": (403, None),
    }


def test_a_site_that_is_allowed_borrows_no_sign_in_of_a_proxy() -> None:
    app = FastAPI()

    @app.post("/x")
    async def show(request: Request) -> list[str]:
        return sorted({"cookie", "x-forwarded-user", "x-other"} & set(request.headers))

    proxy = ProxySignIn("X-Forwarded-User", (), ())
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), origins=frozenset({GAME}), proxy=proxy))
    sent = {"Origin": GAME, "Sec-Fetch-Site": "cross-site", "X-Forwarded-User": "ada", "Cookie": "a=b", "X-Other": "1"}
    told = [
        TestClient(app, base_url=HERE).post("/x", headers=one).json() for one in (sent, {"X-Forwarded-User": "ada"})
    ]
    assert told == [["x-other"], ["x-forwarded-user"]]


def test_a_web_socket_of_another_site_is_closed() -> None:
    client = small_app()
    with client.websocket_connect("ws://127.0.0.1:8000/ws"):
        pass
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("ws://127.0.0.1:8000/ws", headers={"Origin": "http://evil.example"}),
    ):
        pass
