"""Reports as self-contained HTML files without scripts; text that models wrote is escaped."""

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.domain.digests import canonical_json
from app.evaluation.comparison import Comparison
from app.evaluation.pictures import UNIT, around_zero, columns, curve, whisker
from app.evaluation.report import Report
from app.toolkit.display import PALETTE, day_and_time, excerpt, heat, number, signed, visible

_TEMPLATES: Final = Path(__file__).with_name("templates")
_TASKS_SHOWN: Final = 500


def _shown(value: object) -> object:
    """Makes invisible characters visible in every value of a page."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


_jinja = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_shown,
)
_jinja.filters.update(
    excerpt=excerpt,
    heat=heat,
    json=canonical_json,
    moment=day_and_time,
    number=number,
    p_value=_p_value,
    percent=_percent,
    signed=signed,
    whisker=whisker,
)


def html_of(document: Report | Comparison) -> str:
    """A whole HTML page without surrogates, for a file in UTF-8."""
    values = _of_report(document) if isinstance(document, Report) else _of_comparison(document)
    style = Markup(PALETTE + (_TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704  # a file of ours
    return _jinja.get_template(f"{document.kind}.html").render(style=style, **values)


def _of_report(report: Report) -> dict[str, object]:
    return {
        "report": report,
        "scale": UNIT,
        "columns": columns(report.histogram),
        "curve": curve(report.passes),
        "tasks": report.tasks[:_TASKS_SHOWN],
        "tasks_left_out": max(0, len(report.tasks) - _TASKS_SHOWN),
    }


def _of_comparison(comparison: Comparison) -> dict[str, object]:
    rows = (comparison.overall, *comparison.passes, *comparison.criteria, *comparison.labels)
    return {"comparison": comparison, "scale": around_zero(row.difference for row in rows)}
