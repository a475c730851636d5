"""Reports as self-contained HTML files without scripts; text that models wrote is escaped."""

import math
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.domain.digests import canonical_json
from app.evaluation.charts import build_whisker, draw_pass_at_curve, fit_around_zero
from app.evaluation.comparison import Comparison
from app.evaluation.report import EvaluationReport
from app.evaluation.tournament import TournamentReport
from app.toolkit.bar_charts import build_reward_histogram
from app.toolkit.charts import CHART_STYLE, CHART_TEMPLATES, UNIT, Scale
from app.toolkit.display import (
    PALETTE,
    cut_excerpt,
    finalize,
    format_number,
    format_p_value,
    format_percent,
    format_signed,
    format_time,
    scale_heat,
)

_TEMPLATES: Final = Path(__file__).with_name("templates")
_TASKS_SHOWN: Final = 500


_jinja = Environment(
    loader=FileSystemLoader([_TEMPLATES, CHART_TEMPLATES]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=finalize,
)
_jinja.filters.update(
    excerpt=cut_excerpt,
    heat=scale_heat,
    json=canonical_json,
    moment=format_time,
    number=format_number,
    p_value=format_p_value,
    percent=format_percent,
    signed=format_signed,
    whisker=build_whisker,
)


Document = EvaluationReport | Comparison | TournamentReport


def render_html(document: Document) -> str:
    """A whole HTML page without surrogates, for a file in UTF-8."""
    values = _build_values(document)
    style = Markup(PALETTE + CHART_STYLE + (_TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704  # a file of ours
    return _jinja.get_template(f"{document.kind}.html").render(style=style, **values)


def _build_values(document: Document) -> dict[str, object]:
    match document:
        case EvaluationReport():
            return _build_report_values(document)
        case Comparison():
            return _build_comparison_values(document)
        case TournamentReport():
            return _build_tournament_values(document)


def _build_tournament_values(report: TournamentReport) -> dict[str, object]:
    rows = [row for table in (report.standings, *(each.standings for each in report.labels)) for row in table]
    reach = max(
        (abs(end) for row in rows for end in (row.strength.low, row.strength.high) if end is not None), default=1.0
    )
    return {
        "report": report,
        "scale": Scale(-max(1.0, math.ceil(reach)), max(1.0, math.ceil(reach))),
        "names": [contestant.name for contestant in report.setup.contestants],
        "duels": report.duels[:_TASKS_SHOWN],
        "duels_left_out": max(0, len(report.duels) - _TASKS_SHOWN),
    }


def _build_report_values(report: EvaluationReport) -> dict[str, object]:
    return {
        "report": report,
        "scale": UNIT,
        "columns": build_reward_histogram(report.histogram),
        "curve": draw_pass_at_curve(report.passes),
        "tasks": report.tasks[:_TASKS_SHOWN],
        "tasks_left_out": max(0, len(report.tasks) - _TASKS_SHOWN),
    }


def _build_comparison_values(comparison: Comparison) -> dict[str, object]:
    rows = (comparison.overall, *comparison.passes, *comparison.criteria, *comparison.labels)
    scale = fit_around_zero(row.difference for row in rows)
    return {"comparison": comparison, "scale": scale, "viewer": _link_comparison(comparison)}


def _link_comparison(comparison: Comparison) -> str:
    """The viewer's page of the same two; empty where they are not of one gateway."""
    one, other = comparison.before, comparison.after
    if not one.gateway_url or one.gateway_url != other.gateway_url:
        return ""
    told = {
        f"{side}{part}": value
        for side, setup in (("first", one), ("second", other))
        for part, value in (("", setup.run), ("_model", setup.model), ("_steps", setup.step))
        if value is not None
    }
    return f"{one.gateway_url}/view/compare?{urlencode({**told, 'environment': one.environment}, errors='replace')}"
