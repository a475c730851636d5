"""Renders templates: autoescaped, without undefined values, always encodable."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from app.domain.groups import GroupFilter
from app.http.web.api_keys import COOKIE, find_caller
from app.toolkit.display import escape_invisible, format_number, format_time, scale_heat


class Renderer:
    def __init__(self, templates: Path, assets_version: str) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(templates),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            moment=format_time, number=format_number, heat=scale_heat, visible=escape_invisible
        )
        self._environment.globals.update(query=_build_query)
        self._assets = f"/view/assets/{assets_version}"

    def render_page(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> HTMLResponse:
        """Renders a page. `root` and `assets` are URL prefixes, because the service may run below a path."""
        root = str(request.scope.get("root_path", "")).rstrip("/")
        caller = find_caller(request.scope)
        html = self._environment.get_template(template).render(
            root=root,
            assets=root + self._assets,
            base=str(request.base_url).rstrip("/"),
            caller=None if caller is None else caller.name,
            by_cookie=COOKIE in request.cookies,
            **values,
        )
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), status_code=status)


def _build_query(where: GroupFilter, **more: object) -> str:
    """The filter as a query string with its question mark, for links."""
    named = {"environment": where.environment, "run": where.run, "outcome": where.outcome, **more}
    given = {name: value for name, value in named.items() if value is not None}
    return f"?{urlencode(given, errors='replace')}" if given else ""
