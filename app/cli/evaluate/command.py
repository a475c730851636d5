"""`atropos-envs evaluate` and `atropos-envs compare`: options, entry points and tables."""

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

from app.cli.campaigns import check_run_name, tell_outcome, write_document
from app.cli.evaluate.attempts import COMPARISON, REPORT, EvaluationSpec, read_evaluation
from app.cli.evaluate.session import EvaluationSession, TokenOptions
from app.cli.policies import (
    CONNECTIONS,
    COST_AND_CHECKS,
    TASKS,
    CheckTokens,
    Concurrency,
    Endpoints,
    EnvironmentParams,
    ExtraFields,
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
from app.domain.values import Split
from app.evaluation.comparison import Comparison, Difference, compare_evaluations
from app.evaluation.report import EvaluationReport, MeanEstimate
from app.inference.policies import SamplingParameters
from app.inference.tokens import LocalTokenizer
from app.terminal import ADVANCED
from app.terminal.client import find_gateway_url, read_policy_key
from app.terminal.completion import complete_environment, complete_run
from app.terminal.consoles import (
    AsJson,
    confirm_cost,
    errors,
    format_figure,
    format_interval,
    output_console,
    parse_object,
    parse_params,
    print_json,
    stop_on_errors,
)
from app.toolkit.texts import escape_invisible, format_p_value

_console = output_console()


def evaluate(
    policy: PolicyUrl,
    model: PolicyModel,
    env: Annotated[
        str, typer.Option(help="Environment name.", rich_help_panel=TASKS, autocompletion=complete_environment)
    ],
    split: Annotated[Split, typer.Option(help="Split to evaluate.", rich_help_panel=TASKS)] = "test",
    params: EnvironmentParams = "{}",
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="the whole split; 100 if it is endless",
            help="Number of tasks.",
            rich_help_panel=TASKS,
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=256, help="Attempts per task.", rich_help_panel=TASKS)] = 1,
    run: Annotated[
        str, typer.Option(help="Run name to store results under.", rich_help_panel=TASKS, autocompletion=complete_run)
    ] = "evaluation",
    step: PolicyStep = None,
    pass_at: Annotated[
        float, typer.Option(min=0, max=1, help="Minimum reward that counts as a pass.", rich_help_panel=TASKS)
    ] = 1.0,
    url: GatewayUrl = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder.", show_default="evaluations/<env>-<model>", rich_help_panel=CONNECTIONS),
    ] = None,
    max_tokens: MaxTokens = 1_024,
    temperature: Temperature = 1.0,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=2**53 - 1, help="Seed for task order, sampling and bootstrap.", rich_help_panel=ADVANCED
        ),
    ] = 0,
    top_p: TopP = None,
    extra: ExtraFields = "{}",
    concurrency: Concurrency = 32,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to keep retrying a failing server.", rich_help_panel=ADVANCED)
    ] = 600.0,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json file for the token estimate.", rich_help_panel=ADVANCED)
    ] = None,
    keep_tokens: Annotated[
        bool,
        typer.Option(
            "--keep-tokens", help="Write the server's token ids of each turn to tokens.jsonl.", rich_help_panel=ADVANCED
        ),
    ] = False,
    store_tokens: StoreTokens = False,
    check_tokens: CheckTokens = False,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the estimate and exit.", rich_help_panel=COST_AND_CHECKS)
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Skip the confirmation prompt.", rich_help_panel=COST_AND_CHECKS)
    ] = False,
    fail_under: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Exit with code 1 if the mean reward is lower.", rich_help_panel=COST_AND_CHECKS
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder of a finished evaluation to compare with.", rich_help_panel=COST_AND_CHECKS),
    ] = None,
    api_key: GatewayKey = "",
    api_key_env: PolicyKeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on the tasks of a held-out split and write a report.

    To resume, repeat the command with the same --out."""
    url = url or find_gateway_url()
    folder = out or Path("evaluations") / _name_folder(env, model, step)
    with stop_on_errors(also=httpx.InvalidURL):
        require_tokenizer(check_tokens, tokenizer)
        session = EvaluationSession(
            spec=EvaluationSpec(
                environment=env,
                split=split,
                params=parse_params(params),
                tasks=tasks,
                samples=samples,
                run=check_run_name(run),
                model=model,
                step=step,
                seed=seed,
                sampling=SamplingParameters(temperature, max_tokens, top_p, parse_object("--extra", extra)),
            ),
            ends=Endpoints(
                gateway=url,
                gateway_key=api_key,
                policy=policy,
                policy_key=read_policy_key(api_key_env),
                out=folder,
            ),
            concurrency=concurrency,
            patience_seconds=patience,
            prices=PolicyPrices(input_price, output_price),
            threshold=pass_at,
            tokenizer=None if tokenizer is None else LocalTokenizer.read(tokenizer),
            console=errors,
            go_on=partial(confirm_cost, yes=yes),
            tokens=TokenOptions(keep_tokens, store_tokens, check_tokens),
        )
        before = None if against is None else read_evaluation(against)
        outcome = asyncio.run(session.dry_run() if dry_run else session.run())
        if outcome.report is not None:
            if as_json:
                print_json(outcome.report)
            else:
                _console.print(build_summary(outcome.report))
            if before is not None and not outcome.stopped:
                document = compare_evaluations(before, read_evaluation(folder))
                write_document(folder / f"{COMPARISON}.html", folder / f"{COMPARISON}.json", document)
                if not as_json:
                    _console.print(_build_comparison_summary(document))
    if tell_outcome(outcome, folder / f"{REPORT}.html"):
        _require_mean(outcome.report, fail_under)


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of the first evaluation.")],
    after: Annotated[Path, typer.Argument(help="Folder of the second evaluation.")],
    html: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations task by task and test the differences for significance."""
    with stop_on_errors():
        document = compare_evaluations(read_evaluation(before), read_evaluation(after))
        write_document(html, None, document)
    if as_json:
        print_json(document)
    else:
        _console.print(_build_comparison_summary(document))


def _require_mean(report: EvaluationReport | None, fail_under: float | None) -> None:
    mean = None if report is None else report.mean.value
    if fail_under is not None and (mean is None or mean < fail_under):
        reached = "no mean reward" if mean is None else f"mean reward {mean:.3f}"
        errors.print(f"{reached}, --fail-under is {fail_under}", style="red", highlight=False)
        raise typer.Exit(1)


def _name_folder(env: str, model: str, step: int | None) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"
    return f"{env}-{name}" + ("" if step is None else f"-{step}")


# Tables.


def build_summary(report: EvaluationReport) -> RenderableType:
    setup, counts = report.setup, report.counts
    table = Table(title=f"{escape(setup.environment)}, {setup.split}: {escape(setup.checkpoint)}")
    for column in ("", "value", "95 % interval", "tasks"):
        table.add_column(column, justify="left" if column in ("", "95 % interval") else "right")
    table.add_row(f"mean reward{escape(escape_invisible(setup.rule))}", *_format_cells(report.mean))
    if report.calibrated.tasks:
        table.add_row("calibrated", *_format_cells(report.calibrated))
        table.add_row("mean reward of the same tasks", *_format_cells(report.calibrated_tasks))
    for at in report.passes:
        table.add_row(f"pass@{at.k}{escape(escape_invisible(setup.rule))}", *_format_cells(at.rate))
    for rows in (report.criteria if len(report.criteria) > 1 else (), report.labels):
        table.add_section()
        for row in rows:
            table.add_row(escape(escape_invisible(row.name)), *_format_cells(row.mean))
    lines = [f"{counts.scored:,} of {counts.asked:,} attempts scored, {counts.passed:,} passed"]
    lines += [f"{row.attempts:,} unscored: {row.reason} ({row.detail})" for row in report.unscored]
    lines += [f"{caution.code}: {caution.text}" for caution in report.cautions]
    return Group(table, *(Text(escape_invisible(line)) for line in lines))


def _build_comparison_summary(comparison: Comparison) -> RenderableType:
    table = Table(
        title=f"{escape(comparison.before.checkpoint)} → {escape(comparison.after.checkpoint)}: {comparison.verdict}"
    )
    for column in ("", "before", "after", "difference", "95 % interval", "p"):
        table.add_column(column, justify="left" if column in ("", "95 % interval") else "right")
    rule = escape(escape_invisible(comparison.after.rule))
    table.add_row(f"mean reward{rule}", *_format_before_and_after(comparison.overall, comparison.overall.p))
    for one in (*comparison.passes, *comparison.criteria, *comparison.labels):
        table.add_row(escape(escape_invisible(one.name)), *_format_before_and_after(one, one.adjusted_p))
    moved = f"{comparison.improved:,} better, {comparison.declined:,} worse"
    lines = [f"{comparison.tasks:,} tasks with a score in both, {moved}"]
    lines += [f"{one.what}: {one.before} before, {one.after} after" for one in comparison.obstacles]
    lines += [f"{caution.code}: {caution.text}" for caution in comparison.cautions]
    return Group(table, *(Text(escape_invisible(line)) for line in lines))


def _format_cells(estimate: MeanEstimate) -> tuple[str, str, str]:
    return format_figure(estimate.value), format_interval(estimate.low, estimate.high), str(estimate.tasks)


def _format_before_and_after(one: Difference, p: float) -> tuple[str, ...]:
    difference = one.difference
    return (
        format_figure(one.before),
        format_figure(one.after),
        format_figure(difference.value, "+.3f"),
        format_interval(difference.low, difference.high),
        "-" if difference.low is None else format_p_value(p),
    )
