"""Pages of judges: all of them with their health and cost, and what is known of one.

Three sources say how far a judge can be trusted: spoilt replies whose order is known, replies that others have rated,
and labels of one's own. They stand side by side, each with its counts, intervals and date. Where one is missing stands
the command that measures it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from app.domain.judge_measurements import JudgeMeasurement, MeasurementKind, build_judge_command
from app.evaluation.judge_bench import FIGURE_NAMES, list_published_figures
from app.http.viewer.group_pages import OFFLINE_JUDGE
from app.http.viewer.rendering import JudgeEvidence, JudgeSource, Renderer, ViewerParts
from app.http.viewer.sentences import end_sentence, tell_judges, tell_measured
from app.http.web.api_keys import CallerBounds, needs
from app.http.web.routes import LazyRoute
from app.service.gateway import JudgeEntry, show_judges

FindMeasurements = Callable[[str], Awaitable[Sequence[tuple[JudgeMeasurement, bool]]]]
"""By judge, each with whether the judge is still the same."""


async def find_no_measurements(judge: str) -> Sequence[tuple[JudgeMeasurement, bool]]:
    return ()


@dataclass(frozen=True)
class JudgePages:
    """Data for the pages."""

    judges: Callable[[], Sequence[JudgeEntry]]
    measurements: FindMeasurements
    parts: ViewerParts


def create_judge_pages_router(pages: JudgePages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/judges", include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute
    )

    @router.get("")
    @needs("read", "handler")
    async def judge_list(request: Request, bounds: CallerBounds) -> Response:
        listed = show_judges(pages.judges(), bounds)
        shown = {"judges": listed, "offline": OFFLINE_JUDGE, "says": tell_judges(listed, OFFLINE_JUDGE)}
        return renderer.render(request, "judges.html", shown, {"judges": listed})

    @router.get("/{judge}")
    @needs("read", "handler")
    async def one_judge(request: Request, judge: str, bounds: CallerBounds) -> Response:
        entry = next((one for one in show_judges(pages.judges(), bounds) if one.name == judge), None)
        if entry is None:
            return renderer.render_missing(request, "judge", judge, "/view/judges", "Show every judge.")
        measured = await pages.measurements(judge)
        sources = [_build_source(kind, entry, measured) for kind in _TITLES]
        if bounds.is_open:  # labels are of all runs
            sources += [await show(judge) for show in pages.parts.show_judge]
        known = [source.title for source in sources if any(one.figures for one in source.evidence)]
        missing = [source.title for source in sources if source.title not in known]
        data = {"judge": entry, "sources": sources}
        shown = {"offline": OFFLINE_JUDGE, "says": tell_measured(known, missing)}
        return renderer.render(request, "judge.html", data | shown, data)

    return router


_TITLES: Final[dict[MeasurementKind, tuple[str, str]]] = {
    "check": ("Spoilt replies", "Good replies of the characters beside spoilt ones: does the judge see the fault?"),
    "bench": ("Public data", "Replies that others have rated: does the judge agree with them?"),
}
"""Title, and the question that the source answers."""


def _build_source(
    kind: MeasurementKind, judge: JudgeEntry, measured: Sequence[tuple[JudgeMeasurement, bool]]
) -> JudgeSource:
    title, question = _TITLES[kind]
    options = {"labels": "FILE"} if kind == "bench" else {}
    return JudgeSource(
        title=title,
        question=question,
        evidence=[_build_evidence(one, is_current=current) for one, current in measured if one.kind == kind],
        command=build_judge_command(kind, judge.name, options),
    )


def _build_evidence(measured: JudgeMeasurement, *, is_current: bool) -> JudgeEvidence:
    subject = f"rubric {measured.rubric}" if measured.rubric else f"rows of the form {measured.form}"
    changed = "" if is_current else f"measured of {measured.model} before the judge was changed"
    return JudgeEvidence(
        told=end_sentence("; ".join(filter(None, (measured.verdict, subject, changed)))),
        figures=measured.figures,
        command=measured.command,
        measured_at=measured.measured_at,
        published=[
            f"{one.judge}: {one.value:.3f} ({FIGURE_NAMES.get(one.figure, one.figure)}, {one.data}; {one.known} from "
            f"{one.source}, {one.date})"
            for one in list_published_figures(measured.form)
        ],
    )
