"""Hostile requests against a small app behind the real door: always a problem, never a 500."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field
from starlette.testclient import TestClient

from app.domain.errors import (
    Conflict,
    EnvironmentUnavailable,
    GatewayError,
    InvalidRequest,
    JudgeFailed,
    NotFound,
    TooLarge,
)
from app.domain.values import FiniteJson, FiniteNumber, Frozen, WholeNumber
from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.http.web.openapi import document_problems
from app.http.web.problems import Problem
from app.http.web.routes import JsonRoute
from tests.support.tables import read_table
from tests.support.tiers import examples

TABLE = read_table(__file__, "problems.yaml", tuple[tuple[str, str, int, str], ...])

MAX_BYTES = 200_000
JSON = {"Content-Type": "application/json"}
RAISED: dict[str, GatewayError] = {
    "not_found": NotFound("no such group"),
    "conflict": Conflict("the run is pinned"),
    "invalid_request": InvalidRequest("unknown judge", field="options.judges"),
    "too_large": TooLarge("too many completions"),
    "environment_unavailable": EnvironmentUnavailable("the data set cannot be read"),
    "internal_error": JudgeFailed("escaped"),
}


class Completion(Frozen):
    text: str


class Group(Frozen):
    completions: tuple[Completion, ...] = ()
    score: FiniteNumber = 0.0
    step: WholeNumber = 0
    extra: FiniteJson = None
    params: dict[str, FiniteJson] = {}
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("one",)


class Body(Frozen):
    groups: tuple[Group, ...]


def small_app() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    router = APIRouter(prefix="/envs", route_class=JsonRoute)

    @router.post("/{env}/score", responses=document_problems(400, 413, 415, 422))
    async def score(env: str, body: Body) -> Body:
        return body

    @router.get("/raise/{code}")
    async def raise_known(code: str, count: int = 0) -> str:
        raise RAISED[code]

    app.include_router(router)
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), max_body_bytes=MAX_BYTES))
    return app


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(small_app()) as client:
        yield client


def group(field: str, value: str) -> bytes:
    return f'{{"groups": [{{"{field}": {value}}}]}}'.encode()


def said(response: httpx2.Response) -> tuple[int, str, tuple[str, ...]]:
    """Status, code and fields of a problem, after checking that it is one."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate_json(response.content)
    assert problem.status == response.status_code
    assert problem.request_id == response.headers["x-request-id"] != ""
    return problem.status, problem.code, tuple(error.field for error in problem.errors)


any_text = st.text(st.characters(exclude_categories=()))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
any_group = st.fixed_dictionaries({}, optional=dict.fromkeys(Group.model_fields, any_json))
any_body = st.binary(max_size=200) | (any_json | st.fixed_dictionaries({"groups": st.lists(any_group)})).map(
    lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
)


@settings(max_examples=examples(300), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(any_body)
def test_any_body_gets_an_answer(client: TestClient, body: bytes) -> None:
    response = client.post("/envs/gsm8k/score", content=body, headers=JSON)
    answer = json.loads(response.content.decode("utf-8"), parse_constant=lambda name: 1 / 0)
    if response.status_code == 200:
        Body.model_validate(answer)
    else:
        assert said(response)[0] in {400, 422}


MALFORMED = read_table(__file__, "malformed.yaml", dict[str, Any])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        *((body.encode(), field) for field, bodies in MALFORMED.items() for body in bodies),
        (group("score", "9" * 400), "body.groups[0].score"),
        (group("extra", "[" * 40 + "]" * 40), "body.groups[0].extra"),
    ],
)
def test_a_malformed_value_is_422_and_names_its_field(client: TestClient, body: bytes, field: str) -> None:
    response = client.post("/envs/gsm8k/score", content=body, headers=JSON)
    assert said(response) == (422, "invalid_request", (field,))


def test_a_wrong_value_is_told_in_the_words_of_json_and_blamed_on_nothing_around_it(client: TestClient) -> None:
    details = {
        b"[]": "`body`: an empty list was given; wanted is an object of names and values",
        b'{"groups": 1}': "`body.groups`: 1 was given; wanted is a list",
        b'{"groups": [[]]}': "`body.groups[0]`: an empty list was given; wanted is an object of names and values",
        group("names", "[]"): "`body.groups[0].names`: an empty list was given; wanted is a list that is not empty",
        group("names", "[5]"): "`body.groups[0].names[0]`: 5 was given; wanted is text",
        b'{"groups": 1, "a": 2}': "`body.groups`: 1 was given; wanted is a list (and 1 more)",
        b'{"groups": 1, "a": 2, "b": 3}': "`body.groups`: 1 was given; wanted is a list (and 2 more)",
    }
    replies = {body: client.post("/envs/gsm8k/score", content=body, headers=JSON) for body in details}
    assert {body: reply.json()["detail"] for body, reply in replies.items()} == details


def test_a_mistyped_environment_is_named_with_the_nearest_one() -> None:
    app = FastAPI()
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), environments=("gsm8k", "npc_arena")))
    with TestClient(app) as client:
        found = [client.post(f"/envs/{name}/score").json()["detail"] for name in ("npc_aren", "chess", "gsm8k")]
    assert found == [
        "There is no environment 'npc_aren'; did you mean 'npc_arena'? `GET /envs` lists them.",
        "There is no environment 'chess'. `GET /envs` lists them.",
        "No such path. `GET /envs` lists the environments, `/docs` lists the routes.",
    ]


def test_a_person_with_a_browser_is_answered_with_a_page(client: TestClient) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    page = client.get("/envs/<b>nothing", headers=browser)
    program = client.get("/envs/nothing", headers={"Accept": "application/json, text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert ("<h1>Not Found</h1>" in page.text, "<b>" in page.text) == (True, False)
    assert program.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"groups": [', "The body is not JSON: Expecting value at line 1 column 13."),
        (b'{"a\x00": 1}', "The body is not JSON: Invalid control character at line 1 column 4."),
        (b"\xff\xfe", "The body is not UTF-8: byte 0."),
        (b'{"groups": "\xed\xa0\x80"}', "The body is not UTF-8: byte 12."),
        ('{"groups": []}'.encode("utf-16"), "The body is not UTF-8: byte 0."),
        (b"[" * 100_000, "The body is nested too deeply."),
        (b'{"a":' * 30_000 + b"1" + b"}" * 30_000, "The body is nested too deeply."),
        (group("step", "9" * 6000), "The body holds a number with too many digits."),
        (b"NaNNaN", "The body is not JSON: Extra data at line 1 column 4."),
    ],
)
def test_a_body_that_is_not_json_is_400(client: TestClient, body: bytes, detail: str) -> None:
    response = client.post("/envs/gsm8k/score", content=body, headers=JSON)
    assert (*said(response), response.json()["detail"]) == (400, "bad_request", (), detail)


def test_only_json_is_read_however_it_is_spelt(client: TestClient) -> None:
    wrong: list[dict[str, str]] = [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data"},
        {"Content-Type": ";;;"},
        JSON | {"Content-Encoding": "gzip"},
        JSON | {"Content-Encoding": "nonsense"},
    ]
    right = ("application/json", "application/json; charset=utf-8", "application/vnd.trainer+json")
    sent = [*wrong, *({"Content-Type": kind} for kind in right)]
    replies = [client.post("/envs/gsm8k/score", content=b'{"groups": []}', headers=headers) for headers in sent]
    assert [said(reply) for reply in replies[: len(wrong)]] == [(415, "unsupported_media_type", ())] * len(wrong)
    assert [(one.status_code, one.json()) for one in replies[len(wrong) :]] == [(200, {"groups": []})] * len(right)


def test_unusual_but_valid_text_comes_back_unharmed(client: TestClient) -> None:
    text = "\x00 \u2028 \u202e \U0001f600 </script> \ufffe"
    group = {"completions": [{"text": text}], "score": 0.5, "step": 1, "extra": 1e300, "params": {}, "names": ["one"]}
    sent = {"groups": [group]}
    for body in (json.dumps(sent), json.dumps(sent, ensure_ascii=False)):
        response = client.post("/envs/gsm8k/score", content=body.encode(), headers=JSON)
        assert (response.status_code, response.json()) == (200, sent)


def test_thousands_of_errors_make_a_short_problem(client: TestClient) -> None:
    """And of a large body not even all are looked for."""
    told = []
    for count in (5_000, 50_000):
        body = b'{"groups": [' + b"1," * count + b"1]}"
        problem = client.post("/envs/gsm8k/score", content=body, headers=JSON).json()
        told.append((len(problem["errors"]), f"(and {count} more)" in problem["detail"]))
    assert told == [(50, True), (1, False)]


def test_a_body_may_be_as_large_as_the_limit(client: TestClient) -> None:
    path = "/envs/gsm8k/score"
    announced = client.post(path, content=b" " * (MAX_BYTES + 1), headers=JSON)
    streamed = client.post(path, content=iter([b" " * 60_000] * 4), headers=JSON)
    exactly = client.post(path, content=b'{"groups": []}'.ljust(MAX_BYTES), headers=JSON)
    assert (said(announced), said(streamed), exactly.status_code) == (*[(413, "too_large", ())] * 2, 200)


def test_an_error_of_ours_carries_its_status_code_and_field(client: TestClient) -> None:
    told = {code: client.get(f"/envs/raise/{code}") for code in RAISED}
    assert {code: said(reply) for code, reply in told.items()} == {
        "not_found": (404, "not_found", ()),
        "conflict": (409, "conflict", ()),
        "invalid_request": (422, "invalid_request", ("options.judges",)),
        "too_large": (413, "too_large", ()),
        "environment_unavailable": (503, "environment_unavailable", ()),
        "internal_error": (500, "internal_error", ()),
    }
    assert {code: reply.json()["detail"] for code, reply in told.items()} == {
        code: error.detail for code, error in RAISED.items()
    }
    assert told["environment_unavailable"].headers["retry-after"] == "5"


def test_what_nobody_expected_is_a_500_without_internals(client: TestClient) -> None:
    response = client.get("/envs/raise/the-secret-key")
    assert (*said(response), "the-secret-key" in response.json()["detail"], "KeyError" in response.text) == (
        500,
        "internal_error",
        (),
        False,
        False,
    )


@pytest.mark.parametrize(("method", "path", "status", "code"), TABLE)
def test_what_the_framework_refuses_is_a_problem_too(
    client: TestClient, method: str, path: str, status: int, code: str
) -> None:
    reply = client.request(method, path)
    assert (*said(reply)[:2], reply.headers.get("allow")) == (status, code, "POST" if status == 405 else None)


def test_problems_are_declared_in_openapi(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    responses = document["paths"]["/envs/{env}/score"]["post"]["responses"]
    declared = {status: list(response["content"]) for status, response in responses.items() if status != "200"}
    assert declared == {key: ["application/problem+json"] for key in ["400", "413", "415", "422"]}
    assert {"Problem", "FieldProblem"} <= document["components"]["schemas"].keys()


def test_pages_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/nowhere", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
