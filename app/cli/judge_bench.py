"""Judges for commands that run without a service, and `atropos-envs judges bench`.

Such commands have the configured store: their calls count against the same budgets as those of the service, and every
judgement is stored as it arrives. `bench` replays replies that people have labelled as groups of a run are judged,
gates included."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
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
from app.domain.judging import Mode, PanelResult
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import FiniteNumber, Frozen, suggest, take_evenly
from app.evaluation.agreement import (
    AgreementFigure,
    JudgedLabels,
    measure_label_agreement,
)
from app.evaluation.labelled_groups import LabelledData, LabelledGroup, RowForm, parse_labelled_rows
from app.judges.chat_judge import WriteOnlyMemory
from app.judges.panel import ConfiguredPanels
from app.main.components import build_panels, discover
from app.main.store import Store
from app.ports.environment import Environment, ManagedResource, NoPrograms, NoWorkers
from app.ports.judges import Panels
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


# `judges bench`.

_MOST_IN_FLIGHT: Final = 32
"""Groups; the judge's own limits may be tighter."""


class BenchFigures(Frozen):
    """One mode. Calls, tokens and money are means over the groups that were judged, cached judgements included."""

    mode: Mode
    groups: int
    unscored: int
    """Groups without a reward, because the judge failed."""
    pair_accuracy: AgreementFigure
    correlation: AgreementFigure
    calls_per_group: FiniteNumber
    input_tokens_per_group: FiniteNumber
    output_tokens_per_group: FiniteNumber
    usd_per_thousand_groups: FiniteNumber | None
    """Null without prices."""
    subsets: dict[str, AgreementFigure] = {}
    """Pair accuracy of each part of the data set, where it has several."""
    failures: tuple[str, ...] = ()
    """The first few reasons of unscored groups."""


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
    situations: Sequence[_LabelledSituation], panels: Panels, judge: str, mode: Mode, judged: Callable[[], None]
) -> Sequence[PanelResult]:
    gate = asyncio.Semaphore(_MOST_IN_FLIGHT)

    async def judge_one(situation: _LabelledSituation) -> PanelResult:
        async with gate:
            result = await _judge_situation(situation, panels, judge, mode)
        judged()
        return result

    return await asyncio.gather(*map(judge_one, situations))


async def _judge_situation(situation: _LabelledSituation, panels: Panels, judge: str, mode: Mode) -> PanelResult:
    """As a run's groups are judged, gates included."""
    group, options = situation.group, ScoringOptions(mode=mode, judges=(judge,))
    panel = panels.build_panel(group.environment, options)
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


def build_figures(
    situations: Sequence[_LabelledSituation], judged: Sequence[PanelResult], mode: Mode, seed: int
) -> BenchFigures:
    labelled = [_pair_with_labels(one.group, each.scores) for one, each in zip(situations, judged, strict=True)]
    scored = [one for one in labelled if one is not None]
    agreement = measure_label_agreement(scored, seed)
    made = [judgement for each in judged for judgement in each.judgements]
    costs = [judgement.cost_usd for judgement in made if judgement.cost_usd is not None]
    reasons = [score.rationale for each in judged for score in each.scores if score.reward is None]
    subsets = sorted({one.subset for one in scored})
    return BenchFigures(
        mode=mode,
        groups=len(situations),
        unscored=len(labelled) - len(scored),
        pair_accuracy=agreement.pair_accuracy,
        correlation=agreement.correlation,
        calls_per_group=sum(judgement.calls for judgement in made) / len(judged),
        input_tokens_per_group=sum(judgement.input_tokens for judgement in made) / len(judged),
        output_tokens_per_group=sum(judgement.output_tokens for judgement in made) / len(judged),
        usd_per_thousand_groups=1000 * math.fsum(costs) / len(judged) if costs else None,
        subsets={
            subset: measure_label_agreement([one for one in scored if one.subset == subset], seed).pair_accuracy
            for subset in subsets
        }
        if len(subsets) > 1
        else {},
        failures=tuple(dict.fromkeys(reasons))[:5],
    )


def _pair_with_labels(group: LabelledGroup, scores: Sequence[Score]) -> JudgedLabels | None:
    """None unless every reply has a reward: part of a group would be another question."""
    rewards = [score.reward for score in scores if score.reward is not None]
    if len(rewards) < len(scores):
        return None
    return JudgedLabels(tuple(reply.label for reply in group.replies), tuple(rewards), group.subset)


_MODES: Final = ",".join(get_args(Mode))
_GROUPS_ESTIMATED: Final = 50
"""Prompts of so many groups are built for the estimate."""


class BenchReport(Frozen):
    judge: str
    model: str
    labels: str
    form: RowForm
    left_out: dict[str, int]
    modes: tuple[BenchFigures, ...]


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
    seed: Annotated[int, typer.Option(help="Seed of the 95 % intervals.", rich_help_panel=ADVANCED)] = 0,
    as_json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Measure how far a judge agrees with people's labels: pair accuracy, correlation, calls, tokens, dollars.

    Each judgement is stored at once. To resume, repeat the command."""
    with stop_on_errors():
        settings = read_settings()
        table = read_table(labels, split, subset)
        places, found = [place for place, _ in table], [row for _, row in table]
        data = _thin_out(parse_labelled_rows(found, rows, places), limit)
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
    judge: str, situations: Sequence[_LabelledSituation], modes: Sequence[Mode], settings: Settings, yes: bool
) -> None:
    """Says what the bench will cost, and asks unless it is nothing. What is in the cache costs nothing."""
    total: float | None = 0.0
    if is_reward_model(judge, settings):
        errors.print(f"{judge} is a reward model: it reads each reply once; its cost is not estimated")
        total, modes = None, ()
    for mode in modes:
        some = take_evenly(situations, _GROUPS_ESTIMATED)
        for cost in await estimate_judging_cost([judge], [_defer(one, judge, mode) for one in some], settings):
            whole = cost.scale(len(situations))
            total = None if total is None or whole.most_usd is None else total + whole.most_usd
            errors.print(f"{mode}: {whole.describe()}; retries come on top", highlight=False)
    question = "Continue? Judgements of an earlier bench cost nothing again."
    require_consent(total, yes=yes, question=question)


def _defer(situation: _LabelledSituation, judge: str, mode: Mode) -> JudgeGroup:
    return lambda panels: _judge_situation(situation, panels, judge, mode)


async def _measure_mode(
    situations: Sequence[_LabelledSituation], panels: Panels, judge: str, mode: Mode, seed: int
) -> BenchFigures:
    with show_bars() as bars:
        bar = bars.add(f"{judge}, {mode}", len(situations))
        judged = await judge_situations(situations, panels, judge, mode, bar.advance)
    return build_figures(situations, judged, mode, seed)


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
    for figures in report.modes:
        for subset, accuracy in figures.subsets.items():
            words = f"{figures.mode}, {subset}: {format_bracketed(accuracy, 'not measured')}"
            console.print(escape_invisible(words), highlight=False, markup=False)
    for reason, count in report.left_out.items():
        console.print(escape_invisible(f"left out: {count} rows, {reason}"), highlight=False, markup=False)
    for figures in report.modes:
        for words in figures.failures:
            line = escape_invisible(f"{figures.mode}, unscored: {words}")
            console.print(line, style="red", highlight=False, markup=False)


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
            format_bracketed(one.pair_accuracy, "not measured"),
            format_bracketed(one.correlation, "not measured"),
            f"{one.calls_per_group:.1f}",
            f"{one.input_tokens_per_group:,.0f}",
            f"{one.output_tokens_per_group:,.0f}",
            "" if cost is None else f"{cost:.2f}",
        )
    return table
