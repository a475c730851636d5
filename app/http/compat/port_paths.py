"""Parts of the API at the root of ports of their own, for clients whose address is only a host and a port."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True)
class PortRoot:
    """What stands before each path of a port, and the query parameters of all its requests."""

    path: str
    query: Mapping[str, str | int | float] = field(default_factory=dict)


class PortPaths:
    """Routes requests on a port in `roots` to what is served there; nothing else is reachable on it."""

    def __init__(self, app: ASGIApp, roots: Mapping[int, PortRoot]) -> None:
        self._app = app
        self._roots = roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = self._roots.get((scope.get("server") or ("", 0))[1]) if scope["type"] == "http" else None
        await self._app(scope if root is None else _rewrite(scope, root), receive, send)


def _rewrite(scope: Scope, root: PortRoot) -> Scope:
    raw = root.path.encode() + (scope.get("raw_path") or scope["path"].encode())
    # The port's own come last, since of equal names the last one counts.
    query = b"&".join(filter(None, (scope.get("query_string", b""), urlencode(root.query).encode())))
    return {**scope, "path": root.path + scope["path"], "raw_path": raw, "query_string": query}
