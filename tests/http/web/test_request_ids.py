"""Every answer and every log line can be told apart."""

import pytest
import structlog
from fastapi import FastAPI
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware


@pytest.fixture
def client() -> TestClient:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/bound")
    async def bound() -> dict[str, str]:
        return {key: str(value) for key, value in structlog.contextvars.get_contextvars().items()}

    @app.get("/fails")
    async def fails() -> str:
        raise RuntimeError("on purpose")

    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True)))
    return TestClient(app)


@pytest.mark.parametrize("given", ["a", "trainer-7.rank_3", "x" * 128])
def test_the_callers_id_is_taken_over(client: TestClient, given: str) -> None:
    response = client.get("/bound", headers={"X-Request-ID": given})
    assert (response.headers["x-request-id"], response.json()) == (given, {"request_id": given})


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", 'a"b', "a/b", "ä", "a\n"])
def test_an_id_that_could_do_harm_is_replaced(client: TestClient, given: str) -> None:
    response = client.get("/bound", headers={b"X-Request-ID": given.encode("latin-1")})
    made = response.headers["x-request-id"]
    assert (made != given, len(made), response.json()) == (True, 16, {"request_id": made})


def test_ids_differ_and_do_not_outlive_their_request(client: TestClient) -> None:
    first, second = (client.get("/bound").headers["x-request-id"] for _ in range(2))
    assert (first != second, structlog.contextvars.get_contextvars()) == (True, {})


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/fails", 500)])
def test_errors_carry_it_in_header_and_body(client: TestClient, path: str, status: int) -> None:
    response = client.get(path, headers={"X-Request-ID": "mine"})
    assert (response.status_code, response.headers["x-request-id"], response.json()["request_id"]) == (
        status,
        "mine",
        "mine",
    )


def test_the_log_of_a_failure_carries_it(client: TestClient) -> None:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        client.get("/fails", headers={"X-Request-ID": "mine"})
    assert [(line["event"], line["request_id"], "on purpose" in line["traceback"]) for line in lines] == [
        ("request_failed", "mine", True)
    ]
