"""`atropos-envs process`: options and entry point."""

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import httpx
import typer
from rich.console import Console

from app.cli.address import build_policy_headers, find_gateway_url
from app.cli.prices import PolicyPrices
from app.cli.process.journal import open_process_journal
from app.cli.process.plan import ProcessPlan, ProcessSetup, To, check_run_name, parse_mix
from app.cli.process.session import ProcessSession, TrainerEndpoints
from app.domain.errors import GatewayError
from app.domain.values import Split
from app.inference.server import SamplingParameters
from app.inference.tokenizer import LocalTokenizer

errors = Console(stderr=True)

_CONNECTIONS = "Connections"
_TASKS = "Tasks"
_SAMPLING = "Sampling"
_COST_AND_CHECKS = "Cost and checks"


def process(
    policy: Annotated[
        str, typer.Option(help="URL of the OpenAI-compatible policy server.", rich_help_panel=_CONNECTIONS)
    ],
    model: Annotated[str, typer.Option(help="Model name on the policy server.", rich_help_panel=_CONNECTIONS)],
    env: Annotated[str | None, typer.Option(help="Environment name.", rich_help_panel=_TASKS)] = None,
    mix: Annotated[
        str | None, typer.Option(help="Several environments: env=weight,env=weight.", rich_help_panel=_TASKS)
    ] = None,
    split: Annotated[Split, typer.Option(help="Split to take tasks from.", rich_help_panel=_TASKS)] = "train",
    params: Annotated[
        str | None, typer.Option(help="Params of --env, as a JSON object.", rich_help_panel=_TASKS)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Total number of groups to write; unlimited by default.", rich_help_panel=_TASKS),
    ] = None,
    url: Annotated[
        str, typer.Option(help="Gateway URL.", show_default="from settings", rich_help_panel=_CONNECTIONS)
    ] = "",
    to: Annotated[
        To, typer.Option(help="Output: a JSON Lines file or an Atropos trainer.", rich_help_panel=_CONNECTIONS)
    ] = "jsonl",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file; the journal is written next to it.",
            show_default="<run>.<to>",
            rich_help_panel=_CONNECTIONS,
        ),
    ] = None,
    atropos: Annotated[
        str | None,
        typer.Option(
            help="URL of the trainer's Atropos API.", show_default="the gateway's", rich_help_panel=_CONNECTIONS
        ),
    ] = None,
    run: Annotated[str, typer.Option(help="Run name to lease tasks under.", rich_help_panel=_TASKS)] = "process",
    cursor: Annotated[
        int | None, typer.Option(min=0, help="Start index for taking tasks without leases.", rich_help_panel=_TASKS)
    ] = None,
    group_size: Annotated[int, typer.Option(min=1, max=256, help="Completions per task.", rich_help_panel=_TASKS)] = 8,
    batch_size: Annotated[
        int, typer.Option(min=1, max=1024, help="Tasks per gateway request.", rich_help_panel=_TASKS)
    ] = 16,
    concurrency: Annotated[
        int, typer.Option(min=1, max=4096, help="Concurrent requests to the policy server.", rich_help_panel=_SAMPLING)
    ] = 32,
    lease_seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="Lease duration of a task, in seconds.", rich_help_panel=_TASKS)
    ] = 600.0,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum tokens per completion.", rich_help_panel=_SAMPLING)
    ] = 1_024,
    temperature: Annotated[
        float, typer.Option(min=0, max=2, help="Sampling temperature.", rich_help_panel=_SAMPLING)
    ] = 1.0,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Nucleus sampling probability (top_p).", rich_help_panel=_SAMPLING),
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Training step of the policy.", rich_help_panel=_TASKS)
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="tokenizer.json file for servers that return no token ids.", rich_help_panel=_SAMPLING),
    ] = None,
    batches_ahead: Annotated[
        int,
        typer.Option(
            min=1, help="Pause when this many batches are queued at the trainer.", rich_help_panel=_CONNECTIONS
        ),
    ] = 3,
    weight: Annotated[
        float, typer.Option(min=0, help="Weight among the trainer's environments.", rich_help_panel=_CONNECTIONS)
    ] = 1.0,
    input_price: Annotated[
        float | None,
        typer.Option(min=0, help="Price in US dollars per million prompt tokens.", rich_help_panel=_COST_AND_CHECKS),
    ] = None,
    output_price: Annotated[
        float | None,
        typer.Option(
            min=0, help="Price in US dollars per million completion tokens.", rich_help_panel=_COST_AND_CHECKS
        ),
    ] = None,
    api_key: Annotated[
        str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.", rich_help_panel=_CONNECTIONS)
    ] = "",
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the policy API key.", rich_help_panel=_CONNECTIONS)
    ] = None,
) -> None:
    """Sample and score completions for a trainer, and write the groups to a file or an Atropos trainer.

    To resume, repeat the command with the same --out."""
    url = url or find_gateway_url()
    try:
        setup = ProcessSetup(
            mix=parse_mix(env, mix, split, params),
            run=check_run_name(run),
            by_cursor=cursor is not None,
            model=model,
            step=step,
            group_size=group_size,
            to=to,
        )
        output = out or Path(f"{run}.{to}")
        session = ProcessSession(
            plan=ProcessPlan(
                setup=setup,
                limit=limit,
                batch_size=batch_size,
                hands=2 * -(-concurrency // group_size),
                lease_seconds=lease_seconds,
                first_cursor=cursor or 0,
            ),
            ends=TrainerEndpoints(
                gateway=url,
                gateway_headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
                policy=policy,
                policy_headers=build_policy_headers(api_key_env),
                atropos=atropos or f"{url.rstrip('/')}/compat/atropos",
                out=output,
            ),
            sampling=SamplingParameters(temperature, max_tokens, top_p),
            concurrency=concurrency,
            prices=PolicyPrices(input_price, output_price),
            tokenizer=None if tokenizer is None else LocalTokenizer.read(tokenizer),
            batches_ahead=batches_ahead,
            weight=weight,
            console=errors,
        )
        with open_process_journal(output.with_name(f"{output.name}.journal"), setup) as journal:
            ended = asyncio.run(session.run(journal))
    except GatewayError as error:
        _stop(error.detail if error.field is None else f"{error.field}: {error.detail}")
    except (ValueError, OSError, httpx.InvalidURL) as error:
        _stop(str(error))
    if not ended:
        errors.print("stopped; run the same command again to resume", highlight=False)
        raise typer.Exit(130)


def _stop(words: str) -> NoReturn:
    errors.print(words, style="red", highlight=False, markup=False)
    raise typer.Exit(2)
