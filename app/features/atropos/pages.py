"""The page of the queues that Atropos trainers take batches from."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from app.features.atropos.service import AtroposQueue
from app.http.viewer.rendering import FilterRoute, Renderer
from app.http.web.api_keys import CallerBounds, needs


def create_queues_router(queue: AtroposQueue, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)

    @router.get("/view/atropos")
    @needs("read", "handler")
    async def atropos(request: Request, bounds: CallerBounds) -> Response:
        shown = [one for one in await queue.explain_runs() if bounds.allows_run(one.state.run)]
        return renderer.render(request, "queues.html", {"queues": shown}, {"queues": shown})

    return router
