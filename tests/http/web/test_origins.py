"""What a page of another site cannot make a visitor's browser do."""

from pathlib import Path

import pytest
import yaml
from fastapi import FastAPI, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.http.web.api_keys import KeyRing
from app.http.web.middleware import LOOPBACK_HOSTS, MiddlewareOptions, install_middleware

HERE = "http://127.0.0.1:8000"
REQUESTS = yaml.load(Path(__file__).with_name("origins.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def small_app(hosts: frozenset[str] | None = LOOPBACK_HOSTS) -> TestClient:
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

    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), hosts=hosts))
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


def test_a_web_socket_of_another_site_is_closed() -> None:
    client = small_app()
    with client.websocket_connect("ws://127.0.0.1:8000/ws"):
        pass
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("ws://127.0.0.1:8000/ws", headers={"Origin": "http://evil.example"}),
    ):
        pass
