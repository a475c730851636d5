"""What is told of each request, and what never becomes a label."""

import pytest
from fastapi import APIRouter, FastAPI
from starlette.testclient import TestClient

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
    async def environment(env: str) -> str:
        if env == "broken":
            raise RuntimeError("on purpose")
        return env

    def observe(route: str, method: str, status: int, seconds: float) -> None:
        assert 0 <= seconds < 10
        seen.append((route, method, status))

    app.include_router(router)
    install_docs(app)
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), observe=observe))
    return TestClient(app)


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/envs/gsm8k", ("/envs/{env}", "GET", 200)),
        ("GET", "/envs/broken", ("/envs/{env}", "GET", 500)),
        ("DELETE", "/envs/gsm8k", ("/envs/{env}", "DELETE", 405)),
        ("INVENTED", "/envs/gsm8k", ("/envs/{env}", "other", 405)),
        ("GET", "/wp-admin.php", ("unmatched", "GET", 404)),
        ("GET", "/docs", ("/docs", "GET", 200)),
        ("GET", "/docs/assets/swagger-ui.css", ("unmatched", "GET", 200)),
    ],
)
def test_requests_are_told_by_template(
    client: TestClient, seen: Seen, method: str, path: str, told: tuple[str, str, int]
) -> None:
    client.request(method, path)
    assert seen == [told]
