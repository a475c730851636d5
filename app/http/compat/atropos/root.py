"""A run at the root of a listener of its own, for clients whose address is a host and a port."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.compat.atropos.addresses import PREFIX


class AtRoot:
    """What comes in at one of the ports in `runs` is meant for the Atropos run of that port, and sees nothing else."""

    def __init__(self, app: ASGIApp, runs: Mapping[int, str]) -> None:
        self._app = app
        self._prefixes = {port: f"{PREFIX}/{run}" for port, run in runs.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._prefixes.get((scope.get("server") or ("", 0))[1]) if scope["type"] == "http" else None
        if prefix is not None:
            raw = prefix.encode() + (scope.get("raw_path") or scope["path"].encode())
            scope = {**scope, "path": prefix + scope["path"], "raw_path": raw}
        await self._app(scope, receive, send)
