"""`atropos-envs rescore`: rescore stored groups and measure the agreement with the original rewards."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.agreement import Rewards, measure_agreement
from app.cli.consoles import AsJson, describe_error, errors, output_console, print_json, stop
from app.cli.gateway_client import GatewayClient
from app.cli.retry import Retrier
from app.domain.errors import GatewayError
from app.domain.judging import Mode
from app.domain.values import Frozen
from app.judges.rubric_files import load_rubric
from app.service.rescoring import RescoreReply, RescoreRequest

PAGE = 100
WAIT_SECONDS = 60.0
GIVE_UP_SECONDS = 10.0
"""How long an unreachable or overloaded gateway is asked again."""


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
    rubric: Annotated[
        Path | None, typer.Option(help="YAML file with a rubric.", show_default="the run's, else the configured one")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of groups, newest first.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Groups to rescore concurrently.")] = 8,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
    as_json: AsJson = False,
) -> None:
    """Rescore stored groups and report the agreement with the original rewards.

    Original rewards stay unchanged.
    You can stop and resume at any time: groups that already have this scoring cost nothing."""
    names = tuple(name.strip() for name in judges.split(",") if name.strip())
    try:
        request = RescoreRequest.model_validate(
            {
                "judges": names or None,
                "mode": mode,
                "relative_weight": relative_weight,
                "rubric": None if rubric is None else load_rubric(rubric),
                "wait_seconds": WAIT_SECONDS,
            }
        )
    except ValueError as error:
        stop(str(error), 1)
    url = url or find_gateway_url()
    headers = build_gateway_headers(api_key)
    tally = RescoreTally()
    failure = None
    try:
        asyncio.run(_rescore_all(url, headers, RescoreSpec(env, run, limit, concurrency, request), tally))
    except KeyboardInterrupt:
        errors.print("stopped; run the same command again to resume", style="yellow")
    except GatewayError as error:
        failure = describe_error(error)
    _print_results(tally, as_json=as_json)
    if failure is not None:
        stop(failure, 1)


class RescoreSummary(Frozen):
    """What `rescore --json` prints. Statistics are null where there is nothing to compare."""

    groups: int
    """Groups rescored."""
    completions: int
    """Completions with a reward in both scorings."""
    unscored: int
    """Completions without a new reward."""
    spearman: float | None
    mean_difference: float | None
    best_changed: float | None
    """Share of the groups whose best completion changed."""
    calls: int
    cost_usd: float


def _summarise(tally: RescoreTally) -> RescoreSummary:
    found = measure_agreement(tally.pairs)
    return RescoreSummary(
        groups=len(tally.pairs),
        completions=found.completions,
        unscored=tally.unscored,
        spearman=found.spearman,
        mean_difference=found.mean_difference,
        best_changed=found.best_changed,
        calls=tally.calls,
        cost_usd=tally.cost_usd,
    )


def _print_results(tally: RescoreTally, *, as_json: bool) -> None:
    if as_json:
        print_json(_summarise(tally))
    else:
        output_console().print(_build_summary(tally))


async def _rescore_all(url: str, headers: dict[str, str], wanted: RescoreSpec, tally: RescoreTally) -> None:
    columns = (TextColumn("rescoring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=WAIT_SECONDS + 60) as client:
        gateway = GatewayClient(client)
        ids = [group_id async for group_id in _iter_group_ids(gateway, wanted)]
        with Progress(*columns, TextColumn("{task.fields[cost]}"), console=errors) as progress:
            bar = progress.add_task("", total=len(ids), cost="")
            waiting = iter(ids)

            async def work() -> None:
                for group_id in waiting:
                    tally.add(await _rescore_group(gateway, group_id, wanted.request))
                    progress.update(bar, advance=1, cost=f"{tally.calls} calls, ${tally.cost_usd:.4f}")

            workers = [asyncio.ensure_future(work()) for _ in range(wanted.concurrency)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)


async def _iter_group_ids(gateway: GatewayClient, wanted: RescoreSpec) -> AsyncIterator[str]:
    """Newest first."""
    if wanted.run is not None:
        await gateway.require_run(wanted.run)
    named = {"env": wanted.environment, "run": wanted.run}
    given = {name: value for name, value in named.items() if value is not None}
    left, before = wanted.limit, None
    while left is None or left > 0:
        count = PAGE if left is None else min(PAGE, left)
        query = given | {"limit": str(count)} | ({} if before is None else {"before": str(before)})
        page = await _new_retrier().retry_until_answered("groups", partial(gateway.list_groups, query))
        for group in page.groups:
            yield group.group_id
        left, before = (None if left is None else left - len(page.groups)), page.next_before
        if before is None:
            return


async def _rescore_group(gateway: GatewayClient, group_id: str, request: RescoreRequest) -> RescoreReply:
    ask = partial(gateway.rescore, group_id, request)
    while True:
        reply = await _new_retrier().retry_until_answered(group_id, ask)
        if reply.scoring.outcome != "pending":
            return reply


def _new_retrier() -> Retrier:
    return Retrier(ends_after=GIVE_UP_SECONDS)


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
