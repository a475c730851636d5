"""`atropos-envs process`: options and entry point."""

import asyncio
from pathlib import Path
from typing import Annotated

import httpx
import typer
from pydantic import JsonValue

from app.cli.campaigns import check_run_name
from app.cli.policies import (
    CONNECTIONS,
    TASKS,
    CheckTokens,
    Concurrency,
    GatewayKey,
    GatewayUrl,
    InputPrice,
    MaxTokens,
    OutputPrice,
    PolicyKeyVariable,
    PolicyModel,
    PolicyPrices,
    PolicyStep,
    PolicyUrl,
    StoreTokens,
    Temperature,
    TopP,
    require_tokenizer,
)
from app.cli.process.journal import open_journal
from app.cli.process.plan import ProcessPlan, ProcessSetup, To, parse_mix
from app.cli.process.session import ProcessSession, TrainerEndpoints
from app.domain.values import Split
from app.inference.policies import SamplingParameters
from app.inference.tokens import LocalTokenizer
from app.terminal import ADVANCED
from app.terminal.client import check_url, find_gateway_url, read_policy_key
from app.terminal.completion import complete_environment, complete_run
from app.terminal.consoles import AsJson, errors, print_outcome, stop_on_errors, stop_to_resume


def process(
    policy: PolicyUrl,
    model: PolicyModel,
    env: Annotated[
        str | None, typer.Option(help="Environment name.", rich_help_panel=TASKS, autocompletion=complete_environment)
    ] = None,
    mix: Annotated[
        str | None, typer.Option(help="Several environments: env=weight,env=weight.", rich_help_panel=TASKS)
    ] = None,
    split: Annotated[Split, typer.Option(help="Split to take tasks from.", rich_help_panel=TASKS)] = "train",
    params: Annotated[
        str | None, typer.Option(help="Params of --env, as a JSON object.", rich_help_panel=TASKS)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Total number of groups to write; unlimited by default.", rich_help_panel=TASKS),
    ] = None,
    url: GatewayUrl = "",
    to: Annotated[
        To, typer.Option(help="Output: a JSON Lines file or an Atropos trainer.", rich_help_panel=CONNECTIONS)
    ] = "jsonl",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file; the journal is written next to it.",
            show_default="<run>.<to>",
            rich_help_panel=CONNECTIONS,
        ),
    ] = None,
    atropos: Annotated[
        str | None,
        typer.Option(
            help="URL of the trainer's Atropos API.",
            show_default="the gateway's",
            rich_help_panel=CONNECTIONS,
            callback=check_url,
        ),
    ] = None,
    run: Annotated[
        str, typer.Option(help="Run name to lease tasks under.", rich_help_panel=TASKS, autocompletion=complete_run)
    ] = "process",
    group_size: Annotated[int, typer.Option(min=1, max=256, help="Completions per task.", rich_help_panel=TASKS)] = 8,
    max_tokens: MaxTokens = 1_024,
    temperature: Temperature = 1.0,
    concurrency: Concurrency = 32,
    lease_seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="Lease duration of a task, in seconds.", rich_help_panel=ADVANCED)
    ] = 600.0,
    patience: Annotated[
        float | None,
        typer.Option(
            min=0,
            show_default="for ever",
            help="Seconds to keep retrying a policy server or gateway that is down or busy.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, max=1024, help="Tasks per gateway request.", rich_help_panel=ADVANCED)
    ] = 16,
    cursor: Annotated[
        int | None, typer.Option(min=0, help="Start index for taking tasks without leases.", rich_help_panel=ADVANCED)
    ] = None,
    top_p: TopP = None,
    step: PolicyStep = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="tokenizer.json file for servers that return no token ids.", rich_help_panel=ADVANCED),
    ] = None,
    check_tokens: CheckTokens = False,
    store_tokens: StoreTokens = False,
    batches_ahead: Annotated[
        int,
        typer.Option(min=1, help="Pause when this many batches are queued at the trainer.", rich_help_panel=ADVANCED),
    ] = 3,
    weight: Annotated[
        float, typer.Option(min=0, help="Weight among the trainer's environments.", rich_help_panel=ADVANCED)
    ] = 1.0,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    api_key: GatewayKey = "",
    api_key_env: PolicyKeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Sample and score completions for a trainer, and write the groups to a file or an Atropos trainer.

    To resume, repeat the command with the same --out."""
    url = url or find_gateway_url()
    with stop_on_errors(also=httpx.InvalidURL):
        require_tokenizer(check_tokens, tokenizer)
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
                gateway_key=api_key,
                policy=policy,
                policy_key=read_policy_key(api_key_env),
                atropos=atropos or f"{url.rstrip('/')}/compat/atropos",
                out=output,
            ),
            sampling=SamplingParameters(temperature, max_tokens, top_p),
            concurrency=concurrency,
            patience_seconds=patience,
            prices=PolicyPrices(input_price, output_price),
            tokenizer=None if tokenizer is None else LocalTokenizer.read(tokenizer),
            checks_tokens=check_tokens,
            stores_tokens=store_tokens,
            batches_ahead=batches_ahead,
            weight=weight,
            console=errors,
        )
        with open_journal(output.with_name(f"{output.name}.journal"), setup) as journal:
            ended = asyncio.run(session.run(journal))
            ledger = journal.ledger
        if as_json:
            left_out: dict[str, JsonValue] = dict(ledger.left_out)
            counts: dict[str, JsonValue] = {"written": ledger.written_count, "left_out": left_out}
            print_outcome("", as_json=True, out=str(output), **counts, running=len(ledger.open))
    if not ended:
        stop_to_resume()
