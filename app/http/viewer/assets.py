"""The pages' style sheet and script, read once and served under a URL that changes with their content."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Response

from app.domain.errors import NotFound
from app.toolkit.charts import CHART_STYLE
from app.toolkit.display import PALETTE

_TYPES = {".css": "text/css", ".js": "text/javascript"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_FOR_NOW = {"Cache-Control": "no-cache"}


@dataclass(frozen=True)
class Assets:
    router: APIRouter
    version: str


def load_assets(folder: Path) -> Assets:
    files = {path.name: _read(path) for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
    current = hashlib.sha256(b"".join(files.values())).hexdigest()[:12]
    router = APIRouter(include_in_schema=False)

    @router.get("/view/assets/{version}/{name}")
    async def asset(version: str, name: str) -> Response:
        """Whatever version is asked for: a page may be another replica's, or one that knows no version."""
        if name not in files:
            raise NotFound("no such file")
        kept = _FOREVER if version == current else _FOR_NOW
        return Response(files[name], media_type=_TYPES[Path(name).suffix], headers=kept)

    return Assets(router, current)


def _read(path: Path) -> bytes:
    """A style sheet begins with the colours that all pages share, and with the charts."""
    palette = PALETTE + CHART_STYLE if path.suffix == ".css" else ""
    return palette.encode() + path.read_bytes()
