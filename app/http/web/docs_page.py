"""Swagger UI at /docs, from our own files: no CDN, no inline script or style."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse
from starlette.staticfiles import StaticFiles

_STATIC = Path(__file__).parent / "static"
_PAGE = (_STATIC / "docs.html").read_text(encoding="utf-8")


def install_docs(app: FastAPI) -> None:
    """The app needs `docs_url=None, redoc_url=None`. The page uses relative URLs, so that it also works behind a path
    prefix."""
    app.add_api_route("/docs", _serve_docs, include_in_schema=False, response_class=HTMLResponse)
    app.add_api_route("/docs/start.js", _serve_start_script, include_in_schema=False, response_class=FileResponse)
    app.add_api_route("/favicon.svg", _serve_favicon, include_in_schema=False, response_class=FileResponse)
    app.mount("/docs/assets", StaticFiles(packages=[("fastapi_offline", "static")]), name="docs-assets")


async def _serve_docs() -> HTMLResponse:
    return HTMLResponse(_PAGE)


async def _serve_start_script() -> FileResponse:
    return FileResponse(_STATIC / "docs.js", media_type="text/javascript")


async def _serve_favicon() -> FileResponse:
    return FileResponse(_STATIC / "favicon.svg", media_type="image/svg+xml")
