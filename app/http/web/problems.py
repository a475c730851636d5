"""Errors as problem documents (RFC 9457), and as pages for a person with a browser.

What came with a request is repeated by `app.domain.faults` alone, printable and short; a secret never is.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from html import escape
from http import HTTPStatus
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from app.domain.errors import GatewayError, StillStarting
from app.domain.faults import Fault, FieldPath, explain_faults, format_field_path, make_printable
from app.domain.values import Frozen, suggest

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 2000
MAX_ERRORS = 50

_log = structlog.get_logger(__name__)

CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    410: "gone",
    408: "request_timeout",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "too_many_requests",
    500: "internal_error",
    503: "unavailable",
}

PLAY = "/play/"
"""Below it are clients of chat completions."""
_NO_ROUTE = "No such path. `GET /envs` lists the environments, `/docs` lists the routes."
_PAGE = Template((Path(__file__).parent / "static" / "problem.html").read_text(encoding="utf-8"))


class FieldProblem(Frozen):
    """An error in one field. `field` is a path such as `body.groups[0].completions[1].text`."""

    field: str
    message: str


def _add_own_members(schema: dict[str, Any]) -> None:
    schema["properties"]["groups"] = {
        "description": "Of a score request alone, of which no group is accepted: why each is refused.",
        "type": "array",
        "items": {"type": "object"},
    }
    schema["properties"]["error"] = {
        "description": "Below /play alone: the same as clients of OpenAI's API read it.",
        "type": "object",
    }


class Problem(Frozen):
    """An error response (RFC 9457)."""

    model_config = ConfigDict(json_schema_extra=_add_own_members)

    type: str = "about:blank"
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["`body.groups[0].completions[1].text`: 5 was given; wanted is text"])
    instance: str = Field(examples=["/envs/npc_arena/score"])
    """The request's path."""
    request_id: str = Field(examples=["5f0c9f7be5d24f3a"])
    code: str = Field(examples=["invalid_request"])
    """A fixed code for programs."""
    errors: tuple[FieldProblem, ...] = ()


class ProblemResponse(Response):
    media_type = MEDIA_TYPE


class RefusedBody(HTTPException):
    """A body that was refused while it was read. FastAPI passes on only HTTP exceptions from there."""

    def __init__(self, status: int, detail: str, errors: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(status, detail)
        self.errors = errors


def build_problem_response(
    scope: Scope,
    status: int,
    detail: str,
    *,
    code: str | None = None,
    errors: tuple[FieldProblem, ...] = (),
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Response:
    """A problem document (RFC 9457); a page with the same words for a person with a browser. `more` are members that
    this kind of problem alone has."""
    problem = Problem(
        title=find_phrase(status),
        status=status,
        detail=detail,
        instance=make_printable(str(scope.get("path", ""))),
        request_id=str(scope.get("state", {}).get("request_id", "")),
        code=code or CODES.get(status, f"http_{status}"),
        errors=errors,
    )
    if _prefers_page(scope):
        return _build_page(scope, problem, headers)
    if problem.instance.startswith(PLAY):
        return ProblemResponse(_write_for_chat_clients(problem), status_code=status, headers=headers)
    written = json.dumps({**problem.model_dump(mode="json"), **more}) if more else problem.model_dump_json()
    return ProblemResponse(written, status_code=status, headers=headers)


def _write_for_chat_clients(problem: Problem) -> str:
    """With the one member that they read. Of a type at which none of them speaks of credits."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    param = problem.errors[0].field if problem.errors else None
    error = {"message": problem.detail, "type": kind, "code": problem.code, "param": param}
    return json.dumps({**problem.model_dump(mode="json"), "error": error})


def _prefers_page(scope: Scope) -> bool:
    """Whether a browser shows the response to a person: programs do not accept HTML before anything else."""
    if scope.get("method") not in {"GET", "HEAD"}:
        return False
    return Headers(scope=scope).get("accept", "").lower().startswith("text/html")


def _build_page(scope: Scope, problem: Problem, headers: Mapping[str, str] | None) -> Response:
    shown = {
        "root": str(scope.get("root_path", "")).rstrip("/"),
        "title": problem.title,
        "detail": problem.detail,
        "status": str(problem.status),
        "request_id": problem.request_id,
    }
    page = _PAGE.substitute({name: escape(value) for name, value in shown.items()})
    return HTMLResponse(page.encode("utf-8", "backslashreplace"), status_code=problem.status, headers=headers)


def install_problems(app: FastAPI, environments: Collection[str] = ()) -> None:
    """`environments` have routes under `/envs`: an address with another name is told the nearest one."""

    async def handle_http_exception(request: Request, error: Exception) -> Response:
        return _handle_http_exception(request, error, environments)

    app.add_exception_handler(GatewayError, _handle_gateway_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_exception)


def find_phrase(status: int) -> str:
    names = {413: "Content Too Large", 422: "Unprocessable Content"}  # as RFC 9110 calls them; Python 3.11 does not
    return names.get(status) or (HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error")


async def _handle_gateway_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)  # noqa: S101 - registered for this class
    detail = make_printable(error.sentence, MAX_DETAIL)
    if isinstance(error, StillStarting):
        _log.debug("still_starting", detail=detail)
    elif error.status >= 500:
        _log.warning("request_failed", code=error.code, detail=detail)
    return build_problem_response(
        request.scope,
        error.status,
        detail,
        code=error.code,
        errors=()
        if error.field is None
        else (FieldProblem(field=make_printable(error.field), message=make_printable(error.detail, MAX_DETAIL)),),
        headers=None if error.retry_after is None else {"Retry-After": str(error.retry_after)},
    )


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    faults = error.errors()
    if isinstance(error.body, bytes):  # FastAPI parses a body exactly when its type says JSON
        return build_problem_response(
            request.scope, 415, "Send the body as JSON, with `Content-Type: application/json`."
        )
    if any(item["type"] == "json_invalid" for item in faults):
        return build_problem_response(request.scope, 400, "The body is not JSON.")
    detail, errors = describe_errors(explain_request(faults, request.scope.get("route")))
    return build_problem_response(request.scope, 422, detail, errors=errors)


def explain_request(faults: Sequence[Mapping[str, Any]], route: object = None) -> tuple[Fault, ...]:
    """What FastAPI found wrong in a request to the route."""
    kinds = _list_kinds(getattr(route, "dependant", None))
    # Those of one parameter together: only so many of a list are put into words.
    found: defaultdict[tuple[FieldPath, str], list[Mapping[str, Any]]] = defaultdict(list)
    for item in faults:
        location = tuple(item["loc"])
        base = next((location[:depth] for depth in (2, 1) if location[:depth] in kinds), ())
        found[base, _NOUNS.get(location[0], "field")].append({**item, "loc": location[len(base) :]})
    return tuple(
        fault
        for (base, noun), items in found.items()
        for fault in explain_faults(items, kinds.get(base), base=base, noun=noun)
    )


_NOUNS: Final[Mapping[str | int, str]] = MappingProxyType({"query": "parameter"})


def _list_kinds(dependant: Dependant | None) -> dict[FieldPath, object]:
    """What a route's parameters are, by the beginning of the places that FastAPI names for them."""
    if dependant is None:
        return {}
    kinds: dict[FieldPath, object] = {}
    named = {"query": dependant.query_params, "path": dependant.path_params, "header": dependant.header_params}
    for place, fields in named.items():
        for field in fields:
            is_model = isinstance(field.field_info.annotation, type) and issubclass(
                field.field_info.annotation, BaseModel
            )
            kinds[(place,) if is_model else (place, field.alias)] = field.field_info
    if len(dependant.body_params) == 1:
        kinds["body",] = dependant.body_params[0].field_info
    for one in dependant.dependencies:
        kinds = _list_kinds(one) | kinds
    return kinds


def describe_errors(faults: Sequence[Fault]) -> tuple[str, tuple[FieldProblem, ...]]:
    """The summary, and what is wrong with each field."""
    errors = tuple(
        FieldProblem(field=format_field_path(fault.location), message=fault.words) for fault in faults[:MAX_ERRORS]
    )
    return _summarise_errors(faults), errors


def _summarise_errors(faults: Sequence[Fault]) -> str:
    first = faults[0].sentence if faults else "The request is not valid"
    return first if len(faults) < 2 else f"{first} (and {len(faults) - 1} more)"


def _explain_missing_route(request: Request, environments: Collection[str]) -> str:
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    first, _, rest = path.strip("/").partition("/")
    name = rest.partition("/")[0]
    if first == "view":
        paths = [str(getattr(route, "path", "")).strip("/").split("/") for route in request.app.routes]
        pages = {parts[1] for parts in paths if parts[0] == "view" and len(parts) == 2}
        return f"There is no page {make_printable(name)!r} under /view{suggest(name, pages) or '.'}"
    if first != "envs" or not name or not environments or name in environments:
        return _NO_ROUTE
    near = suggest(name, environments) or "."
    return f"There is no environment {make_printable(name)!r}{near} `GET /envs` lists them."


def _handle_http_exception(request: Request, error: Exception, environments: Collection[str]) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    if error.status_code in {204, 304}:  # these have no body
        return Response(status_code=error.status_code, headers=error.headers)
    return build_problem_response(
        request.scope,
        error.status_code,
        _explain_missing_route(request, environments)
        if (error.status_code, error.detail) == (404, "Not Found")
        else make_printable(str(error.detail)),
        errors=error.errors if isinstance(error, RefusedBody) else (),
        headers=error.headers,
    )
