"""Whatever is sent as a body, the answer is JSON and never a 500."""

import json

from fastapi import APIRouter, FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.domain.tasks import Completion
from app.domain.values import FiniteJson, Frozen
from app.http.web.api_keys import KeyRing
from app.http.web.bodies import JsonRoute
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.http.web.problems import Problem
from tests.support.tiers import examples


class Body(Frozen):
    completions: tuple[Completion, ...] = ()
    params: dict[str, FiniteJson] = {}


def small_app() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    router = APIRouter(route_class=JsonRoute)

    @router.post("/score")
    async def score(body: Body) -> Body:
        return body

    app.include_router(router)
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True)))
    return app


CLIENT = TestClient(small_app())

any_text = st.text(st.characters(exclude_categories=()))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
nearly_right = st.fixed_dictionaries(
    {},
    optional={
        "completions": st.lists(
            st.fixed_dictionaries(
                {},
                optional={"text": any_text | any_json, "extra": any_json, "logprobs": any_json, "messages": any_json},
            ),
            max_size=3,
        ),
        "params": st.dictionaries(any_text, any_json, max_size=3) | any_json,
    },
)
bodies = (
    st.binary(max_size=200)
    | nearly_right.map(lambda value: json.dumps(value).encode())
    | any_json.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)


@settings(max_examples=examples(300), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(bodies)
def test_any_body_gets_an_answer(body: bytes) -> None:
    response = CLIENT.post("/score", content=body, headers={"Content-Type": "application/json"})
    answer = json.loads(response.content.decode("utf-8"), parse_constant=lambda name: 1 / 0)
    if response.status_code == 200:
        Body.model_validate(answer)
    else:
        assert Problem.model_validate(answer).status == response.status_code
        assert response.status_code in {400, 422}
