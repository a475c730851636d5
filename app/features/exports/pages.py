"""What an export of a filter would hold, and the address, command and call that fetch it."""

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, get_args

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import JsonValue, ValidationError

from app.domain.faults import describe_faults
from app.domain.groups import FoundGroups, GroupCriteria, GroupFilter
from app.features.exports.model import LEFT_OUT_MEANINGS, ExportFormat, ExportRequest, ExportShape
from app.features.exports.service import ExportPreview, LabelRows, preview_export, preview_labels
from app.features.exports.store import ExportStore
from app.http.viewer.rendering import (
    FilterQuery,
    FilterRoute,
    Renderer,
    Word,
    build_filter,
    build_link,
    explain_environment,
    explain_unread,
)
from app.http.web.api_keys import CallerBounds, needs
from app.service.access import require_named
from app.store.views import GroupViews
from app.toolkit.texts import as_json, cut_excerpt

_PREVIEWED: Final = 100
"""Newest groups of the filter that are read for the preview."""
_PREVIEWED_LABELS: Final = 500
_VISIBLE_CHARACTERS: Final = 700
_SHAPES: Final[tuple[ExportShape, ...]] = get_args(ExportShape)
_FORMATS: Final[tuple[ExportFormat, ...]] = get_args(ExportFormat)
_SHARED: Final = {*GroupCriteria.model_fields, "judge"}
"""What filters and exports name alike."""


@dataclass(frozen=True)
class _ExportWords:
    """How the file is to be made, as sent. `file` is its format: `format=json` asks for the page's twin."""

    shape: Word = ""
    file: Word = ""
    threshold: Word = ""
    top_k: Word = ""
    margin: Word = ""
    pairs: Word = ""
    offline_judge: Word = ""
    private: Word = ""


_ExportOptions = Annotated[_ExportWords, Depends(_ExportWords)]


@dataclass(frozen=True)
class ExportPages:
    """Data for the page. `not_for_training` are judges whose scores are exported on request alone."""

    exports: ExportStore
    views: GroupViews
    read_labels: Callable[[ExportRequest], LabelRows]
    not_for_training: Collection[str] = ()
    environments: Sequence[str] = ()


def create_export_page_router(pages: ExportPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)

    @router.get("/view/export")
    @needs("read", "handler")
    async def export(
        request: Request,
        bounds: CallerBounds,
        words: FilterQuery,
        options: _ExportOptions,
    ) -> Response:
        where = build_filter(words, None, bounds)
        require_named(bounds, where.run, where.environment)
        sent, problem = _build_request(where, options)
        wanted = sent or ExportRequest()  # what the form shows
        found, preview = (None, None) if sent is None else await _preview(pages, where, sent)
        asked = wanted.write_query()
        data = {"request": sent, "problem": problem, "found": found, "preview": preview}
        shown = {
            "wanted": wanted,
            "words": words,
            "options": options,
            "given": words.list_given(),
            "unread": explain_unread(words),
            "no_environment": explain_environment(where.environment, pages.environments),
            "path": build_link("/export", **_write_query(asked)),
            "command": _write_command(asked),
            "rows": [cut_excerpt(as_json(row), _VISIBLE_CHARACTERS) for row in (preview.rows if preview else ())],
            "meanings": LEFT_OUT_MEANINGS,
            "shapes": _SHAPES,
            "formats": _FORMATS,
        }
        return renderer.render(request, "export.html", data | shown, data)

    return router


def _build_request(where: GroupFilter, options: _ExportWords) -> tuple[ExportRequest | None, str]:
    """The export of the filter, and what is wrong with the options, which then do not count. None where the filter
    itself is wrong: without it everything would be exported."""
    narrowed = where.model_dump(include=_SHARED, exclude_none=True)
    chosen = {name: word.strip() for name, word in asdict(options).items() if word.strip()}
    if "file" in chosen:
        chosen["format"] = chosen.pop("file")
    try:
        return ExportRequest.model_validate(narrowed | chosen), ""
    except ValidationError as error:
        problem = describe_faults(error, ExportRequest)
    try:
        return ExportRequest.model_validate(narrowed), problem
    except ValidationError:  # such as an end before the beginning
        return None, problem


async def _preview(
    pages: ExportPages, where: GroupFilter, wanted: ExportRequest
) -> tuple[FoundGroups | None, ExportPreview]:
    """Of the newest groups alone, whatever is asked. None for labels, which are not read by group."""
    if wanted.shape == "labels":
        return None, await preview_labels(pages.read_labels(wanted), _PREVIEWED_LABELS)
    newest = where.model_copy(update={"purpose": wanted.purpose, "judge": None, "limit": _PREVIEWED})
    matches = await pages.views.find_groups(newest)
    sequences = [one.sequence for one in matches.groups]
    after, last = (min(sequences) - 1, max(sequences)) if sequences else (0, 0)
    preview = await preview_export(pages.exports, wanted, after, last, pages.not_for_training)
    return matches.model_copy(update={"groups": ()}), preview


def _write_query(asked: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: "true" if value is True else value for name, value in asked.items()}


def _write_command(asked: Mapping[str, JsonValue]) -> str:
    """As the command line takes it: the format is the suffix of the file."""
    suffix = asked.get("format", "jsonl")
    words = ["atropos-envs", "export", f"{asked.get('shape', 'rollouts')}.{suffix}"]
    for name, value in asked.items():
        if name != "format":
            words += [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
