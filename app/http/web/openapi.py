"""Additions to the OpenAPI document: what a route answers with a problem, the schema of problems, and the API key."""

from collections.abc import Callable

from fastapi import FastAPI
from pydantic import JsonValue
from pydantic.json_schema import models_json_schema

from app.http.web.key_scopes import describe_scope
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

PROBLEM_RESPONSES: dict[int, dict[str, object]] = {
    status: {
        "description": f"{find_phrase(status)}. {meaning}",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, meaning in _MEANINGS.items()
}
"""By status."""


def document_problems(*statuses: int) -> dict[int | str, dict[str, object]]:
    """The `responses=` of a route in OpenAPI; without arguments, every documented status."""
    return {status: PROBLEM_RESPONSES[status] for status in statuses or PROBLEM_RESPONSES}


def install_openapi(app: FastAPI, *, keys_needed: bool, open_paths: frozenset[str]) -> None:
    """Completes the document when it is first requested."""
    original: Callable[[], Document] = app.openapi

    def complete_once() -> Document:
        known = app.openapi_schema is not None
        document = original()
        if not known:
            _complete_document(document, keys_needed, open_paths)
        return document

    # The documented way to extend the document is to replace this method.
    app.openapi = complete_once  # type: ignore[method-assign]


def _complete_document(document: Document, keys_needed: bool, open_paths: frozenset[str]) -> None:
    paths = document["paths"]
    assert isinstance(paths, dict)  # noqa: S101 - FastAPI builds it
    document["paths"] = dict(sorted(paths.items(), key=lambda item: item[0].startswith(_SHOWN_LAST)))
    components = document.setdefault("components", {})
    assert isinstance(components, dict)  # noqa: S101 - FastAPI builds it
    _, definitions = models_json_schema([(Problem, "serialization")], ref_template="#/components/schemas/{model}")
    schemas = components.setdefault("schemas", {})
    assert isinstance(schemas, dict)  # noqa: S101 - FastAPI builds it
    schemas.update(definitions["$defs"])
    _describe_scopes(document)
    if keys_needed:
        components["securitySchemes"] = _SECURITY_SCHEMES
        document["security"] = [{"bearer": []}, {"basic": []}]
        _exempt_open_paths(document, open_paths)


def _describe_scopes(document: Document) -> None:
    paths = document.get("paths")
    for path, operations in paths.items() if isinstance(paths, dict) else ():
        for method, operation in operations.items() if isinstance(operations, dict) else ():
            if isinstance(operation, dict) and (told := describe_scope(method, path)):
                operation["description"] = f"{operation.get('description', '')}\n\n{told}".strip()


def _exempt_open_paths(document: Document, open_paths: frozenset[str]) -> None:
    paths = document.get("paths")
    for path, operations in paths.items() if isinstance(paths, dict) else ():
        for operation in operations.values() if path in open_paths and isinstance(operations, dict) else ():
            if isinstance(operation, dict):
                operation["security"] = []
