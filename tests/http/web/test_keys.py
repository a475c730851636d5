"""Who is let in."""

import base64

import pytest
from fastapi import FastAPI, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.domain.access import compute_key_digest, generate_key
from app.http.web.api_keys import ALWAYS_OPEN, KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware

KEY = "gw_the-right-one:with-a-colon"
OTHER = "gw_another-right-one"
RING = KeyRing([compute_key_digest(KEY), compute_key_digest(OTHER)], anonymous=False)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def small_app(ring: KeyRing, open_paths: frozenset[str] = ALWAYS_OPEN) -> TestClient:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/{path}")
    async def anything(path: str) -> str:
        return path

    @app.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("hello")
        await websocket.close()

    install_middleware(app, MiddlewareOptions(ring, open_paths=open_paths))
    return TestClient(app)


def test_a_known_key_opens() -> None:
    given = (
        *(f"Bearer {KEY}", f"bearer {OTHER}", f"BEARER   {KEY} ", basic("", KEY), basic("anyone", OTHER)),
        "basic " + basic("x", KEY).removeprefix("Basic "),
    )
    client = small_app(RING)
    assert [client.get("/envs", headers={"Authorization": one}).status_code for one in given] == [200] * len(given)


def test_a_wrong_key_is_not_told_that_one_is_missing() -> None:
    client = small_app(RING)
    wrong = client.get("/envs", headers={"Authorization": "Bearer gw_mistyped"}).json()["detail"]
    missing = client.get("/envs").json()["detail"]
    assert (wrong.split(".")[0], missing.split(":")[0]) == (
        "The API key in the `Authorization` header is not one of this service",
        "An API key is required",
    )


REFUSED = (
    *(None, "", "Bearer", "Bearer ", "Bearer gw_wrong", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"),
    *(f"Bearer {compute_key_digest(KEY)}", f"Token {KEY}", KEY, "Basic", "Basic !!!"),
    "Basic " + base64.b64encode(b"no-colon").decode(),
    "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
    *(basic(KEY, ""), basic(KEY, "wrong"), "Bearer \xff\xfe", "Bearer " + "x" * 50_000),
)


def test_anything_else_is_401_and_a_browser_is_asked() -> None:
    client, told = small_app(RING), []
    for given in REFUSED:
        headers = {} if given is None else {b"Authorization": given.encode("latin-1")}
        reply = client.get("/envs", headers=headers)
        told.append((reply.status_code, reply.json()["code"], reply.headers.get_list("www-authenticate")))
    asked = ["Bearer", 'Basic realm="gateway", charset="UTF-8"']
    assert told == [(401, "unauthorized", asked)] * len(REFUSED)


def test_only_probes_are_open_unless_somebody_says_so() -> None:
    asked = {"/livez": 200, "/readyz": 200, "/metrics": 401, "/docs": 401, "/livez%2f": 401, "/envs": 401}
    client = small_app(RING)
    assert {path: client.get(path).status_code for path in asked} == asked
    behind = TestClient(client.app, root_path="/gateway")
    assert [behind.get(f"/gateway{path}").status_code for path in ("/livez", "/envs")] == [200, 401]
    assert small_app(RING, ALWAYS_OPEN | {"/metrics"}).get("/metrics").status_code == 200
    rings = [KeyRing((), anonymous=anonymous) for anonymous in (True, False)]
    assert [small_app(ring).get("/envs").status_code for ring in rings] == [200, 401]


def test_a_web_socket_needs_the_key_too() -> None:
    client = small_app(RING)
    with client.websocket_connect("/ws", headers={"Authorization": f"Bearer {KEY}"}) as socket:
        assert socket.receive_text() == "hello"
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws"):
        pass


def test_new_keys_are_recognisable_and_never_the_same() -> None:
    keys = {generate_key() for _ in range(100)}
    assert (len(keys), {key[:3] for key in keys}, min(map(len, keys)) > 40) == (100, {"gw_"}, True)


def test_openapi_says_that_a_key_is_needed_and_where_not() -> None:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/livez")
    async def alive() -> str:
        return "ok"

    @app.get("/envs")
    async def catalogue() -> str:
        return "[]"

    install_middleware(app, MiddlewareOptions(RING))
    document = app.openapi()
    assert (
        document["security"],
        document["paths"]["/livez"]["get"]["security"],
        "security" in document["paths"]["/envs"]["get"],
    ) == ([{"bearer": []}, {"basic": []}], [], False)
    assert app.openapi() is document
