"""`atropos-envs runs health` and `runs release`: what the audit of a run says, and going on after an alarm."""

import typer
from rich.table import Table

from app.domain.runs import Run
from app.features.health.model import RunHealth
from app.features.health.series import SAID, HealthFigure, format_change, format_level
from app.terminal.client import ApiKey, GatewayClient, Url, ask_gateway
from app.terminal.completion import RunArgument
from app.terminal.consoles import AsJson, output_console, print_json
from app.toolkit.texts import escape_invisible, format_number


def health(run: RunArgument, url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Show what has changed in a run: figures with alarm limits, alarms, and the cost of this audit.

    Ends with code 1 while an alarm stands."""
    report = ask_gateway(url, api_key, lambda client: _fetch_run_health(client, run))
    if as_json:
        print_json(report)
    else:
        _print_health(report)
    if any(alarm.released_at is None for alarm in report.alarms):
        raise typer.Exit(1)


def release(run: RunArgument, url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Release a run's alarms, so that it hands out tasks again."""
    released = ask_gateway(url, api_key, lambda client: _release_run(client, run))
    if as_json:
        print_json(released)
        return
    output_console().print(f"run {released.name} hands out tasks; its alarms are released", highlight=False)


async def _fetch_run_health(gateway: GatewayClient, name: str) -> RunHealth:
    return RunHealth.model_validate_json(await gateway.send_request("GET", f"/runs/{name}/health"))


async def _release_run(gateway: GatewayClient, name: str) -> Run:
    return Run.model_validate_json(await gateway.send_request("POST", f"/runs/{name}/release", {}))


def _print_health(found: RunHealth) -> None:
    console = output_console()
    table = Table(title=f"run {found.run}: health over {found.groups:,} groups")
    for title in ("figure", "now", "95 %", "change", "alarm from", "certainty", "alarm from", ""):
        table.add_column(title, no_wrap=True)
    for figure in found.figures:
        table.add_row(*_list_figure_cells(figure))
    console.print(table)
    for finding in found.findings:
        console.print(f"newest groups: {escape_invisible(finding.sentence)}", highlight=False, markup=False)
    if found.players is not None:
        console.print(found.players.sentence, highlight=False)
    for alarm in found.alarms:
        ended = "" if alarm.released_at is None else f", released {alarm.released_at:%Y-%m-%d %H:%M}"
        who = f"{alarm.subject}: " if alarm.subject else ""
        words = f"{who}{alarm.words} (noticed at group {alarm.noticed_group:,}{ended})"
        console.print(escape_invisible(words), highlight=False, markup=False)
    if found.held is not None:
        console.print(f"The run hands out no tasks: {found.held.reason}", highlight=False, markup=False)
    spent = found.spent
    share = "" if spent.share is None else f", {spent.share:.2%} of what the run took"
    console.print(
        f"The audit took {spent.tokens:,} judge tokens{share}; it may take {spent.most_share:.1%}. Judges read "
        f"{found.anchors} groups again, {spent.anchor_readings} times in all; the shadow judge read "
        f"{spent.shadow_readings} groups.",
        highlight=False,
    )
    console.print(f"It cannot see {'; '.join(found.cannot_see)}.", highlight=False)


def _list_figure_cells(figure: HealthFigure) -> tuple[str, ...]:
    low, high = (format_level(figure.series, end) for end in figure.interval or (None, None))
    return (
        SAID[figure.series].name,
        format_level(figure.series, figure.value),
        "" if figure.interval is None else f"{low} to {high}",
        format_change(figure.series, figure.effect),
        format_change(figure.series, figure.least_effect).lstrip("+"),
        format_number(figure.statistic, 1),
        f"{figure.limit:g}",
        "ALARM" if figure.alarmed else "",
    )
