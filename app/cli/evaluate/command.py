"""`atropos-envs evaluate` and `atropos-envs compare`, as they are called."""

import asyncio
import json
import re
from pathlib import Path
from typing import Annotated, NoReturn

import httpx
import typer
from pydantic import JsonValue
from rich.console import Console

from app.cli.address import own_address, policy_headers
from app.cli.ends import Ends
from app.cli.evaluate.estimate import Estimate
from app.cli.evaluate.files import COMPARISON, REPORT, read_evaluation, write_document
from app.cli.evaluate.session import Outcome, Session
from app.cli.evaluate.summary import compared, summary
from app.cli.evaluate.wanted import Wanted
from app.cli.prices import Prices
from app.cli.process.plan import checked_run, params_of
from app.domain.errors import GatewayError
from app.domain.values import Split
from app.evaluation.comparison import comparison_of
from app.inference.server import Sampling
from app.inference.tokenizer import LocalTokenizer
from app.toolkit.display import visible

console = Console()
errors = Console(stderr=True)

_ENDS = "Where from and where to"
_WHAT = "What"
_HOW = "How"
_WHEN = "Whether"


def evaluate(
    policy: Annotated[str, typer.Option(help="URL of the policy's OpenAI-compatible server.", rich_help_panel=_ENDS)],
    model: Annotated[str, typer.Option(help="The model's name there.", rich_help_panel=_ENDS)],
    env: Annotated[str, typer.Option(help="The environment.", rich_help_panel=_WHAT)],
    split: Annotated[Split, typer.Option(help="Of the tasks.", rich_help_panel=_WHAT)] = "test",
    params: Annotated[str, typer.Option(help="Of the environment, a JSON object.", rich_help_panel=_WHAT)] = "{}",
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="the split, or 100 of one without an end", help="How many.", rich_help_panel=_WHAT
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=256, help="Attempts at each task.", rich_help_panel=_WHAT)] = 1,
    run: Annotated[
        str, typer.Option(help="Under which the gateway keeps the groups.", rich_help_panel=_WHAT)
    ] = "evaluation",
    step: Annotated[int | None, typer.Option(min=0, help="The policy's training step.", rich_help_panel=_WHAT)] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**53 - 1, help="Of order, sampling and intervals.", rich_help_panel=_WHAT)
    ] = 0,
    pass_at: Annotated[
        float, typer.Option(min=0, max=1, help="The least reward that counts as passed.", rich_help_panel=_WHAT)
    ] = 1.0,
    url: Annotated[
        str, typer.Option(help="Of the gateway.", show_default="the settings' own", rich_help_panel=_ENDS)
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="evaluations/<env>-<model>", rich_help_panel=_ENDS),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer.", rich_help_panel=_HOW)] = 1_024,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Of sampling.", rich_help_panel=_HOW)] = 1.0,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Of sampling.", rich_help_panel=_HOW)] = None,
    extra: Annotated[
        str,
        typer.Option(help="More fields of each request, a JSON object; null leaves one out.", rich_help_panel=_HOW),
    ] = "{}",
    concurrency: Annotated[int, typer.Option(min=1, max=4096, help="Attempts at once.", rich_help_panel=_HOW)] = 32,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to ask again a server that fails.", rich_help_panel=_HOW)
    ] = 600.0,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, for the estimate.", rich_help_panel=_WHEN)
    ] = None,
    input_price: Annotated[
        float | None, typer.Option(min=0, help="US dollars per million prompt tokens.", rich_help_panel=_WHEN)
    ] = None,
    output_price: Annotated[
        float | None, typer.Option(min=0, help="US dollars per million completion tokens.", rich_help_panel=_WHEN)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would take.", rich_help_panel=_WHEN)
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether to go on.", rich_help_panel=_WHEN)] = False,
    fail_under: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if the mean is lower.", rich_help_panel=_WHEN)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with this finished evaluation.", rich_help_panel=_WHEN)
    ] = None,
    api_key: Annotated[
        str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Of the gateway.", rich_help_panel=_ENDS)
    ] = "",
    api_key_env: Annotated[
        str | None, typer.Option(help="The variable that holds the policy's key.", rich_help_panel=_ENDS)
    ] = None,
) -> None:
    """Have a model attempt the tasks of a held-out split, and report how well it did. Started again with the same --out
    it goes on where it was."""
    url = url or own_address()
    place = out or Path("evaluations") / _folder(env, model, step)
    try:
        session = Session(
            wanted=Wanted(
                environment=env,
                split=split,
                params=params_of(params),
                tasks=tasks,
                samples=samples,
                run=checked_run(run),
                model=model,
                step=step,
                seed=seed,
                sampling=Sampling(temperature, max_tokens, top_p, _object("--extra", extra)),
            ),
            ends=Ends(
                gateway=url,
                gateway_headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
                policy=policy,
                policy_headers=policy_headers(api_key_env),
                out=place,
            ),
            concurrency=concurrency,
            patience_seconds=patience,
            prices=Prices(input_price, output_price),
            threshold=pass_at,
            tokenizer=None if tokenizer is None else LocalTokenizer.read(tokenizer),
            console=errors,
            go_on=_always if yes else _asked,
        )
        before = None if against is None else read_evaluation(against)
        outcome = asyncio.run(session.dry_run() if dry_run else session.run())
        if outcome.report is not None:
            console.print(summary(outcome.report))
            if before is not None and not outcome.stopped:
                document = comparison_of(before, read_evaluation(place))
                write_document(place / f"{COMPARISON}.html", place / f"{COMPARISON}.json", document)
                console.print(compared(document))
    except GatewayError as error:
        _stop(error.detail if error.field is None else f"{error.field}: {error.detail}")
    except (ValueError, OSError, httpx.InvalidURL) as error:
        _stop(str(error))
    _end(outcome, place, fail_under)


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of an evaluation.")],
    after: Annotated[Path, typer.Argument(help="Folder of the one to compare with it.")],
    html: Annotated[Path | None, typer.Option(help="Write a page.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
) -> None:
    """Compare two evaluations task by task, with how much of the difference may be chance."""
    try:
        document = comparison_of(read_evaluation(before), read_evaluation(after))
        write_document(html, json_file, document)
    except GatewayError as error:
        _stop(error.detail)
    except (ValueError, OSError) as error:
        _stop(str(error))
    console.print(compared(document))


def _end(outcome: Outcome, place: Path, fail_under: float | None) -> None:
    if outcome.report is None:
        if outcome.stopped:
            raise typer.Exit(2)
        return
    files = f"{place / REPORT}.html"
    if outcome.stopped:
        errors.print(f"stopped; the same command goes on from here. So far: {files}", highlight=False, markup=False)
        raise typer.Exit(130)
    errors.print(files, highlight=False, markup=False, soft_wrap=True)
    mean = outcome.report.mean.value
    if fail_under is not None and (mean is None or mean < fail_under):
        reached = "there is no mean" if mean is None else f"the mean is {mean:.3f}"
        errors.print(f"{reached}, --fail-under wants {fail_under}", style="red", highlight=False)
        raise typer.Exit(1)


def _always(estimate: Estimate) -> bool:
    return True


def _asked(estimate: Estimate) -> bool:
    """What is not known to cost anything goes on. Where nobody can be asked, what costs does not."""
    if not estimate.known_usd:
        return True
    if errors.is_terminal and typer.get_text_stream("stdin").isatty():
        return typer.confirm("Go on?", default=True, err=True)
    errors.print("this costs money and nobody can be asked: --yes goes on", style="red", highlight=False)
    return False


def _folder(env: str, model: str, step: int | None) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"
    return f"{env}-{name}" + ("" if step is None else f"-{step}")


def _object(option: str, text: str) -> dict[str, JsonValue]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{option} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{option} is not a JSON object")
    return value


def _stop(words: str) -> NoReturn:
    """Servers' own words may be among them."""
    errors.print(visible(words), style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(2)
