"""Terminal tables of a tournament."""

from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.cli.consoles import format_figure, format_interval
from app.evaluation.tournament import LabelProfile, PairRow, StandingRow, TournamentReport
from app.toolkit.display import escape_invisible

_HERE: Final = {"better": "stronger than overall", "worse": "weaker than overall", "undecided": ""}


def build_tournament_summary(report: TournamentReport) -> RenderableType:
    """The notice is the first line."""
    parts: list[RenderableType] = [_say(report.notice)] if report.notice else []
    parts.append(_tabulate_standings(report.standings, f"judged by {report.setup.judge}: {report.tasks:,} tasks"))
    parts.append(_tabulate_pairs(report.pairs))
    parts += [_tabulate_profile(profile) for profile in report.profiles[:1]]
    if report.label_spread is not None:
        parts.append(_say(f"from label to label a strength differs by about {report.label_spread:.2f} (deviation)"))
    position = report.position
    parts.append(
        _say(
            f"{report.decided:,} of {report.planned:,} duels have an outcome, {report.by_gate:,} by a gate, "
            f"{report.same:,} of equal replies; {report.calls:,} calls, "
            f"{'an unknown price' if report.usd is None else f'{report.usd:.4f} US dollars'}"
        )
    )
    parts.append(
        _say(
            f"of {position.readings:,} readings the first shown won {position.first:,}, the second {position.second:,}"
            f"; in {position.contradicted:,} of {position.duels:,} duels the orders had different winners"
        )
    )
    parts += [_say(f"{row.duels:,} without an outcome: {row.reason}") for row in report.undecided]
    parts += [_say(f"{caution.code}: {caution.text}") for caution in report.cautions]
    return Group(*parts)


def _tabulate_standings(rows: tuple[StandingRow, ...], title: str) -> Table:
    table = Table(title=escape(title))
    for column in ("checkpoint", "strength", "95 %", "wins", "95 % ", "won", "tied", "lost"):
        table.add_column(column, justify="left" if column in ("checkpoint", "95 %", "95 % ") else "right")
    for row in rows:
        share = row.share
        table.add_row(
            escape(escape_invisible(row.name)),
            format_figure(row.strength.value, "+.2f"),
            format_interval(row.strength.low, row.strength.high, "+.2f"),
            format_figure(share.value, ".1%"),
            format_interval(share.low, share.high, ".1%"),
            *(str(count) for count in (row.won, row.tied, row.lost)),
        )
    return table


def _tabulate_profile(profile: LabelProfile) -> Table:
    table = Table(title=f"{escape(escape_invisible(profile.name))} against the others, by label")
    for column in ("label", "strength", "95 %", "wins", "95 % ", "tasks", "won", "tied", "lost", "here"):
        table.add_column(column, justify="left" if column in ("label", "95 %", "95 % ", "here") else "right")
    for row in profile.rows:
        standing = row.standing
        table.add_row(
            escape(escape_invisible(row.label)),
            format_figure(standing.strength.value, "+.2f"),
            format_interval(standing.strength.low, standing.strength.high, "+.2f"),
            format_figure(standing.share.value, ".1%"),
            format_interval(standing.share.low, standing.share.high, ".1%"),
            *(str(count) for count in (row.tasks, standing.won, standing.tied, standing.lost)),
            _HERE[row.verdict],
        )
    return table


def _tabulate_pairs(rows: tuple[PairRow, ...]) -> Table:
    table = Table(title="head to head")
    for column in ("one", "other", "won", "tied", "lost", "difference", "95 %", ""):
        table.add_column(column, justify="right" if column in ("won", "tied", "lost", "difference") else "left")
    for row in rows:
        table.add_row(
            *(escape(escape_invisible(name)) for name in (row.one, row.other)),
            *(str(count) for count in (row.won, row.tied, row.lost)),
            format_figure(row.difference.value, "+.2f"),
            format_interval(row.difference.low, row.difference.high, "+.2f"),
            row.verdict,
        )
    return table


def _say(words: str) -> Text:
    return Text(escape_invisible(words))
