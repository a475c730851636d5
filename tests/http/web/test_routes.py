"""Routes of our own kinds answer and are documented as FastAPI's own, whatever is wrong with a request."""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.metadata import version
from typing import Annotated

import pytest
from fastapi import APIRouter, FastAPI, Header, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, JsonValue
from starlette.testclient import TestClient

from app.domain.access import KeyBounds
from app.domain.errors import Conflict
from app.domain.values import FiniteNumber, Frozen
from app.http.web.api_keys import KeyRing, declare_access
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.http.web.routes import TESTED_VERSIONS, DirectRoute, JsonRoute, LazyRoute, install_routing
from tests.support.tables import read_table


class Tables(Frozen):
    direct: tuple[tuple[str, str, bytes, dict[str, str]], ...]
    lazy: tuple[tuple[str, str, JsonValue], ...]


TABLES = read_table(__file__, "routes.yaml", Tables)


class Parcel(Frozen):
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    weight: FiniteNumber = 0.0


class Receipt(Frozen):
    said: str
    number: Annotated[float, Field(alias="weight")]


async def allow_group(bounds: KeyBounds, group_id: str) -> None:
    pass


def create_service(kind: type[JsonRoute]) -> TestClient:
    router = APIRouter(prefix="/parcels", route_class=kind)
    key = Header(alias="Idempotency-Key", min_length=2)

    @router.post("/send")
    async def send(request: Parcel, client: Request, key: Annotated[str | None, key] = None) -> Receipt:
        if request.weight > 100:
            raise Conflict("too heavy", field="weight")
        return Receipt.model_validate({"said": f"{request.names} {key} {client.method}", "weight": request.weight})

    service = FastAPI(docs_url=None, redoc_url=None)
    service.router.routes.extend(router.routes)
    install_middleware(service, MiddlewareOptions(KeyRing((), anonymous=True)))
    declare_access(service.router.routes, "read", "shared")
    install_routing(service.router, allow_group)
    return TestClient(service, raise_server_exceptions=False)


def test_all_of_this_was_tried_with_the_versions_that_are_installed() -> None:
    """Look at what changed in them where it says otherwise, and at whether what is here still gains something."""
    assert {name: version(name) for name in TESTED_VERSIONS} == TESTED_VERSIONS


DIRECT, USUAL = create_service(DirectRoute), create_service(JsonRoute)


def answer(client: TestClient, method: str, path: str, content: bytes, headers: dict[str, str]) -> tuple[object, ...]:
    reply = client.request(method, path, content=content, headers={**headers, "X-Request-ID": "same"})
    return reply.status_code, sorted(reply.headers.items()), reply.content


@pytest.mark.parametrize(("method", "path", "content", "headers"), TABLES.direct)
def test_a_direct_route_answers_as_others_do(method: str, path: str, content: bytes, headers: dict[str, str]) -> None:
    assert answer(DIRECT, method, path, content, headers) == answer(USUAL, method, path, content, headers)


def test_it_is_documented_as_others_are() -> None:
    assert DIRECT.get("/openapi.json").json() == USUAL.get("/openapi.json").json()


class Order(BaseModel):
    count: int


def create_shop(kind: type[APIRoute]) -> FastAPI:
    router = APIRouter(prefix="/shop", tags=["shop"], route_class=kind)

    @router.post("/orders/{name}", status_code=201, summary="Order")
    async def order(name: str, order: Order, gift: bool = False) -> dict[str, int]:
        return {name: order.count + gift}

    @router.get("/hidden", include_in_schema=False)
    async def hidden() -> str:
        return "here"

    service = FastAPI()
    service.router.routes.extend(router.routes)
    return service


def list_built(service: FastAPI) -> list[str]:
    return [one.path for one in service.router.routes if isinstance(one, LazyRoute) and "dependant" in vars(one)]


def test_only_what_is_asked_for_is_built() -> None:
    service = create_shop(LazyRoute)
    before = list_built(service)
    status = TestClient(service).get("/shop/hidden").status_code
    assert (before, status, list_built(service)) == ([], 200, ["/shop/hidden"])


@pytest.mark.parametrize(("method", "path", "body"), TABLES.lazy)
def test_a_lazy_route_answers_as_others_do(method: str, path: str, body: object) -> None:
    lazy, usual = (TestClient(create_shop(kind)).request(method, path, json=body) for kind in (LazyRoute, APIRoute))
    assert (lazy.status_code, lazy.content, lazy.headers) == (usual.status_code, usual.content, usual.headers)


def test_a_name_that_no_route_has_is_missing() -> None:
    (route, *_) = (one for one in create_shop(LazyRoute).router.routes if isinstance(one, LazyRoute))
    assert (hasattr(route, "colour"), route.dependant.call is route.endpoint) == (False, True)


def make_endpoint(said: str) -> Callable[[], Awaitable[str]]:
    async def answer() -> str:
        return said

    return answer


def create_town() -> FastAPI:
    """With a path that several routes match, one that begins with anything, and one below which is another app."""
    below, service = FastAPI(), FastAPI()
    below.add_api_route("/x", make_endpoint("below"))
    for path in ("/mill", "/mill/{door}", "/mill/back", "/{street}/3", "/inn/", "/inn/{room}/bed"):
        for method in ("GET", "POST") if path == "/mill" else ("GET",):
            service.add_api_route(path, make_endpoint(path), methods=[method])
    service.mount("/below", below)
    declare_access(service.router.routes, "read", "shared")
    return service


def find_endpoint(service: FastAPI, method: str, path: str) -> tuple[int, str | None, str | None, str]:
    reply = TestClient(service).request(method, path, follow_redirects=False)
    return reply.status_code, reply.headers.get("allow"), reply.headers.get("location"), reply.text


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_the_index_of_routes_changes_no_answer(method: str) -> None:
    paths = "/ /below /below/x /mill /mill/ /mill/back /mill/3 /high/3 /high/4 /inn /inn/ /inn/2/bed /inn/2/bed/"
    usual, indexed = create_town(), create_town()
    install_routing(indexed.router, allow_group)
    told = [(path, find_endpoint(indexed, method, path)) for path in paths.split()]
    assert told == [(path, find_endpoint(usual, method, path)) for path in paths.split()]


BEGUN, GOING = threading.Event(), threading.Event()


def pause() -> type:
    BEGUN.set()
    GOING.wait()
    return dict


def test_a_route_that_one_thread_builds_is_whole_for_another() -> None:
    async def answer() -> object:
        return {}

    answer.__annotations__["return"] = "pause()"  # which is looked up when the route is built
    route = LazyRoute("/", answer)
    with ThreadPoolExecutor(2) as threads:
        building = threads.submit(route.build)
        BEGUN.wait()
        looking = threads.submit(lambda: route.app)
        wait({looking}, timeout=0.05)
        GOING.set()
        building.result()
        assert callable(looking.result())
