"""`atropos-envs judges bench`: how far a judge agrees with people's labels, in each mode, and what that costs."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Final, TypeVar, get_args

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.cli.consoles import AsJson, errors, output_console, print_json, stop_on_errors
from app.cli.judge_setup import open_judge_panels
from app.cli.judging_cost import JudgeGroup, estimate_judging_cost, find_prices, is_reward_model
from app.cli.label_replay import (
    BenchFigures,
    LabelledSituation,
    build_figures,
    build_situation,
    judge_situation,
    judge_situations,
)
from app.datasets.configured_datasets import ConfiguredDatasets
from app.datasets.single_table import read_table
from app.domain.errors import InvalidRequest
from app.domain.judging import Mode
from app.domain.suggestions import suggest
from app.domain.values import Frozen
from app.evaluation.label_agreement import AgreementFigure
from app.evaluation.labelled_groups import LabelledData, LabelledGroup, RowForm, parse_labelled_rows
from app.main.discovery import discover
from app.ports.judges import Panels
from app.service.catalogue import Catalogue
from app.settings import Settings, read_settings
from app.toolkit.display import escape_invisible

MODES: Final = ",".join(get_args(Mode))
GROUPS_ESTIMATED: Final = 50
"""Prompts of so many groups are built for the estimate."""


class BenchReport(Frozen):
    judge: str
    model: str
    labels: str
    form: RowForm
    left_out: dict[str, int]
    modes: tuple[BenchFigures, ...]


def bench(
    judge: Annotated[str, typer.Option(help="Judge to measure.")],
    labels: Annotated[str, typer.Option(metavar="FILE|HUB", help="Labelled replies: a file, or a data set's hub id.")],
    split: Annotated[str | None, typer.Option(help="Split of the data set on the hub.")] = None,
    subset: Annotated[str | None, typer.Option(help="Configuration of the data set on the hub.")] = None,
    rows: Annotated[RowForm | None, typer.Option(help="Form of the rows.", show_default="told by the columns")] = None,
    modes: Annotated[str, typer.Option(help="Modes to measure.")] = MODES,
    limit: Annotated[int | None, typer.Option(min=1, help="Most groups, spread evenly over the data.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the intervals' resampling.")] = 0,
    as_json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Measure how far a judge agrees with people's labels: pair accuracy, correlation, calls, tokens, dollars.

    Every judgement is stored when it arrives. A bench that was stopped goes on where it was: start it again."""
    with stop_on_errors():
        settings = read_settings()
        data = _thin_out(parse_labelled_rows(read_table(labels, split, subset), rows), limit)
        report = asyncio.run(_run_bench(settings, judge, data, _parse_modes(modes), labels, seed, yes))
    if as_json:
        print_json(report)
    else:
        _print_report(report)


async def _run_bench(
    settings: Settings, judge: str, data: LabelledData, modes: Sequence[Mode], labels: str, seed: int, yes: bool
) -> BenchReport:
    situations = _build_situations(data.groups, settings)
    single = all(len(one.group.replies) == 1 for one in situations)
    modes = ("pointwise",) if single else modes
    async with open_judge_panels(settings, reuse=True) as panels:
        if judge not in panels.judges:
            near = suggest(judge, panels.judges) or f"; known judges: {', '.join(sorted(panels.judges))}"
            raise InvalidRequest(f"unknown judge {judge!r}{near}")
        await _announce_cost(judge, situations, modes, settings, yes)
        measured = [await _measure_mode(situations, panels, judge, mode, seed) for mode in modes]
    return BenchReport(
        judge=judge,
        model=panels.judges[judge].model,
        labels=labels,
        form=data.form,
        left_out=dict(data.left_out),
        modes=tuple(measured),
    )


def _build_situations(groups: Sequence[LabelledGroup], settings: Settings) -> tuple[LabelledSituation, ...]:
    """InvalidRequest names the group and the field of its draft."""
    known = {name: found for name, found in discover().items() if found.rubric is not None and found.Draft is not None}
    for group in groups:
        if group.environment not in known:
            near = suggest(group.environment, known) or f"; those that judges score: {', '.join(sorted(known))}"
            raise InvalidRequest(f"group {group.id}: unknown environment {group.environment!r}{near}")
    named = {group.environment for group in groups}
    catalogue = Catalogue({name: known[name] for name in named})
    folders = {"character_sheets": settings.character_sheets}
    catalogue.open(ConfiguredDatasets({}, folders=folders))
    return tuple(build_situation(group, catalogue) for group in groups)


async def _announce_cost(
    judge: str, situations: Sequence[LabelledSituation], modes: Sequence[Mode], settings: Settings, yes: bool
) -> None:
    """Says what the bench will cost, and asks when the judge has a price. What is in the cache costs nothing."""
    total = 0.0
    if is_reward_model(judge, settings):
        errors.print(f"{judge} is a reward model: it reads each reply once; its cost is not estimated")
        modes = ()
    for mode in modes:
        some = _take_evenly(situations, GROUPS_ESTIMATED)
        for cost in await estimate_judging_cost([judge], [_defer(one, judge, mode) for one in some], settings):
            groups = len(situations)
            total += 0.0 if cost.usd is None else groups * cost.usd[1]
            price = "price unknown" if cost.usd is None else f"at most about {groups * cost.usd[1]:.2f} US dollars"
            errors.print(
                f"{mode}: {groups * cost.calls[0]:,.0f} to {groups * cost.calls[1]:,.0f} calls, about "
                f"{groups * cost.input_tokens[0]:,.0f} prompt tokens or more, {price}",
                highlight=False,
            )
    if yes or (total == 0 and not (is_reward_model(judge, settings) and find_prices(judge, settings).are_known)):
        return
    if not sys.stdin.isatty():
        raise ValueError("this judge costs money: confirm with --yes")
    typer.confirm("Continue? Judgements of an earlier bench cost nothing again.", abort=True, err=True)


def _defer(situation: LabelledSituation, judge: str, mode: Mode) -> JudgeGroup:
    return lambda panels: judge_situation(situation, panels, judge, mode)


async def _measure_mode(
    situations: Sequence[LabelledSituation], panels: Panels, judge: str, mode: Mode, seed: int
) -> BenchFigures:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors) as progress:
        bar = progress.add_task(f"{judge}, {mode}", total=len(situations))
        judged = await judge_situations(situations, panels, judge, mode, lambda: progress.advance(bar))
    return build_figures(situations, judged, mode, seed)


def _thin_out(data: LabelledData, limit: int | None) -> LabelledData:
    return data if limit is None else LabelledData(data.form, _take_evenly(data.groups, limit), data.left_out)


ItemT = TypeVar("ItemT")


def _take_evenly(items: Sequence[ItemT], most: int) -> tuple[ItemT, ...]:
    if len(items) <= most:
        return tuple(items)
    return tuple(items[place * len(items) // most] for place in range(most))


def _parse_modes(given: str) -> tuple[Mode, ...]:
    """ValueError names the nearest one."""
    modes: list[Mode] = []
    for name in filter(None, map(str.strip, given.split(","))):
        found = next((mode for mode in get_args(Mode) if mode == name), None)
        if found is None:
            raise ValueError(f"--modes: unknown {name!r}{suggest(name, get_args(Mode)) or f'; known: {MODES}'}")
        modes.append(found)
    return tuple(dict.fromkeys(modes))


def _print_report(report: BenchReport) -> None:
    console = output_console()
    console.print(_build_table(report))
    for figures in report.modes:
        for subset, accuracy in figures.subsets.items():
            words = f"{figures.mode}, {subset}: {_format_figure(accuracy)}"
            console.print(escape_invisible(words), highlight=False, markup=False)
    for reason, count in report.left_out.items():
        console.print(escape_invisible(f"left out: {count} rows, {reason}"), highlight=False, markup=False)
    for figures in report.modes:
        for words in figures.failures:
            told = escape_invisible(f"{figures.mode}, unscored: {words}")
            console.print(told, style="red", highlight=False, markup=False)


def _build_table(report: BenchReport) -> Table:
    table = Table(title=escape(escape_invisible(f"{report.judge} ({report.model}) on {report.labels}")))
    for title in ("mode", "groups", "unscored", "pair accuracy", "r", "calls", "tokens in", "out", "$ / 1,000 groups"):
        table.add_column(title, no_wrap=True)
    for one in report.modes:
        cost = one.usd_per_thousand_groups
        table.add_row(
            one.mode,
            str(one.groups),
            str(one.unscored),
            _format_figure(one.pair_accuracy),
            _format_figure(one.correlation),
            f"{one.calls_per_group:.1f}",
            f"{one.input_tokens_per_group:,.0f}",
            f"{one.output_tokens_per_group:,.0f}",
            "" if cost is None else f"{cost:.2f}",
        )
    return table


def _format_figure(figure: AgreementFigure) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "not measured"
    return f"{figure.value:.3f} [{figure.low:.2f}, {figure.high:.2f}]"
