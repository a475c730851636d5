"""`atropos-envs rescore`: rescore stored groups and measure the agreement with the original rewards."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, NoReturn

import httpx
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.agreement import Rewards, measure_agreement
from app.cli.consoles import output_console
from app.domain.judging import Mode
from app.http.api.models import GroupPage
from app.service.rescoring import RescoreReply, RescoreRequest

console = output_console()

PAGE = 100
WAIT_SECONDS = 60.0
PAUSES = (0.5, 2.0, 8.0)
"""Seconds between attempts while the gateway is unreachable or overloaded."""


@dataclass(frozen=True)
class RescoreSpec:
    environment: str | None
    run: str | None
    limit: int | None
    concurrency: int
    request: RescoreRequest


@dataclass
class RescoreTally:
    """Results so far."""

    pairs: list[tuple[Rewards, Rewards]] = field(default_factory=list)
    unscored: int = 0
    """Completions without a new reward."""
    calls: int = 0
    cost_usd: float = 0.0

    def add(self, one: RescoreReply) -> None:
        self.pairs.append((one.original, one.rewards))
        self.unscored += sum(reward is None for reward in one.rewards)
        self.calls += one.calls
        self.cost_usd += one.cost_usd


def rescore(
    env: Annotated[str | None, typer.Option(help="Only groups of this environment.")] = None,
    run: Annotated[str | None, typer.Option(help="Only groups of this run.")] = None,
    judges: Annotated[str, typer.Option(help="Comma-separated judge names; the run's judges by default.")] = "",
    mode: Annotated[Mode | None, typer.Option(help="Judging mode; as configured by default.")] = None,
    relative_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="Weight of the relative score, from 0 to 1.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of groups, newest first.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Groups to rescore concurrently.")] = 8,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
) -> None:
    """Rescore stored groups and report the agreement with the original rewards.

    Original rewards stay unchanged.
    You can stop and resume at any time: groups that already have this scoring cost nothing."""
    names = tuple(name.strip() for name in judges.split(",") if name.strip())
    try:
        request = RescoreRequest.model_validate(
            {"judges": names or None, "mode": mode, "relative_weight": relative_weight, "wait_seconds": WAIT_SECONDS}
        )
    except ValueError as error:
        _stop(str(error))
    url = url or find_gateway_url()
    headers = build_gateway_headers(api_key)
    tally = RescoreTally()
    try:
        asyncio.run(_rescore_all(url, headers, RescoreSpec(env, run, limit, concurrency, request), tally))
    except KeyboardInterrupt:
        console.print("stopped; run the same command again to resume", style="yellow")
    except httpx.HTTPStatusError as error:
        console.print(_build_summary(tally))
        _stop(f"{error.request.url}: {error.response.text[:500]}")
    except httpx.HTTPError as error:
        console.print(_build_summary(tally))
        _stop(f"cannot reach the gateway at {url} (set --url): {error or type(error).__name__}")
    console.print(_build_summary(tally))


def _stop(message: str) -> NoReturn:
    console.print(message, style="red", highlight=False, markup=False)
    raise typer.Exit(1)


async def _rescore_all(url: str, headers: dict[str, str], wanted: RescoreSpec, tally: RescoreTally) -> None:
    columns = (TextColumn("rescoring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=WAIT_SECONDS + 60) as client:
        ids = [group_id async for group_id in _iter_group_ids(client, wanted)]
        with Progress(*columns, TextColumn("{task.fields[cost]}"), console=console) as progress:
            bar = progress.add_task("", total=len(ids), cost="")
            waiting = iter(ids)

            async def work() -> None:
                for group_id in waiting:
                    tally.add(await _rescore_group(client, group_id, wanted.request))
                    progress.update(bar, advance=1, cost=f"{tally.calls} calls, ${tally.cost_usd:.4f}")

            workers = [asyncio.ensure_future(work()) for _ in range(wanted.concurrency)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)


async def _iter_group_ids(client: httpx.AsyncClient, wanted: RescoreSpec) -> AsyncIterator[str]:
    """Newest first."""
    named = {"env": wanted.environment, "run": wanted.run}
    given = {name: value for name, value in named.items() if value is not None}
    left, before = wanted.limit, None
    while left is None or left > 0:
        count = PAGE if left is None else min(PAGE, left)
        query = given | {"limit": str(count)} | ({} if before is None else {"before": str(before)})
        page = GroupPage.model_validate((await _send_with_retries(client, "GET", "/groups", query=query)).json())
        for group in page.groups:
            yield group.group_id
        left, before = (None if left is None else left - len(page.groups)), page.next_before
        if before is None:
            return


async def _rescore_group(client: httpx.AsyncClient, group_id: str, request: RescoreRequest) -> RescoreReply:
    body = request.model_dump(mode="json", exclude_none=True)
    while True:
        reply = RescoreReply.model_validate(
            (await _send_with_retries(client, "POST", f"/groups/{group_id}/rescore", body)).json()
        )
        if reply.scoring.outcome != "pending":
            return reply


async def _send_with_retries(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: dict[str, object] | None = None,
    *,
    query: dict[str, str] | None = None,
) -> httpx.Response:
    """httpx.HTTPError when it stays unreachable or refuses."""
    for pause in PAUSES:
        try:
            response = await client.request(method, path, json=body, params=query)
        except httpx.TransportError:
            await asyncio.sleep(pause)
            continue
        if response.status_code not in {429, 503}:
            return response.raise_for_status()
        await asyncio.sleep(pause)
    return (await client.request(method, path, json=body, params=query)).raise_for_status()


def _build_summary(tally: RescoreTally) -> Table:
    found = measure_agreement(tally.pairs)
    table = Table("agreement with the original", "", title=f"{len(tally.pairs)} groups rescored")
    table.add_row("Spearman of rewards", _format_figure(found.spearman))
    table.add_row("mean absolute difference", _format_figure(found.mean_difference))
    table.add_row("groups whose best completion changed", _format_share(found.best_changed, found.groups))
    table.add_row("completions compared", str(found.completions))
    table.add_row("completions without a new score", str(tally.unscored))
    table.add_row("judge calls, paid", f"{tally.calls}, ${tally.cost_usd:.4f}")
    return table


def _format_figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _format_share(share: float | None, count: int) -> str:
    return "–" if share is None else f"{share:.1%} of {count}"
