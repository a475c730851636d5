"""`atropos-envs tournament`: options, entry point and tables."""

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.cli.campaigns import CampaignOutcome, check_run_name, tell_outcome
from app.cli.policies import (
    CONNECTIONS,
    COST_AND_CHECKS,
    GATEWAY_SECONDS,
    GatewayKey,
    GatewayUrl,
)
from app.cli.tournament.contestants import TournamentOptions
from app.cli.tournament.session import REPORT, TournamentSession
from app.domain.errors import UserError
from app.evaluation.duels import PairRow, StandingRow, TournamentReport
from app.terminal.client import find_gateway_url, open_gateway
from app.terminal.completion import complete_environment, complete_judge, complete_run
from app.terminal.consoles import (
    AsJson,
    confirm_cost,
    errors,
    format_figure,
    format_interval,
    output_console,
    print_json,
    stop_on_errors,
)
from app.toolkit.texts import escape_invisible


def tournament(
    judge: Annotated[
        str,
        typer.Option(help="Judge, of another model than those that scored the runs.", autocompletion=complete_judge),
    ],
    contestants: Annotated[
        list[str],
        typer.Argument(help="Folders of evaluations, or runs: my-run, my-run@120, my-run@100-120."),
    ],
    env: Annotated[
        str | None, typer.Option(help="Only tasks of this environment.", autocompletion=complete_environment)
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Maximum number of tasks.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**53 - 1, help="Seed for tasks, replies and intervals.")] = 0,
    run: Annotated[
        str,
        typer.Option(
            help="Run name to store the pairs under.", show_default="tournament-<judge>", autocompletion=complete_run
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder.", show_default="tournaments/<judge>-<contestants>"),
    ] = None,
    same_model: Annotated[
        bool,
        typer.Option(
            "--same-model",
            help="Allow a judge of a model that scored or wrote these replies.",
            rich_help_panel=COST_AND_CHECKS,
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the estimate and exit.", rich_help_panel=COST_AND_CHECKS)
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Skip the confirmation prompt.", rich_help_panel=COST_AND_CHECKS)
    ] = False,
    concurrency: Annotated[
        int,
        typer.Option(min=1, max=256, help="Pairs to judge at once.", rich_help_panel=CONNECTIONS),
    ] = 8,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to keep retrying a failing server.", rich_help_panel=CONNECTIONS)
    ] = 600.0,
    url: GatewayUrl = "",
    api_key: GatewayKey = "",
    as_json: AsJson = False,
) -> None:
    """Let a judge compare checkpoints' replies in pairs, and report the strength of each, also by character.

    The cost is shown first. To resume, repeat the command with the same --out."""
    url = url or find_gateway_url()
    with stop_on_errors(also=httpx.InvalidURL):
        if len(contestants) < 2:
            raise UserError("a tournament needs two contestants or more")
        folder = out or Path("tournaments") / _name_folder(judge, contestants)
        session = TournamentSession(
            options=TournamentOptions(
                contestants=tuple(contestants),
                judge=judge,
                environment=env,
                tasks=tasks,
                seed=seed,
                run=check_run_name(run or f"tournament-{judge}"[:64]),
            ),
            out=folder,
            allows_same_model=same_model,
            concurrency=concurrency,
            patience_seconds=patience,
            gateway_url=url,
            console=errors,
            go_on=partial(confirm_cost, yes=yes),
        )
        outcome = asyncio.run(_hold(session, url, api_key, dry_run=dry_run))
        if outcome.report is not None and as_json:
            print_json(outcome.report)
        elif outcome.report is not None:
            output_console().print(build_tournament_summary(outcome.report))
    tell_outcome(outcome, folder / f"{REPORT}.html")


async def _hold(
    session: TournamentSession, url: str, api_key: str, *, dry_run: bool
) -> CampaignOutcome[TournamentReport]:
    async with open_gateway(url, api_key, GATEWAY_SECONDS) as gateway:
        return await (session.dry_run(gateway) if dry_run else session.hold(gateway))


def _name_folder(judge: str, contestants: list[str]) -> str:
    words = [judge, *(Path(contestant).name for contestant in contestants)]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("-.")[:120] or "tournament"


# Tables.


def build_tournament_summary(report: TournamentReport) -> RenderableType:
    """The notice is the first line."""
    parts: list[RenderableType] = [_say(report.notice)] if report.notice else []
    parts.append(_tabulate_standings(report.standings, f"judged by {report.setup.judge}: {report.tasks:,} tasks"))
    parts.append(_tabulate_pairs(report.pairs))
    parts += [
        _tabulate_standings(each.standings, f"{escape_invisible(each.label)}: {each.tasks:,} tasks")
        for each in report.labels
    ]
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
