"""What the door does to every request: an id in answers and log lines, and a measurement in which no address stands."""

import pytest
import structlog
from fastapi import APIRouter, FastAPI
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.http.web.openapi import install_docs

Seen = list[tuple[str, str, int]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def client(seen: Seen) -> TestClient:
    app = FastAPI(docs_url=None, redoc_url=None)
    router = APIRouter(prefix="/envs")

    @router.get("/{env}")
    async def environment(env: str) -> dict[str, str]:
        if env == "broken":
            raise RuntimeError("on purpose")
        return {key: str(value) for key, value in structlog.contextvars.get_contextvars().items()}

    def observe(route: str, method: str, status: int, seconds: float) -> None:
        seen.append((route, method, status))

    app.include_router(router)
    install_docs(app)
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), observe=observe))
    return TestClient(app)


def test_requests_are_told_by_template(client: TestClient, seen: Seen) -> None:
    asked = {
        ("GET", "/envs/gsm8k"): ("/envs/{env}", "GET", 200),
        ("GET", "/envs/broken"): ("/envs/{env}", "GET", 500),
        ("DELETE", "/envs/gsm8k"): ("/envs/{env}", "DELETE", 405),
        ("INVENTED", "/envs/gsm8k"): ("/envs/{env}", "other", 405),
        ("GET", "/wp-admin.php"): ("unmatched", "GET", 404),
        ("GET", "/docs"): ("/docs", "GET", 200),
        ("GET", "/docs/assets/swagger-ui.css"): ("unmatched", "GET", 200),
    }
    for method, path in asked:
        client.request(method, path)
    assert seen == [*asked.values()]


def test_the_callers_id_is_taken_over_unless_it_could_do_harm(client: TestClient) -> None:
    good = ("a", "trainer-7.rank_3", "x" * 128)
    bad = ("", "x" * 129, "a b", "a\tb", 'a"b', "a/b", "ä", "a\n")
    replies = [client.get("/envs/any", headers={b"X-Request-ID": one.encode("latin-1")}) for one in (*good, *bad)]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert [reply.json() for reply in replies] == [{"request_id": one} for one in ids]
    assert (ids[: len(good)], [len(one) for one in ids[len(good) :]]) == ([*good], [16] * len(bad))


def test_ids_differ_and_do_not_outlive_their_request(client: TestClient) -> None:
    first, second = (client.get("/envs/any").headers["x-request-id"] for _ in range(2))
    assert (first != second, structlog.contextvars.get_contextvars()) == (True, {})


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/envs/broken", 500)])
def test_errors_carry_it_in_header_and_body(client: TestClient, path: str, status: int) -> None:
    response = client.get(path, headers={"X-Request-ID": "mine"})
    assert (response.status_code, response.headers["x-request-id"], response.json()["request_id"]) == (
        status,
        "mine",
        "mine",
    )


def test_the_log_of_a_failure_carries_it(client: TestClient) -> None:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        client.get("/envs/broken", headers={"X-Request-ID": "mine"})
    assert [(line["event"], line["request_id"], "on purpose" in line["traceback"]) for line in lines] == [
        ("request_failed", "mine", True)
    ]
