"""Serves a run at the root of its own port, for clients whose address is only a host and a port."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.compat.atropos.addresses import PREFIX


class RunPorts:
    """Routes requests on a port in `runs` to that port's Atropos run; nothing else is reachable there."""

    def __init__(self, app: ASGIApp, runs: Mapping[int, str]) -> None:
        self._app = app
        self._prefixes = {port: f"{PREFIX}/{run}" for port, run in runs.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._prefixes.get((scope.get("server") or ("", 0))[1]) if scope["type"] == "http" else None
        if prefix is not None:
            raw = prefix.encode() + (scope.get("raw_path") or scope["path"].encode())
            scope = {**scope, "path": prefix + scope["path"], "raw_path": raw}
        await self._app(scope, receive, send)
