"""`atropos-envs tournament`: options, entry point and tables."""

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.cli.evaluate.attempts import EvaluationSpec
from app.cli.evaluate.session import EvaluationSession
from app.cli.policies import (
    CONNECTIONS,
    COST_AND_CHECKS,
    GATEWAY_SECONDS,
    TASKS,
    Endpoints,
    EnvironmentParams,
    ExtraFields,
    GatewayKey,
    GatewayUrl,
    InputPrice,
    MaxTokens,
    OutputPrice,
    PolicyKeyVariable,
    PolicyPrices,
    Temperature,
    TopP,
)
from app.cli.process.plan import check_run_name
from app.cli.tournament.contestants import FreshSetup, TournamentJournalSetup, parse_policies
from app.cli.tournament.session import REPORT, TournamentOutcome, TournamentSession
from app.domain.values import Split
from app.evaluation.duels import LabelProfile, PairRow, StandingRow, TournamentReport
from app.inference.policies import SamplingParameters
from app.terminal.client import GatewayClient, build_gateway_headers, find_gateway_url, read_policy_key
from app.terminal.consoles import (
    confirm_cost,
    errors,
    format_figure,
    format_interval,
    output_console,
    parse_object,
    parse_params,
    stop_on_errors,
    stop_to_resume,
    tell_report,
)
from app.toolkit.texts import escape_invisible


def tournament(
    judge: Annotated[str, typer.Option(help="Judge, of another model than those that scored the runs.")],
    contestants: Annotated[
        list[str] | None,
        typer.Argument(help="Folders of evaluations, or runs: my-run, my-run@120, my-run@100-120. The newest last."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Contestant without stored replies, as NAME=URL or NAME=URL,MODEL: its server is asked first, and the "
            "replies are stored under the run NAME. Repeat it for each; needs --env.",
            rich_help_panel=CONNECTIONS,
        ),
    ] = None,
    env: Annotated[str | None, typer.Option(help="Only tasks of this environment.")] = None,
    split: Annotated[
        Split, typer.Option(help="Of --policy: split whose tasks are asked.", rich_help_panel=TASKS)
    ] = "test",
    params: EnvironmentParams = "{}",
    tasks: Annotated[int, typer.Option(min=1, help="Maximum number of tasks.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**53 - 1, help="Seed for tasks, replies and intervals.")] = 0,
    run: Annotated[
        str, typer.Option(help="Run name to store the pairs under.", show_default="tournament-<judge>")
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
        typer.Option(
            min=1, max=256, help="Duels to judge, or replies to ask for, at once.", rich_help_panel=CONNECTIONS
        ),
    ] = 8,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to keep retrying a failing server.", rich_help_panel=CONNECTIONS)
    ] = 600.0,
    url: GatewayUrl = "",
    api_key: GatewayKey = "",
    api_key_env: PolicyKeyVariable = None,
    max_tokens: MaxTokens = 1_024,
    temperature: Temperature = 1.0,
    top_p: TopP = None,
    extra: ExtraFields = "{}",
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
) -> None:
    """Let a judge compare checkpoints' replies in pairs, and report the strength of each, also by character.

    What it costs is said first. To resume, repeat the command with the same --out."""
    url = url or find_gateway_url()
    with stop_on_errors(also=httpx.InvalidURL):
        policies = parse_policies(policy or [], env)
        names = [*(contestants or []), *(one.name for one in policies)]
        if len(names) < 2:
            raise ValueError("a tournament needs two contestants or more")
        folder = out or Path("tournaments") / _name_folder(judge, names)
        sampling = SamplingParameters(temperature, max_tokens, top_p, parse_object("--extra", extra))
        fresh = FreshSetup(
            policies=tuple(map(str, policies)), split=split, params=parse_params(params), sampling=sampling.parameters
        )
        ends = Endpoints(url, build_gateway_headers(api_key), "", read_policy_key(api_key_env), folder)
        asked = EvaluationSpec(
            environment=env or "",
            split=split,
            params=fresh.params,
            tasks=tasks,
            samples=1,
            run="",
            model="",
            step=None,
            seed=seed,
            sampling=sampling,
        )
        asking = EvaluationSession(
            spec=asked,
            ends=ends,
            concurrency=concurrency,
            patience_seconds=patience,
            prices=PolicyPrices(input_price, output_price),
            threshold=1.0,
            tokenizer=None,
            console=errors,
            go_on=None,
        )
        playing = tuple(one.build_contestant(asking) for one in policies)
        session = TournamentSession(
            setup=TournamentJournalSetup(
                contestants=(*(contestants or []), *(one.source for one in playing)),
                judge=judge,
                environment=env,
                tasks=tasks,
                seed=seed,
                run=check_run_name(run or f"tournament-{judge}"[:64]),
                fresh=fresh if policies else None,
            ),
            out=folder,
            allows_same_model=same_model,
            concurrency=concurrency,
            patience_seconds=patience,
            gateway_url=url,
            console=errors,
            go_on=partial(confirm_cost, yes=yes),
            fresh=playing,
        )
        outcome = asyncio.run(_hold(session, url, api_key, dry_run=dry_run))
        if outcome.report is not None:
            output_console().print(build_tournament_summary(outcome.report))
    _report_outcome(outcome, folder)


async def _hold(session: TournamentSession, url: str, api_key: str, *, dry_run: bool) -> TournamentOutcome:
    headers = build_gateway_headers(api_key)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=GATEWAY_SECONDS) as client:
        gateway = GatewayClient(client)
        return await (session.dry_run(gateway) if dry_run else session.hold(gateway))


def _report_outcome(outcome: TournamentOutcome, folder: Path) -> None:
    if outcome.report is None:
        if outcome.is_begun:
            stop_to_resume()
        if outcome.stopped:
            raise typer.Exit(2)
        return
    tell_report(folder / f"{REPORT}.html", stopped=outcome.stopped)


def _name_folder(judge: str, contestants: list[str]) -> str:
    words = [judge, *(Path(contestant).name for contestant in contestants)]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("-.")[:120] or "tournament"


# Tables.

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
