"""Additions to the OpenAPI document: the schema of problems, and the API key."""

from collections.abc import Callable

from fastapi import FastAPI
from pydantic import JsonValue
from pydantic.json_schema import models_json_schema

from app.http.web.problems import Problem

Document = dict[str, JsonValue]

_SECURITY_SCHEMES: Document = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The API key."},
    "basic": {"type": "http", "scheme": "basic", "description": "Any user name; the API key as password."},
}

_SHOWN_LAST = "/compat/"
"""Path prefix of the interfaces for other trainers. They are registered first because they are polled most."""


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
    if keys_needed:
        components["securitySchemes"] = _SECURITY_SCHEMES
        document["security"] = [{"bearer": []}, {"basic": []}]
        _exempt_open_paths(document, open_paths)


def _exempt_open_paths(document: Document, open_paths: frozenset[str]) -> None:
    paths = document.get("paths")
    for path, operations in paths.items() if isinstance(paths, dict) else ():
        for operation in operations.values() if path in open_paths and isinstance(operations, dict) else ():
            if isinstance(operation, dict):
                operation["security"] = []
