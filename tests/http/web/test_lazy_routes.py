"""Routes that are built when they are first needed answer and are documented as others are."""

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.testclient import TestClient

from app.http.web.bodies import LazyRoute


class Order(BaseModel):
    count: int


def create_service(kind: type[APIRoute]) -> FastAPI:
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
    service = create_service(LazyRoute)
    before = list_built(service)
    status = TestClient(service).get("/shop/hidden").status_code
    assert (before, status, list_built(service)) == ([], 200, ["/shop/hidden"])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/shop/orders/pear?gift=true", {"count": 2}),
        ("POST", "/shop/orders/pear", {"count": "many"}),
        ("GET", "/shop/orders/pear", None),
        ("GET", "/shop/hidden", None),
        ("GET", "/openapi.json", None),
    ],
)
def test_it_answers_as_others_do(method: str, path: str, body: object) -> None:
    lazy, usual = (TestClient(create_service(kind)).request(method, path, json=body) for kind in (LazyRoute, APIRoute))
    assert (lazy.status_code, lazy.content, lazy.headers) == (usual.status_code, usual.content, usual.headers)


def test_a_name_that_no_route_has_is_missing() -> None:
    (route, *_) = (one for one in create_service(LazyRoute).router.routes if isinstance(one, LazyRoute))
    assert (hasattr(route, "colour"), route.dependant.call is route.endpoint) == (False, True)
