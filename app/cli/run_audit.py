"""`atropos-envs runs health` and `runs release`: what the audit of a run says, and going on after an alarm."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import httpx
import typer
from rich.table import Table

from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import AsJson, describe_error, format_figure, output_console, print_json, stop
from app.cli.gateway_client import GatewayClient
from app.domain.errors import GatewayError
from app.domain.health_records import RunHealth
from app.domain.run_health import HealthFigure

ResultT = TypeVar("ResultT")

RunArgument = Annotated[str, typer.Argument(help="The run's name.")]
Url = Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")]
ApiKey = Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")]
SECONDS = 60.0


def health(run: RunArgument, url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Say what has changed in a run: figures with their limits, alarms, and what the audit cost.

    Ends with code 1 while an alarm stands."""
    found = ask_gateway(url, api_key, lambda client: client.fetch_run_health(run))
    if as_json:
        print_json(found)
    else:
        _print_health(found)
    if any(alarm.released_at is None for alarm in found.alarms):
        raise typer.Exit(1)


def release(run: RunArgument, url: Url = "", api_key: ApiKey = "") -> None:
    """Release a run's alarms, so that it hands out tasks again."""
    released = ask_gateway(url, api_key, lambda client: client.release_run(run))
    output_console().print(f"run {released.name} hands out tasks; its alarms are released", highlight=False)


def ask_gateway(url: str, api_key: str, question: Callable[[GatewayClient], Awaitable[ResultT]]) -> ResultT:
    """The answer of the gateway; without one the command ends and says why."""

    async def ask() -> ResultT:
        headers = build_gateway_headers(api_key)
        async with httpx.AsyncClient(base_url=url or find_gateway_url(), headers=headers, timeout=SECONDS) as client:
            return await question(GatewayClient(client))

    try:
        return asyncio.run(ask())
    except GatewayError as error:
        stop(describe_error(error))
    except httpx.HTTPError as error:
        stop(f"the gateway could not be reached: {error}")
    except ValueError as error:
        stop(str(error))


def _print_health(found: RunHealth) -> None:
    console = output_console()
    table = Table(title=f"run {found.run}: health over {found.groups:,} groups")
    for title in ("figure", "now", "95 %", "shift", "least", "statistic", "limit", ""):
        table.add_column(title, no_wrap=True)
    for figure in found.figures:
        table.add_row(*_list_cells(figure))
    console.print(table)
    for alarm in found.alarms:
        ended = "" if alarm.released_at is None else f" (released {alarm.released_at:%Y-%m-%d %H:%M})"
        console.print(
            f"{alarm.series} since about group {alarm.since_group}, noticed at group {alarm.noticed_group}{ended}: "
            f"{alarm.evidence}",
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


def _list_cells(figure: HealthFigure) -> tuple[str, ...]:
    low_high = "" if figure.interval is None else f"{figure.interval[0]:.3f} to {figure.interval[1]:.3f}"
    return (
        figure.series,
        format_figure(figure.value),
        low_high,
        format_figure(figure.effect, "+.3f"),
        f"{figure.least_effect:g}",
        format_figure(figure.statistic, ".1f"),
        f"{figure.limit:g}",
        "ALARM" if figure.alarmed else "",
    )
