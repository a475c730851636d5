"""What `atropos-envs rescore` prints at its end."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from app.cli.consoles import format_figure, output_console
from app.domain.values import FiniteNumber, Frozen
from app.evaluation.resampling import MeanEstimate
from app.evaluation.scoring_flips import FlipFigures, FlipReport
from app.toolkit.display import escape_invisible


class RescoreSummary(Frozen):
    """What `rescore --json` prints."""

    groups: int
    """Groups rescored."""
    unscored: int
    """Completions without a new reward."""
    calls: int
    """Calls of this command; those of an earlier one are in the scorings that it stored."""
    cost_usd: FiniteNumber
    report: FlipReport


def print_summary(found: RescoreSummary) -> None:
    console = output_console()
    console.print(_build_summary(found))
    for title, rows in (("by label", found.report.labels), ("by policy step", found.report.steps)):
        if rows:
            console.print(_build_table(title, rows))


def _build_summary(found: RescoreSummary) -> Table:
    report, overall = found.report, found.report.overall
    table = Table("against the original", "", title=f"{found.groups} groups rescored")
    table.add_row("pairs in the other order", _format_share(overall.flipped_share))
    table.add_row(
        "pairs: differed, flipped, tied now", f"{overall.pairs}, {overall.pairs_flipped}, {overall.pairs_tied}"
    )
    table.add_row("groups whose best completion changed", _format_share(overall.best_changed))
    table.add_row("advantages with the other sign", _format_share(overall.signs_flipped))
    table.add_row("shift of the mean reward", _format_estimate(overall.mean_shift))
    table.add_row("Spearman within groups", _format_estimate(overall.rank_correlation))
    table.add_row("Spearman of rewards", format_figure(report.spearman))
    table.add_row("mean absolute difference", format_figure(report.mean_difference))
    table.add_row("completions compared", str(report.completions))
    table.add_row("completions without a new score", str(found.unscored))
    table.add_row("judge calls, paid", f"{found.calls}, ${found.cost_usd:.4f}")
    return table


def _build_table(title: str, rows: Sequence[FlipFigures]) -> Table:
    table = Table(title=title)
    for name in ("", "groups", "pairs flipped", "best changed", "signs flipped", "mean shift", "Spearman"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        shares = (row.flipped_share, row.best_changed, row.signs_flipped)
        figures = (row.mean_shift, row.rank_correlation)
        table.add_row(
            escape(escape_invisible(row.name)),
            str(row.groups),
            *(_format_share(share) for share in shares),
            *(_format_estimate(figure) for figure in figures),
        )
    return table


def _format_estimate(figure: MeanEstimate) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "-"
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"


def _format_share(share: MeanEstimate) -> str:
    if share.value is None or share.low is None or share.high is None:
        return "-"
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"
