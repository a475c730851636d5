"""Judges for commands that run without a service; what judging costs; and `atropos-envs judges bench`.

Such commands have the configured store: their calls count against the same budgets as those of the service, and every
judgement is stored as it arrives. A cost is estimated by the readings of the real panels, with scripted judges that
answer at once: once they agree in every reading and once they contradict each other, since panels read again where
readings disagree. `bench` replays replies that people have labelled as groups of a run are judged, gates included."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, get_args

import typer
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from app.datasets.configured_datasets import ConfiguredDatasets, read_table
from app.domain.errors import GatewayError, InvalidRequest, UserError
from app.domain.judging import JudgeRequest, Mode
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import FiniteNumber, Frozen, digest_of_text, suggest, take_evenly
from app.evaluation.agreement import (
    AgreementFigure,
    JudgedLabels,
    measure_label_agreement,
)
from app.evaluation.labelled_groups import LabelledData, LabelledGroup, RowForm, parse_labelled_rows
from app.judges.chat_judge import Script, ScriptedJudge, WriteOnlyMemory, score_by_position
from app.judges.configuration import TokenPrices, estimate_tokens
from app.judges.offline import NAME as OFFLINE
from app.judges.panel import ConfiguredPanels
from app.judges.prompts import build_prompt
from app.main.components import build_panels, discover
from app.main.store import Store
from app.ports.environment import Environment, ManagedResource, NoPrograms, NoWorkers
from app.ports.judges import Judge, Panels
from app.service.catalogue import Catalogue
from app.service.judging import JudgedCompletions, score_completions
from app.settings import Settings, read_settings
from app.store.database import describe
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


# The cost of judging.

ANSWER_TOKENS: Final = 65
"""Completion tokens for each reply that a judge reads: an eighth of the medians in `docs/judge_reference.md`, *What a
reading takes*."""
BYTES_PER_TOKEN: Final = 4

JudgeGroup = Callable[[Panels], Awaitable[object]]
"""Has one group judged by these panels."""


class JudgingCost(Frozen):
    """One judge's share of a group, on average. `least`: where its readings agree; `most`: where they contradict each
    other. Corrections, retries and answers from the cache are not included."""

    judge: str
    calls: tuple[FiniteNumber, FiniteNumber]
    input_tokens: tuple[FiniteNumber, FiniteNumber]
    output_tokens: tuple[FiniteNumber, FiniteNumber]
    usd: tuple[FiniteNumber, FiniteNumber] | None
    """Null without prices."""


@dataclass(frozen=True)
class _Volume:
    calls: float
    input_tokens: float
    output_tokens: float


async def estimate_judging_cost(
    judges: Sequence[str], groups: Sequence[JudgeGroup], settings: Settings, reply_tokens: float | None = None
) -> tuple[JudgingCost, ...]:
    """Per judge, from the prompts that it would get, with replies of so many tokens where that is said. The offline
    judge costs nothing and is left out. UserError for a reward model, which gets no prompts."""
    for name in judges:
        if _is_reward_model(name, settings):
            raise UserError(f"judge {name!r} is a reward model: it reads each reply once, and is not estimated")
    defaults = {name: environment.options for name, environment in settings.environments.items()}
    priced = [name for name in judges if name != OFFLINE]
    least = await _measure_volumes(priced, groups, defaults, _prefer_by_digest, reply_tokens)
    most = await _measure_volumes(priced, groups, defaults, score_by_position, reply_tokens)
    return tuple(_build_cost(name, least[name], most[name], find_prices(name, settings)) for name in priced)


def count_text_tokens(texts: Iterable[str]) -> float:
    """As prompts are counted, without what a message takes."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) / BYTES_PER_TOKEN


def _is_reward_model(judge: str, settings: Settings) -> bool:
    return judge in settings.judges and settings.judges[judge].kind == "reward_model"


def find_prices(judge: str, settings: Settings) -> TokenPrices:
    config = settings.judges.get(judge)
    if config is None:
        return TokenPrices()
    return TokenPrices(
        config.input_price_per_million, config.output_price_per_million, config.cached_input_price_per_million
    )


async def _measure_volumes(
    names: Sequence[str],
    groups: Sequence[JudgeGroup],
    defaults: Mapping[str, ScoringOptions],
    script: Script,
    reply_tokens: float | None,
) -> dict[str, _Volume]:
    judges = {name: ScriptedJudge(script, name) for name in names}
    # Panels refuse defaults that name judges which they do not have.
    served = {name: options for name, options in defaults.items() if set(options.judges) <= {*judges, OFFLINE}}
    panels = ConfiguredPanels(dict[str, Judge](judges), served)
    await asyncio.gather(*(judge_group(panels) for judge_group in groups))
    return {name: _measure_volume(judge.requests, len(groups), reply_tokens) for name, judge in judges.items()}


def _measure_volume(requests: Sequence[JudgeRequest], groups: int, reply_tokens: float | None) -> _Volume:
    prompts = [build_prompt(request) for request in requests]
    read = [candidate.own or candidate.text for request in requests for candidate in request.candidates]
    replies = len(read)
    tokens: float = sum(
        estimate_tokens((prompt.system, prompt.user), bytes_per_token=BYTES_PER_TOKEN) for prompt in prompts
    )
    if reply_tokens is not None:
        tokens += replies * reply_tokens - count_text_tokens(read)
    return _Volume(len(requests) / groups, tokens / groups, replies * ANSWER_TOKENS / groups)


def _build_cost(name: str, least: _Volume, most: _Volume, prices: TokenPrices) -> JudgingCost:
    usd = [prices.compute_cost(round(one.input_tokens), round(one.output_tokens)) for one in (least, most)]
    return JudgingCost(
        judge=name,
        calls=(least.calls, most.calls),
        input_tokens=(least.input_tokens, most.input_tokens),
        output_tokens=(least.output_tokens, most.output_tokens),
        usd=(usd[0], usd[1]) if prices.are_known else None,
    )


def _prefer_by_digest(request: JudgeRequest, number: int) -> dict[str, float]:
    """The same order of the same texts however they are presented."""
    return {one.id: int(digest_of_text(one.text)[:8], 16) / 16**8 for one in request.candidates}


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
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(f"group {group.id}: draft.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except GatewayError as error:
        where = "" if error.field is None else f"{error.field}: "
        raise InvalidRequest(f"group {group.id}: {where}{error.detail}") from None
    return _LabelledSituation(group, made.environment, made.task)


async def judge_situations(
    situations: Sequence[_LabelledSituation], panels: Panels, judge: str, mode: Mode, judged: Callable[[], None]
) -> Sequence[JudgedCompletions]:
    gate = asyncio.Semaphore(_MOST_IN_FLIGHT)

    async def judge_one(situation: _LabelledSituation) -> JudgedCompletions:
        async with gate:
            result = await _judge_situation(situation, panels, judge, mode)
        judged()
        return result

    return await asyncio.gather(*map(judge_one, situations))


async def _judge_situation(situation: _LabelledSituation, panels: Panels, judge: str, mode: Mode) -> JudgedCompletions:
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
    situations: Sequence[_LabelledSituation], judged: Sequence[JudgedCompletions], mode: Mode, seed: int
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
    rows: Annotated[RowForm | None, typer.Option(help="Form of the rows.", show_default="told by the columns")] = None,
    modes: Annotated[str, typer.Option(help="Modes to measure.")] = _MODES,
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
    """Says what the bench will cost, and asks when the judge has a price. What is in the cache costs nothing."""
    total = 0.0
    if _is_reward_model(judge, settings):
        errors.print(f"{judge} is a reward model: it reads each reply once; its cost is not estimated")
        modes = ()
    for mode in modes:
        some = take_evenly(situations, _GROUPS_ESTIMATED)
        for cost in await estimate_judging_cost([judge], [_defer(one, judge, mode) for one in some], settings):
            groups = len(situations)
            total += 0.0 if cost.usd is None else groups * cost.usd[1]
            price = "price unknown" if cost.usd is None else f"at most about {groups * cost.usd[1]:.2f} US dollars"
            errors.print(
                f"{mode}: {groups * cost.calls[0]:,.0f} to {groups * cost.calls[1]:,.0f} calls, about "
                f"{groups * cost.input_tokens[0]:,.0f} prompt tokens or more, {price}",
                highlight=False,
            )
    unknown = _is_reward_model(judge, settings) and find_prices(judge, settings).are_known
    question = "Continue? Judgements of an earlier bench cost nothing again."
    require_consent(None if unknown else total, yes=yes, question=question)


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
