"""Addresses of NeMo Gym's clients, which put a path behind a base URL and can carry no query."""

import re
from typing import Final
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX: Final = "/compat/nemo_gym"
_OPTIONS: Final = re.compile(rf"^({PREFIX}/[^/]+)/([^/]*=[^/]*)(/.*)$")
_ROLLOUT: Final = re.compile(rf"^({PREFIX}/[^/]+)/ng-rollout/[^/]+(/.*)$")


class OptionsInPath:
    """Takes the segment with options out of `/compat/nemo_gym/{env}/{options}/verify` and makes a query of it; drops
    `/ng-rollout/{id}`, which agents put before a path where they trace."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            scope = _rewrite(scope)
        await self._app(scope, receive, send)


def _rewrite(scope: Scope) -> Scope:
    path, query = scope["path"], scope.get("query_string", b"")
    if found := _OPTIONS.match(path):
        path = found[1] + found[3]
        query = b"&".join(filter(None, (quote(found[2], safe="=&+").encode(), query)))
    if found := _ROLLOUT.match(path):
        path = found[1] + found[2]
    return {**scope, "path": path, "raw_path": quote(path).encode(), "query_string": query}
