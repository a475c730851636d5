"""Health and metrics for orchestrators and Prometheus."""

from collections.abc import Callable

from fastapi import APIRouter, Response

from app.domain.errors import StillStarting
from app.http.api.models import ServiceHealth, ServiceReadiness
from app.http.web.lazy_routes import LazyRoute
from app.http.web.openapi import document_problems
from app.ports.runtime import Clock
from app.service.gateway import Gateway

Exposition = Callable[[], tuple[bytes, str]]
"""The metrics and their content type."""


def create_health_router(
    gateway: Gateway, version: str, clock: Clock, exposition: Exposition, offline_judge: tuple[str, ...]
) -> APIRouter:
    """`offline_judge`: the environments that the offline judge scores by default."""
    router = APIRouter(tags=["health"], route_class=LazyRoute)

    @router.get("/livez", summary="Liveness: the process responds")
    async def livez() -> ServiceHealth:
        return ServiceHealth(status="ok", version=version, time=clock())

    @router.get(
        "/readyz",
        summary="Readiness: the store accepts writes and the environments are loaded",
        responses=document_problems(503),
    )
    async def readyz() -> ServiceReadiness:
        if not gateway.catalogue.ready:
            raise StillStarting("the environments' data is still loading")
        await gateway.health.check()
        return ServiceReadiness(status="ok", version=version, time=clock(), offline_judge=offline_judge)

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=Response, responses=document_problems(401))
    async def metrics() -> Response:
        body, content_type = exposition()
        return Response(body, media_type=content_type)

    return router
