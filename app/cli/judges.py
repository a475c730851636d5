"""`atropos-envs judges`: list judges and measure their quality."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import TypeAdapter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.cli.consoles import AsJson, errors, output_console, stop, stop_on_errors
from app.cli.judge_agreement import agreement
from app.cli.judge_bench import bench
from app.cli.judge_check_report import print_comparison, print_report, write_report
from app.cli.judge_questions import build_packaged_questions, build_short_questions
from app.cli.judge_setup import open_judge_panels
from app.cli.judging_cost import ANSWER_TOKENS, BYTES_PER_TOKEN, find_prices
from app.domain.judging import JudgeRequest, Rubric
from app.domain.runs import ScoringOptions
from app.domain.suggestions import suggest
from app.domain.values import Frozen
from app.envs.npc_arena.environment import NpcArena
from app.judges.budget import estimate_tokens
from app.judges.check_evidence import CheckEvidence
from app.judges.configuration import VerdictForm
from app.judges.form_comparison import compare_forms
from app.judges.meta_evaluation import CheckQuestions, measure_judge
from app.judges.meta_evaluation_report import build_report
from app.judges.offline import NAME as OFFLINE
from app.judges.panels import ConfiguredPanels
from app.judges.prompt import build_prompt
from app.judges.rubric_files import load_rubric
from app.main.components import build_panels
from app.main.discovery import discover
from app.ports.judges import Judge, RepeatingJudge, ReportingJudge
from app.settings import Settings, read_settings

judges = typer.Typer(help="List judges and measure their quality.", no_args_is_help=True)
judges.command("bench")(bench)
judges.command("agreement")(agreement)
console = output_console()


class JudgeLine(Frozen):
    """One judge in the listing. `environments` are those that it scores by default."""

    name: str
    model: str
    environments: tuple[str, ...]
    for_training: bool
    """False for the offline judge, which is only for trying out the system."""


@judges.callback()
def callback() -> None:
    """List judges and measure their quality."""


@judges.command("list")
def list_judges(as_json: AsJson = False) -> None:
    """List judges with their models, the environments that they score, and whether they are fit for training."""
    with stop_on_errors():
        lines = _build_lines(build_panels(read_settings()))
    if as_json:
        typer.echo(TypeAdapter(tuple[JudgeLine, ...]).dump_json(lines, indent=2).decode())
        return
    table = Table("judge", "model", "scores", "for training")
    for line in lines:
        table.add_row(line.name, line.model, ", ".join(line.environments), "yes" if line.for_training else "no")
    console.print(table)


@judges.command()
def check(
    name: Annotated[str | None, typer.Argument(help="Judge name; the first judge of NPC Arena by default.")] = None,
    sheets: Annotated[int, typer.Option(min=1, help="Number of characters whose replies are perturbed.")] = 8,
    votes: Annotated[int, typer.Option(min=1, max=9, help="Votes per pair and presentation order.")] = 1,
    short: Annotated[
        bool, typer.Option("--short", help="Ask about 50 questions, and fail only for what they leave no doubt of.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed for choosing characters and perturbations.")] = 0,
    rubric: Annotated[
        Path | None,
        typer.Option(help="YAML file with a rubric.", show_default="the configured one of NPC Arena, else its own"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="JSON file to write the results to; - prints them.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    compare: Annotated[
        str | None, typer.Option(help="Two forms of answers to compare on this judge, such as long,short.")
    ] = None,
) -> None:
    """Measure how often a judge prefers good replies to perturbed ones.

    Exit code 1: below target. Exit code 2: a budget stopped the check.
    Costs count against the judge budgets in the configured database."""
    with stop_on_errors():
        settings = read_settings()
        panels = build_panels(settings)
    name = name or panels.build_panel(NpcArena.name, ScoringOptions()).judges[0]
    if name not in panels.judges:
        near = suggest(name, panels.judges) or f"; known judges: {', '.join(sorted(panels.judges))}"
        stop(f"unknown judge {name!r}{near}")
    judge = panels.judges[name]
    if votes > 1 and isinstance(judge, RepeatingJudge) and judge.repeats_itself:
        stop(f"--votes {votes}: judge {name!r} has temperature 0, so all its votes would be the same answer")
    chosen = _find_rubric(panels, rubric)
    questions = build_short_questions(seed, chosen) if short else build_packaged_questions(sheets, votes, seed, chosen)
    if compare is not None:
        _compare_forms(name, judge.model, _read_forms(name, compare, settings), settings, questions, json_file, yes)
        return
    _print_estimate(name, questions, settings)
    _confirm_cost_if_priced(name, settings, yes)
    found = _run_check(name, settings, questions)
    checked = build_report(name, panels.judges[name].model, found, short=short)
    if json_file is not None:
        write_report(json_file, checked)
    if str(json_file) != "-":
        print_report(checked)
    if checked.stopped is not None:
        stop(f"stopped: {checked.stopped}; the results cover only the questions answered so far")
    if not checked.passed:
        raise typer.Exit(1)


def _read_forms(name: str, compare: str, settings: Settings) -> tuple[VerdictForm, VerdictForm]:
    known: tuple[VerdictForm, ...] = get_args(VerdictForm)
    chosen = [form for part in compare.split(",") for form in known if form == part.strip()]
    if len(chosen) != 2 or len(set(chosen)) != 2 or compare.count(",") != 1:
        stop(f"--compare {compare}: name two of {', '.join(known)}, such as long,short")
    if name not in settings.judges:
        stop(f"--compare {compare}: judge {name!r} has no model, and so no forms of answers")
    return chosen[0], chosen[1]


def _compare_forms(
    name: str,
    model: str,
    forms: tuple[VerdictForm, VerdictForm],
    settings: Settings,
    questions: CheckQuestions,
    json_file: Path | None,
    yes: bool,
) -> None:
    """Asks every question in both forms, and prints the difference."""
    chosen = [_choose_form(name, form, settings) for form in forms]
    for form, each in zip(forms, chosen, strict=True):
        errors.print(f"{form}:", end=" ")
        _print_estimate(name, questions, each)
    _confirm_cost_if_priced(name, settings, yes)
    first, second = (_run_check(name, each, questions) for each in chosen)
    compared = compare_forms(name, model, forms, first, second)
    if json_file is not None:
        write_report(json_file, compared)
    if str(json_file) != "-":
        print_comparison(compared)
    if reason := first.stopped or second.stopped:
        stop(f"stopped: {reason}; the results cover only the questions answered so far")


def _choose_form(name: str, form: VerdictForm, settings: Settings) -> Settings:
    judge = settings.judges[name].model_copy(update={"verdict_form": form})
    return settings.model_copy(update={"judges": {**settings.judges, name: judge}})


def _run_check(name: str, settings: Settings, questions: CheckQuestions) -> CheckEvidence:
    with stop_on_errors():
        evidence = asyncio.run(_measure_judge(name, settings, questions))
    return evidence


async def _measure_judge(name: str, settings: Settings, questions: CheckQuestions) -> CheckEvidence:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with open_judge_panels(settings) as panels:
        with Progress(*columns, console=errors) as progress:
            bar = progress.add_task(name, total=questions.count)
            found = await measure_judge(panels.judges[name], questions, lambda: progress.advance(bar))
        _print_server_traits(panels.judges[name])
        return found


def _print_server_traits(judge: Judge) -> None:
    """What the server refused or ignored while it was asked."""
    if not isinstance(judge, ReportingJudge):
        return
    report = judge.report()
    for change in report.changes:
        errors.print(f"{judge.name}: {change}, since the server refuses what is configured", markup=False)
    for parameter in report.ignored:
        errors.print(f"{judge.name}: the server ignores {parameter}", markup=False)


def _print_estimate(name: str, questions: CheckQuestions, settings: Settings) -> None:
    if name == OFFLINE:
        words = f"{questions.count} questions, no calls: the offline judge has no model"
    else:
        form = settings.judges[name].verdict_form
        rewards = settings.judges[name].kind == "reward_model"
        texts = [
            text for request in questions.iterate_requests() for text in _list_texts(request, form, rewards=rewards)
        ]
        tokens = estimate_tokens(texts, bytes_per_token=BYTES_PER_TOKEN)
        answers = 0 if rewards else questions.count * 2 * ANSWER_TOKENS[form]
        calls = len(texts) if rewards else questions.count
        cost = find_prices(name, settings).compute_cost(tokens, answers)
        words = (
            f"{calls} calls to {name}, about {tokens:,} prompt tokens and {answers:,} completion tokens"
            + (f", about {cost:.2f} US dollars" if find_prices(name, settings).are_known else ", price unknown")
            + "; more if answers need corrections or retries"
        )
    errors.print(words, highlight=False, markup=False)


def _list_texts(request: JudgeRequest, form: VerdictForm, *, rewards: bool) -> list[str]:
    """What a judge reads. A reward model reads the conversation once for each reply."""
    if not rewards:
        prompt = build_prompt(request, form)
        return [prompt.system, prompt.user]
    before = "".join(message.content or "" for message in request.conversation)
    return [before + candidate.text for candidate in request.candidates]


def _confirm_cost_if_priced(name: str, settings: Settings, yes: bool) -> None:
    if yes or not find_prices(name, settings).are_known or find_prices(name, settings).compute_cost(10**6, 10**6) == 0:
        return
    if not sys.stdin.isatty():
        stop("this judge costs money: confirm with --yes")
    typer.confirm("Continue?", abort=True, err=True)


def _find_rubric(panels: ConfiguredPanels, file: Path | None) -> Rubric | None:
    try:
        options = ScoringOptions(rubric=None if file is None else load_rubric(file))
    except ValueError as error:
        stop(str(error))
    return panels.resolve_options(NpcArena.name, options).rubric


def _build_lines(panels: ConfiguredPanels) -> tuple[JudgeLine, ...]:
    scored = {
        environment: panels.build_panel(environment, ScoringOptions()).judges
        for environment, found in sorted(discover().items())
        if found.rubric is not None
    }
    return tuple(
        JudgeLine(
            name=name,
            model=judge.model,
            environments=tuple(environment for environment, names in scored.items() if name in names),
            for_training=name != OFFLINE,
        )
        for name, judge in sorted(panels.judges.items())
    )
