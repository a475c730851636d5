"""Answers with a page, or with what is on it as JSON.

Pages are autoescaped, without undefined values and invisible characters, and always encodable. What a form sends back
and nobody reads on the page is `as_sent`. Every page has a twin at the same address: JSON
for `?format=json` and for clients that ask for `application/json` before HTML.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import escape
from pydantic_core import to_jsonable_python
from starlette.responses import HTMLResponse, Response

from app.domain.errors import NotFound
from app.http.viewer.group_filters import FilterWords
from app.http.web.api_keys import COOKIE, find_caller
from app.toolkit.charts import CHART_TEMPLATES
from app.toolkit.display import (
    escape_invisible,
    finalize,
    format_number,
    format_percent,
    format_signed,
    format_time,
    scale_heat,
)

_BY_ACCEPT: Final = {"Vary": "Accept"}


class Renderer:
    def __init__(self, templates: Path, assets_version: str) -> None:
        self._environment = Environment(
            loader=FileSystemLoader([templates, CHART_TEMPLATES]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=finalize,
        )
        self._environment.filters.update(
            moment=format_time,
            number=format_number,
            percent=format_percent,
            signed=format_signed,
            heat=scale_heat,
            as_sent=escape,
            spelled_out=escape_invisible,
        )
        self._environment.globals.update(query=_build_query, link=build_link)
        self._assets = f"/view/assets/{assets_version}"

    def render(
        self, request: Request, template: str, values: Mapping[str, object], data: object, status: int = 200
    ) -> Response:
        """The page, or its twin: `data`, which may hold models, data classes and plain values."""
        if wants_json(request):
            return build_json(data, status)
        return self.render_page(request, template, values, status)

    def render_page(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> HTMLResponse:
        """Renders a page. `root` and `assets` are URL prefixes, because the service may run below a path."""
        root = str(request.scope.get("root_path", "")).rstrip("/")
        caller = find_caller(request.scope)
        shared = {
            "root": root,
            "assets": root + self._assets,
            "base": str(request.base_url).rstrip("/"),
            "caller": None if caller is None else caller.name,
            "by_cookie": COOKIE in request.cookies,
        }
        html = self._fill(self._environment.get_template(template), {**shared, **values})
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), status_code=status, headers=_BY_ACCEPT)

    def _fill(self, template: Template, values: dict[str, object]) -> str:
        """As `Template.render`. But macros are variables of the context that they refer to, so it would keep all that
        is on the page until somebody looked for cycles."""
        context = template.new_context(values)
        try:
            return "".join(template.root_render_func(context))
        except Exception:
            self._environment.handle_exception()
        finally:
            context.vars.clear()

    def render_missing(self, request: Request, kind: str, wanted: str, path: str, way: str, near: str = "") -> Response:
        """404 as a page, with a link to `path` in the words of `way`. Its twin is a problem document (NotFound)."""
        if wants_json(request):
            raise NotFound(f"there is no {kind} {escape_invisible(wanted[:100])}{near}")
        values = {"kind": kind, "wanted": wanted[:100], "near": near, "path": path, "all": way}
        return self.render_page(request, "missing.html", values, status=404)


def wants_json(request: Request) -> bool:
    """`?format=json`, or JSON before HTML in `Accept`. Whoever accepts anything gets the page."""
    if (told := request.query_params.get("format")) is not None:
        return told == "json"
    accepted = request.headers.get("accept", "").lower()
    asked, page = accepted.find("application/json"), accepted.find("text/html")
    return asked >= 0 and (page < 0 or asked < page)


def build_json(data: object, status: int = 200) -> Response:
    """In ASCII, so that lone surrogates pass; numbers that JSON does not have are null."""
    plain = to_jsonable_python(data, inf_nan_mode="null")
    return Response(json.dumps(plain, allow_nan=False), status, media_type="application/json", headers=_BY_ACCEPT)


def build_link(path: str, **named: object) -> str:
    """`path` with those of `named` that are given; lists repeat their name."""
    given = {name: value for name, value in named.items() if value not in (None, "", (), [])}
    return f"{path}?{urlencode(given, doseq=True, errors='replace')}" if given else path


def _build_query(words: FilterWords, **more: object) -> str:
    """The filter as a query string with its question mark, for links."""
    return build_link("", **{**words.list_given(), **more})
