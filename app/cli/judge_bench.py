"""Judges for commands that run without a service, and `atropos-envs judges bench`.

Such commands have the configured store: their calls count against the same budgets as those of the service, and every
judgement is stored as it arrives. `bench` replays replies that people have labelled as groups of a run are judged,
gates included."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, get_args

import typer
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from app.cli.costs import JudgeGroup, estimate_judging_cost, is_reward_model
from app.datasets.configured_datasets import ConfiguredDatasets, read_table
from app.domain.errors import GatewayError, InvalidRequest, UserError
from app.domain.faults import explain_faults
from app.domain.judge_measurements import JudgeMeasurement, build_judge_command
from app.domain.judging import Mode, PanelResult
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, Task
from app.domain.values import suggest, take_evenly, utc_now
from app.evaluation.agreement import AgreementFigure
from app.evaluation.judge_bench import (
    FIGURE_NAMES,
    BenchFigures,
    BenchReport,
    build_figures,
    get_headline,
    list_measured_figures,
    list_published_figures,
    measure_baselines,
)
from app.evaluation.labelled_groups import LabelledData, LabelledGroup, RowForm, parse_labelled_rows
from app.judges.chat_judge import WriteOnlyMemory
from app.judges.panel import ConfiguredPanels
from app.main.components import build_panels, discover
from app.main.store import Store
from app.ports.environment import Environment, ManagedResource, NoPrograms, NoWorkers
from app.ports.judges import Panel, Panels
from app.service.catalogue import Catalogue
from app.service.judging import score_completions
from app.settings import Settings, read_settings
from app.store.database import describe
from app.terminal import ADVANCED
from app.terminal.completion import complete_judge
from app.terminal.consoles import (
    AsJson,
    errors,
    format_bracketed,
    format_figure,
    output_console,
    print_json,
    require_consent,
    show_bars,
    stop_on_errors,
)
from app.toolkit.templates import find_packaged_folder
from app.toolkit.texts import escape_invisible

# The store and the judges.


def say_store(settings: Settings) -> None:
    """On stderr, before it is opened: a file is relative to the folder one stands in. UserError for a URL that is
    none."""
    typer.echo(f"store: {describe(settings.database_url)}", err=True)


@contextlib.asynccontextmanager
async def open_configured_store(settings: Settings) -> AsyncIterator[Store]:
    """The configured store, closed at exit; prints which one. StoreUnavailable when it cannot be opened."""
    say_store(settings)
    async with _open_store(settings) as store:
        yield store


@contextlib.asynccontextmanager
async def _open_store(settings: Settings) -> AsyncIterator[Store]:
    store = await asyncio.to_thread(
        Store.open,
        settings.database_url,
        find_packaged_folder("migrations"),
        prepare=settings.database_prepared_statements,
    )
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def open_judge_panels(settings: Settings, *, reuse: bool = False) -> AsyncIterator[ConfiguredPanels]:
    """The configured judges, opened, with budgets and spending in the configured store. All of them are opened, since
    one may be the fallback of another. The judge cache is written, and read only with `reuse`."""
    if not settings.judges:
        yield build_panels(settings)
        return
    async with open_configured_store(settings) as store:
        panels = build_panels(settings, store.judge_cache if reuse else WriteOnlyMemory(store.judge_cache))
        judges = [judge for judge in panels.judges.values() if isinstance(judge, ManagedResource)]
        await asyncio.gather(*(judge.open() for judge in judges))
        try:
            yield panels
        finally:
            await asyncio.gather(*(judge.close() for judge in judges))


# What was measured of a judge.


async def keep_measurement(settings: Settings, measured: JudgeMeasurement) -> None:
    async with _open_store(settings) as store:
        await store.judge_measurements.put(measured)


# `judges bench`.

_MOST_IN_FLIGHT: Final = 32
"""Groups; the judge's own limits may be tighter."""


@dataclass(frozen=True)
class _LabelledSituation:
    group: LabelledGroup
    environment: Environment
    task: Task


def build_situation(group: LabelledGroup, catalogue: Catalogue) -> _LabelledSituation:
    environment = catalogue.get_environment_or_current(group.environment).environment
    if environment.Draft is None:
        raise InvalidRequest(f"group {group.id}: {group.environment} takes no drafts")
    try:
        made = environment.draft(environment.Draft.model_validate(group.draft))
    except ValidationError as error:
        fault = explain_faults(error, environment.Draft, base=("draft",))[0]
        raise InvalidRequest(f"group {group.id}: {fault.sentence}") from None
    except GatewayError as error:
        where = "" if error.field is None else f"{error.field}: "
        raise InvalidRequest(f"group {group.id}: {where}{error.detail}") from None
    return _LabelledSituation(group, made.environment, made.task)


async def judge_situations(
    situations: Sequence[_LabelledSituation],
    panels: ConfiguredPanels,
    judge: str,
    mode: Mode,
    judged: Callable[[], None],
    time: int = 0,
) -> Sequence[PanelResult]:
    """`time`: how often they were judged before."""
    gate = asyncio.Semaphore(_MOST_IN_FLIGHT)
    options = ScoringOptions(mode=mode, judges=(judge,))
    names = {situation.group.environment for situation in situations}
    built = {name: panels.build_repeated_panel(name, options, time) for name in names}

    async def judge_one(situation: _LabelledSituation) -> PanelResult:
        async with gate:
            result = await _judge_situation(situation, built[situation.group.environment], options)
        judged()
        return result

    return await asyncio.gather(*map(judge_one, situations))


async def _judge_situation(situation: _LabelledSituation, panel: Panel, options: ScoringOptions) -> PanelResult:
    """As a run's groups are judged, gates included."""
    group = situation.group
    completions = [Completion(text=reply.text) for reply in group.replies]
    return await score_completions(
        situation.environment,
        situation.task,
        completions,
        options,
        panel,
        NoWorkers(),
        NoPrograms(),
        what=f"bench, {group.id}",
    )


_MODES: Final = ",".join(get_args(Mode))
_GROUPS_ESTIMATED: Final = 50
"""Prompts of so many groups are built for the estimate."""


def bench(
    judge: Annotated[str, typer.Option(help="Judge to measure.", autocompletion=complete_judge)],
    labels: Annotated[str, typer.Option(metavar="FILE|HUB", help="Labelled replies: a file, or a data set's hub id.")],
    split: Annotated[str | None, typer.Option(help="Split of the data set on the hub.")] = None,
    subset: Annotated[str | None, typer.Option(help="Configuration of the data set on the hub.")] = None,
    rows: Annotated[
        RowForm | None,
        typer.Option(help="Form of the rows.", show_default="told by the columns", rich_help_panel=ADVANCED),
    ] = None,
    modes: Annotated[str, typer.Option(help="Modes to measure.", rich_help_panel=ADVANCED)] = _MODES,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of groups, spread evenly over the data.")
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, max=9, help="How often each group is judged, to measure agreement with itself.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the 95 % intervals.", rich_help_panel=ADVANCED)] = 0,
    as_json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Measure a judge on replies that people have rated: accuracy, consistency, calls, tokens, seconds, dollars.

    Each judgement is stored at once. To resume, repeat the command. The figures are kept for the judge's page."""
    with stop_on_errors():
        settings = read_settings()
        table = read_table(labels, split, subset)
        places, found = [place for place, _ in table], [row for _, row in table]
        data = _thin_out(parse_labelled_rows(found, rows, places), limit)
        options = {"labels": labels, "split": split, "subset": subset, "rows": rows, "limit": limit}
        chosen = options | {"modes": None if modes == _MODES else modes, "repeat": None if repeat == 1 else repeat}
        asked = _Bench(
            judge, labels, data, _parse_modes(modes), repeat, seed, build_judge_command("bench", judge, chosen)
        )
        report, measured = asyncio.run(_run_bench(settings, asked, yes=yes))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    with stop_on_errors():
        asyncio.run(keep_measurement(settings, measured))


@dataclass(frozen=True)
class _Bench:
    """What `bench` was told."""

    judge: str
    labels: str
    data: LabelledData
    modes: tuple[Mode, ...]
    repeat: int
    seed: int
    command: str


async def _run_bench(settings: Settings, bench: _Bench, *, yes: bool) -> tuple[BenchReport, JudgeMeasurement]:
    data = bench.data
    situations = _build_situations(data.groups, settings)
    single = all(len(one.group.replies) == 1 for one in situations)
    modes: tuple[Mode, ...] = ("pointwise",) if single else bench.modes
    async with open_judge_panels(settings, reuse=True) as panels:
        judge = panels.judges.get(bench.judge)
        if judge is None:
            near = suggest(bench.judge, panels.judges) or f"; known judges: {', '.join(sorted(panels.judges))}"
            raise InvalidRequest(f"unknown judge {bench.judge!r}{near}")
        await _announce_cost(bench, situations, modes, settings, yes=yes)
        measured = [await _measure_mode(bench, situations, panels, mode) for mode in modes]
    report = BenchReport(
        judge=judge.name,
        model=judge.model,
        labels=bench.labels,
        form=data.form,
        headline=get_headline(data.form),
        repeat=bench.repeat,
        left_out=dict(data.left_out),
        baselines=measure_baselines(data.groups, bench.seed),
        modes=tuple(measured),
        published=list_published_figures(data.form),
    )
    return report, JudgeMeasurement(
        kind="bench",
        judge=judge.name,
        model=judge.model,
        judge_digest=judge.digest,
        command=bench.command,
        form=data.form,
        measured_at=utc_now(),
        figures=list_measured_figures(report),
    )


def _build_situations(groups: Sequence[LabelledGroup], settings: Settings) -> tuple[_LabelledSituation, ...]:
    """InvalidRequest names the group and the field of its draft."""
    judged = {name: kind for name, kind in discover().items() if kind.rubric is not None and kind.Draft is not None}
    for group in groups:
        if group.environment not in judged:
            near = suggest(group.environment, judged) or f"; those that judges score: {', '.join(sorted(judged))}"
            raise InvalidRequest(f"group {group.id}: unknown environment {group.environment!r}{near}")
    named = {group.environment for group in groups}
    catalogue = Catalogue({name: judged[name] for name in named})
    folders = {"character_sheets": settings.character_sheets}
    catalogue.open(ConfiguredDatasets({}, folders=folders))
    return tuple(build_situation(group, catalogue) for group in groups)


async def _announce_cost(
    bench: _Bench, situations: Sequence[_LabelledSituation], modes: Sequence[Mode], settings: Settings, *, yes: bool
) -> None:
    """Says what the bench will cost, and asks unless it is nothing. What is in the cache costs nothing."""
    judge = bench.judge
    total: float | None = 0.0
    if is_reward_model(judge, settings):
        errors.print(f"{judge} is a reward model: it reads each reply once; its cost is not estimated")
        total, modes = None, ()
    for mode in modes:
        some = take_evenly(situations, _GROUPS_ESTIMATED)
        for cost in await estimate_judging_cost([judge], [_defer(one, judge, mode) for one in some], settings):
            whole = cost.scale(len(situations) * bench.repeat)
            total = None if total is None or whole.most_usd is None else total + whole.most_usd
            errors.print(f"{mode}: {whole.describe()}; retries come on top", highlight=False)
    question = "Continue? Judgements of an earlier bench cost nothing again."
    require_consent(total, yes=yes, question=question)


def _defer(situation: _LabelledSituation, judge: str, mode: Mode) -> JudgeGroup:
    options = ScoringOptions(mode=mode, judges=(judge,))

    async def judge_once(panels: Panels) -> PanelResult:
        return await _judge_situation(situation, panels.build_panel(situation.group.environment, options), options)

    return judge_once


async def _measure_mode(
    bench: _Bench, situations: Sequence[_LabelledSituation], panels: ConfiguredPanels, mode: Mode
) -> BenchFigures:
    with show_bars() as bars:
        bar = bars.add(f"{bench.judge}, {mode}", len(situations) * bench.repeat)
        judged, *repeats = [
            await judge_situations(situations, panels, bench.judge, mode, bar.advance, time)
            for time in range(bench.repeat)
        ]
    return build_figures(bench.data.groups, judged, mode, bench.seed, get_headline(bench.data.form), repeats)


def _thin_out(data: LabelledData, limit: int | None) -> LabelledData:
    return data if limit is None else LabelledData(data.form, take_evenly(data.groups, limit), data.left_out)


def _parse_modes(names: str) -> tuple[Mode, ...]:
    """UserError names the nearest one."""
    modes: list[Mode] = []
    for name in filter(None, map(str.strip, names.split(","))):
        mode = next((each for each in get_args(Mode) if each == name), None)
        if mode is None:
            raise UserError(f"--modes: unknown {name!r}{suggest(name, get_args(Mode)) or f'; known: {_MODES}'}")
        modes.append(mode)
    return tuple(dict.fromkeys(modes))


def _print_report(report: BenchReport) -> None:
    console = output_console()
    console.print(_build_table(report))
    for words in _describe_rest(report):
        console.print(escape_invisible(words), highlight=False, markup=False, soft_wrap=True)
    for figures in report.modes:
        for words in figures.failures:
            line = escape_invisible(f"{figures.mode}, unscored: {words}")
            console.print(line, style="red", highlight=False, markup=False)


def _describe_rest(report: BenchReport) -> Iterator[str]:
    """What stands below the table."""
    share = report.baselines.most_frequent_label
    if share is not None and all(one.consistent_accuracy.trials == 0 for one in report.modes):
        yield f"{share:.0%} of the replies have the same label: who always gives it is right as often"
    for figures in report.modes:
        for subset, figure in figures.subsets.items():
            name = FIGURE_NAMES[report.headline]
            yield f"{figures.mode}, {subset}: {name} {format_bracketed(figure, 'not measured')}"
    for one in report.published:
        name = FIGURE_NAMES.get(one.figure, one.figure)
        yield f"published, {one.judge}: {one.value:.3f} ({name}; {one.data}; {one.known}: {one.source}, {one.date})"
    for reason, count in report.left_out.items():
        yield f"left out: {count} rows, {reason}"


def _build_table(report: BenchReport) -> Table:
    """A column for each mode, then those of judges that understand nothing."""
    table = Table(title=escape(escape_invisible(f"{report.judge} ({report.model}) on {report.labels}")))
    for title in ("figure", *(one.mode for one in report.modes), "all equal", "longer reply"):
        table.add_column(title, no_wrap=True)
    table.add_row("groups", *(str(one.groups) for one in report.modes))
    table.add_row("unscored", *(str(one.unscored) for one in report.modes))
    for field, name in FIGURE_NAMES.items():
        figures: list[AgreementFigure] = [getattr(one, field) for one in report.modes]
        if any(figure.value is not None for figure in figures):
            beside = (format_figure(value, missing="") for value in report.baselines.list_beside(field))
            table.add_row(name, *(format_bracketed(figure, "-") for figure in figures), *beside)
    if report.repeat > 1:
        table.add_row("ICC of repeats", *(format_figure(one.retest) for one in report.modes))
    table.add_row("calls", *(f"{one.calls_per_group:.1f}" for one in report.modes))
    table.add_row("tokens in", *(f"{one.input_tokens_per_group:,.0f}" for one in report.modes))
    table.add_row("tokens out", *(f"{one.output_tokens_per_group:,.0f}" for one in report.modes))
    table.add_row("seconds a reading", *(f"{one.seconds_per_reading:.1f}" for one in report.modes))
    costs = [one.usd_per_thousand_groups for one in report.modes]
    if any(cost is not None for cost in costs):
        table.add_row("$ / 1,000 groups", *(format_figure(cost, ".2f") for cost in costs))
    return table
