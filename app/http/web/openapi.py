"""The OpenAPI document with problems, keys and scopes, and the page that shows it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse
from pydantic import JsonValue
from pydantic.json_schema import models_json_schema
from starlette.staticfiles import StaticFiles

from app.http.web.api_keys import declare_access, describe_scopes, needs
from app.http.web.problems import MEDIA_TYPE, Problem, find_phrase

Document = dict[str, JsonValue]

_SECURITY_SCHEMES: Document = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The API key."},
    "basic": {"type": "http", "scheme": "basic", "description": "Any user name; the API key as password."},
}

_SHOWN_LAST = "/compat/"
"""Path prefix of the interfaces for other trainers. They are registered first because they are polled most."""

_MEANINGS = {
    400: "The body is not JSON.",
    401: "An API key is required: `Authorization: Bearer <key>`, or HTTP Basic with the key as password.",
    403: "The key lacks the scope that the route needs, or the request's origin or host is not allowed.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "Conflicts with what is stored: a run's pinned options, an existing event, a world's parent, a closed world.",
    410: "The group was pruned, or a part of it that this needs is not kept: it is in the statistics alone.",
    413: "The body is too large.",
    415: "The body is not `application/json`, or is compressed.",
    422: "The request is invalid; `errors` names each field.",
    429: "The key has used up a quota; `Retry-After` says when it gets more.",
    500: "Internal error.",
    503: "Temporarily unavailable; `Retry-After` says when to retry.",
}

_PROBLEM_RESPONSES: dict[int, dict[str, object]] = {
    status: {
        "description": f"{find_phrase(status)}. {meaning}",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, meaning in _MEANINGS.items()
}
"""By status."""


def document_problems(*statuses: int) -> dict[int | str, dict[str, object]]:
    """The `responses=` of a route in OpenAPI; without arguments, every documented status."""
    return {status: _PROBLEM_RESPONSES[status] for status in statuses or _PROBLEM_RESPONSES}


def install_openapi(app: FastAPI, *, keys_needed: bool, open_paths: frozenset[str]) -> None:
    """Completes the document when it is first requested."""
    original: Callable[[], Document] = app.openapi

    def complete_once() -> Document:
        is_complete = app.openapi_schema is not None
        document = original()
        if not is_complete:
            _complete_document(document, describe_scopes(app.routes), keys_needed, open_paths)
        return document

    # The documented way to extend the document is to replace this method.
    app.openapi = complete_once  # type: ignore[method-assign]


def _complete_document(
    document: Document, scopes: Mapping[tuple[str, str], str], keys_needed: bool, open_paths: frozenset[str]
) -> None:
    paths = document["paths"]
    assert isinstance(paths, dict)  # noqa: S101 - FastAPI builds it
    document["paths"] = dict(sorted(paths.items(), key=lambda item: item[0].startswith(_SHOWN_LAST)))
    components = document.setdefault("components", {})
    assert isinstance(components, dict)  # noqa: S101 - FastAPI builds it
    _, definitions = models_json_schema([(Problem, "serialization")], ref_template="#/components/schemas/{model}")
    schemas = components.setdefault("schemas", {})
    assert isinstance(schemas, dict)  # noqa: S101 - FastAPI builds it
    schemas.update(definitions["$defs"])
    _describe_scopes(document, scopes)
    if keys_needed:
        components["securitySchemes"] = _SECURITY_SCHEMES
        document["security"] = [{"bearer": []}, {"basic": []}]
        _exempt_open_paths(document, open_paths)


def _describe_scopes(document: Document, scopes: Mapping[tuple[str, str], str]) -> None:
    paths = document.get("paths")
    for path, operations in paths.items() if isinstance(paths, dict) else ():
        for method, operation in operations.items() if isinstance(operations, dict) else ():
            if isinstance(operation, dict) and (needed := scopes.get((path, method))):
                operation["description"] = f"{operation.get('description', '')}\n\n{needed}".strip()


def _exempt_open_paths(document: Document, open_paths: frozenset[str]) -> None:
    paths = document.get("paths")
    for path, operations in paths.items() if isinstance(paths, dict) else ():
        for operation in operations.values() if path in open_paths and isinstance(operations, dict) else ():
            if isinstance(operation, dict):
                operation["security"] = []


# Swagger UI at /docs, from our own files: no CDN, no inline script or style.

_STATIC = Path(__file__).with_name("static")
_PAGE = (_STATIC / "docs.html").read_text(encoding="utf-8")


def install_docs(app: FastAPI) -> None:
    """The app needs `docs_url=None, redoc_url=None`. The page uses relative URLs, so that it also works behind a path
    prefix."""
    app.add_api_route("/docs", _serve_docs, include_in_schema=False, response_class=HTMLResponse)
    app.add_api_route("/docs/start.js", _serve_start_script, include_in_schema=False, response_class=FileResponse)
    app.add_api_route("/favicon.svg", _serve_favicon, include_in_schema=False, response_class=FileResponse)
    app.mount("/docs/assets", StaticFiles(packages=[("fastapi_offline", "static")]), name="docs-assets")
    declare_access(app.router.routes[-1:], "read", "shared")


@needs("read", "shared")
async def _serve_docs() -> HTMLResponse:
    return HTMLResponse(_PAGE)


@needs("read", "shared")
async def _serve_start_script() -> FileResponse:
    return FileResponse(_STATIC / "docs.js", media_type="text/javascript")


@needs("read", "shared")
async def _serve_favicon() -> FileResponse:
    return FileResponse(_STATIC / "favicon.svg", media_type="image/svg+xml")
