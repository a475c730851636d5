"""`/runs/{run}/health` and the release of a held run."""

from fastapi import APIRouter

from app.domain.runs import Run
from app.features.health.model import RunHealth
from app.features.health.service import RunHealthService
from app.http.api.record_routes import RunName
from app.http.web.api_keys import needs
from app.http.web.openapi import document_problems
from app.http.web.routes import JsonRoute


def create_health_router(watch: RunHealthService) -> APIRouter:
    router = APIRouter(prefix="/runs", tags=["runs"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)

    @router.get("/{run}/health", summary="An audit of a run: figures, limits, alarms", responses=refusals)
    @needs("read", "run")
    async def run_health(run: RunName) -> RunHealth:
        return await watch.get_health(run)

    @router.post("/{run}/release", summary="Hand out tasks again after an alarm", responses=refusals)
    @needs("train", "run")
    async def release(run: RunName) -> Run:
        return await watch.release(run)

    return router
