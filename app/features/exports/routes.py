"""`GET /export`: stored rollouts as training data."""

from collections.abc import Callable, Collection
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.features.exports.model import ExportRequest, ExportSummary, ExportSummaryRequest
from app.features.exports.service import (
    MEDIA_TYPES,
    LabelRows,
    stream_export,
    stream_labels,
    summarise_export,
    summarise_labels,
)
from app.features.exports.store import ExportStore
from app.http.web.api_keys import CallerBounds, needs
from app.http.web.openapi import document_problems
from app.http.web.routes import ApiRoute
from app.service.access import require_named
from app.service.catalogue import Catalogue
from app.service.runs import RunRegistry

NEWEST_GROUP: Final = "Newest-Group"
"""The header that says up to which group an export goes, for a summary of the same groups."""


def create_export_router(
    catalogue: Catalogue,
    runs: RunRegistry,
    exports: ExportStore,
    read_labels: Callable[[ExportRequest], LabelRows],
    *,
    not_for_training: Collection[str] = (),
) -> APIRouter:
    """`not_for_training` names judges whose scores are exported only on request."""
    router = APIRouter(tags=["records"], route_class=ApiRoute)
    files = {
        "description": "A file, streamed while it is read. docs/exports.md lists its columns.",
        "content": {media: {"schema": {"type": "string"}} for media in MEDIA_TYPES.values()},
    }

    @router.get(
        "/export",
        summary="Stored rollouts as training data",
        response_class=StreamingResponse,
        responses={200: files, **document_problems(401, 404, 422, 503)},
    )
    @needs("read", "handler")
    async def export(wanted: Annotated[ExportRequest, Query()], bounds: CallerBounds) -> StreamingResponse:
        require_named(bounds, wanted.run, wanted.environment)
        await _require_known_names(wanted)
        # before the response starts, so that an unavailable store is a 503
        last = await exports.get_newest_group_sequence()
        name = "-".join(["atropos", wanted.environment or "all", wanted.shape])
        pieces = (
            stream_labels(read_labels(wanted), wanted.format)
            if wanted.shape == "labels"
            else stream_export(exports, wanted, last, not_for_training)
        )
        return StreamingResponse(
            pieces,
            media_type=MEDIA_TYPES[wanted.format],
            headers={
                "Content-Disposition": f'attachment; filename="{name}.{wanted.format}"',
                NEWEST_GROUP: str(last),
            },
        )

    @router.get(
        "/export/summary",
        summary="How many rows an export holds, and how many completions it leaves out and why",
        responses=document_problems(401, 404, 422, 503),
    )
    @needs("read", "handler")
    async def summarise(wanted: Annotated[ExportSummaryRequest, Query()], bounds: CallerBounds) -> ExportSummary:
        require_named(bounds, wanted.run, wanted.environment)
        await _require_known_names(wanted)
        if wanted.shape == "labels":
            return await summarise_labels(read_labels(wanted))
        newest = await exports.get_newest_group_sequence()
        last = newest if wanted.newest_group is None else min(wanted.newest_group, newest)
        return await summarise_export(exports, wanted, last, not_for_training)

    async def _require_known_names(wanted: ExportRequest) -> None:
        """NotFound for an environment or a run that is not there: an empty file would hide a mistyped name."""
        if wanted.environment is not None:
            catalogue.require_known(wanted.environment, "query.env")
        if wanted.run is not None:
            await runs.require(wanted.run, field="query.run")

    return router
