"""The two endpoints that receive groups, directly on ASGI.

They are called for every group that is trained on. FastAPI's overhead per call costs as much as parsing 100 kB of
numbers and is not needed here. The middleware still applies."""

from collections.abc import Callable, Sequence
from functools import partial

from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.domain.trajectories import PackedGroup
from app.http.compat.atropos.addresses import PREFIX, parse_run_name
from app.http.compat.atropos.decompression import NOT_GZIP, NotGzip, inflate, is_gzip
from app.http.compat.atropos.packing import read_group, read_groups
from app.http.compat.atropos.queue import AtroposQueue
from app.http.compat.atropos.wire import Received, ReceivedList


class GroupPostEndpoint:
    """`path` is the route template for request metrics."""

    def __init__(
        self,
        path: str,
        atropos_queue: AtroposQueue,
        read: Callable[[bytes], Sequence[PackedGroup]],
        reply: Callable[[int], BaseModel],
        limit: int,
    ) -> None:
        self.path = path
        self._atropos_queue = atropos_queue
        self._read = read
        self._reply = reply
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        run = parse_run_name(scope["path_params"].get("run"))
        body = await _receive_body(receive)
        if body is None:
            return
        read = partial(self._read_inflated, body) if is_gzip(Headers(scope=scope)) else partial(self._read, body)
        try:
            count = await self._atropos_queue.add_groups(run, read, len(body))
        except NotGzip:
            response: Response = PlainTextResponse(NOT_GZIP, status_code=400)
        else:
            response = Response(self._reply(count).model_dump_json(), media_type="application/json")
        await response(scope, receive, send)

    def _read_inflated(self, body: bytes) -> Sequence[PackedGroup]:
        return self._read(inflate(body, self._limit))


async def _receive_body(receive: Receive) -> bytes | None:
    """The whole body; None if the client disconnected before its end."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def create_post_routes(atropos_queue: AtroposQueue, limit: int) -> list[Route]:
    """Must be registered before other routes. `limit` applies to decompressed bodies."""
    return [
        Route(
            path, GroupPostEndpoint(path, atropos_queue, read, reply, limit), methods=["POST"], include_in_schema=False
        )
        for prefix in (PREFIX, PREFIX + "/{run}")
        for path, read, reply in (
            (f"{prefix}/scored_data", read_group, lambda _: Received()),
            (f"{prefix}/scored_data_list", read_groups, lambda count: ReceivedList(groups_processed=count)),
        )
    ]
