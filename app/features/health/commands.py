"""`atropos-envs runs health` and `runs release`: what the audit of a run says, and going on after an alarm."""

import typer
from rich.table import Table

from app.domain.runs import Run
from app.features.health.model import RunHealth
from app.features.health.series import HealthFigure
from app.terminal.client import ApiKey, GatewayClient, Url, ask_gateway
from app.terminal.completion import RunArgument
from app.terminal.consoles import AsJson, format_figure, format_interval, output_console, print_json
from app.toolkit.texts import escape_invisible


def health(run: RunArgument, url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Say what has changed in a run: figures with their limits, alarms, and what the audit cost.

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
    for title in ("figure", "now", "95 %", "shift", "least", "statistic", "limit", ""):
        table.add_column(title, no_wrap=True)
    for figure in found.figures:
        table.add_row(*_list_figure_cells(figure))
    console.print(table)
    for finding in found.findings:
        console.print(f"newest groups: {escape_invisible(finding.sentence)}", highlight=False, markup=False)
    for alarm in found.alarms:
        ended = "" if alarm.released_at is None else f", released {alarm.released_at:%Y-%m-%d %H:%M}"
        console.print(
            f"{escape_invisible(alarm.words)} (noticed at group {alarm.noticed_group}{ended})",
            highlight=False,
            markup=False,
        )
    if found.held is not None:
        console.print(f"The run hands out no tasks: {found.held.reason}", highlight=False, markup=False)
    spent = found.spent
    share = "nothing yet" if spent.share is None else f"{spent.share:.2%} of the run's judge tokens"
    console.print(
        f"{spent.anchor_readings} readings of {found.anchors} anchors and {spent.shadow_readings} of the shadow judge "
        f"took {spent.tokens:,} tokens: {share}, at most {spent.most_share:.1%}",
        highlight=False,
    )
    console.print(f"It cannot see {'; '.join(found.cannot_see)}.", highlight=False)


def _list_figure_cells(figure: HealthFigure) -> tuple[str, ...]:
    low, high = figure.interval or (None, None)
    return (
        figure.series,
        format_figure(figure.value),
        format_interval(low, high, missing=""),
        format_figure(figure.effect, "+.3f"),
        f"{figure.least_effect:g}",
        format_figure(figure.statistic, ".1f"),
        f"{figure.limit:g}",
        "ALARM" if figure.alarmed else "",
    )
