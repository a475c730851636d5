"""`atropos-envs judges`: list judges and measure their quality.

A check spoils exemplars of the bundled characters in known ways, and asks the judge which of two replies is better, so
that the right answer is known without anybody's label. Equal replies show what a position or a letter is worth to the
judge, ladders of more and more faults whether its scores fall, repeated questions whether its answers stay. `bench`
measures a judge by people's labels instead."""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import TypeAdapter
from rich.table import Table

from app.characters.casting import Cast
from app.characters.loading import read_scenes, read_sheets
from app.cli.costs import estimate_questions, format_duration
from app.cli.judge_bench import bench, keep_measurement, open_configured_store, open_judge_panels
from app.domain.errors import UserError
from app.domain.judge_measurements import JudgeMeasurement, build_judge_command
from app.domain.judging import Judgement, JudgeRequest, Rubric, RubricLabel
from app.domain.runs import ScoringOptions
from app.domain.values import Frozen, Split, suggest, utc_now
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.judges.chat_judge import FreshJudge
from app.judges.check_pace import FIRST, PacedAsking, recall_answers
from app.judges.gold_cases import (
    MUTATIONS,
    CheckEvidence,
    GoldCase,
    Templates,
    build_gold_cases,
    build_pairs,
    load_packaged_templates,
    sample_one_per_character,
    sample_seldom_pairs,
)
from app.judges.meta_evaluation import (
    CheckQuestions,
    CheckReport,
    CheckRules,
    Figure,
    build_ladders,
    build_report,
    build_unread,
    find_reading_fault,
    list_measured_figures,
    measure_judge,
    measure_longest,
)
from app.judges.offline import NAME as OFFLINE
from app.judges.panel import ConfiguredPanels
from app.judges.prompts import load_rubric
from app.main.components import build_panels, discover
from app.ports.judges import AnsweringJudge, Judge, RepeatingJudge, ReportingJudge
from app.settings import Settings, read_settings
from app.terminal import ADVANCED
from app.terminal.completion import complete_judge
from app.terminal.consoles import (
    STOPPED,
    AsJson,
    Standing,
    errors,
    format_figure,
    format_interval,
    output_console,
    require_consent,
    show_progress,
    stop,
    stop_on_errors,
    stop_to_resume,
)
from app.toolkit.templates import find_packaged_folder

judges = typer.Typer(help="List judges and measure their quality.", no_args_is_help=True)
_console = output_console()
_SHEETS: Final = 8
"""Characters of a check, by default."""

judges.command("bench")(bench)


class JudgeLine(Frozen):
    """One judge in the listing. `environments` are those that it scores by default."""

    name: str
    model: str
    environments: tuple[str, ...]
    for_training: bool
    """False for the offline judge, which is only for trying out the system."""
    check: str
    """What came of the newest whole check with the default options, by the present settings and rubric."""


@judges.callback()
def callback() -> None:
    """List judges and measure their quality."""


@judges.command("list")
def list_judges(as_json: AsJson = False) -> None:
    """List judges with their models, the environments that they score, and whether they have passed a check."""
    with stop_on_errors():
        lines = asyncio.run(_build_lines(read_settings()))
    if as_json:
        typer.echo(TypeAdapter(tuple[JudgeLine, ...]).dump_json(lines, indent=2).decode())
        return
    table = Table("judge", "model", "scores", "check")
    for line in lines:
        words = line.check if line.for_training else "not for training"
        table.add_row(line.name, line.model, ", ".join(line.environments), words)
    _console.print(table)


@judges.command()
def check(
    name: Annotated[
        str | None,
        typer.Argument(help="Judge name; the first judge of NPC Arena by default.", autocompletion=complete_judge),
    ] = None,
    sheets: Annotated[int, typer.Option(min=1, help="Number of characters whose replies are spoilt.")] = _SHEETS,
    votes: Annotated[
        int, typer.Option(min=1, max=9, help="Votes per pair and presentation order.", rich_help_panel=ADVANCED)
    ] = 1,
    short: Annotated[
        bool, typer.Option("--short", help="Ask only about 50 questions, and fail only for clear faults.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed for choosing characters and ways to spoil replies.", rich_help_panel=ADVANCED)
    ] = 0,
    rubric: Annotated[
        Path | None,
        typer.Option(help="YAML file with a rubric.", show_default="the configured one of NPC Arena, else its own"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="JSON file to write the results to; - prints them.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Ask every question, also when the judge cannot pass any more.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Use no stored answer, and store none: such a check cannot be resumed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Measure how often a judge prefers good replies to spoilt ones.

    Answers are stored when they arrive. Run the same command again to resume a check that was stopped.
    Exit code 1: below target. Exit code 2: a budget, or a judge that cannot be reached, stopped the check.
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
    # The offline judge costs nothing, and the tutorial shows all of its figures.
    rules = CheckRules(short=short, patience_seconds=None if whole or name == OFFLINE else _PATIENCE_SECONDS)
    if (config := settings.judges.get(name)) is not None:
        rules = replace(rules, max_concurrency=config.max_concurrency, deadline_seconds=config.deadline_seconds)
    with stop_on_errors():
        checked = _run_check(_Check(name, settings, questions, rules, fresh=fresh, yes=yes))
    if json_file is not None:
        _write_report(json_file, checked)
    if str(json_file) != "-":
        _print_report(checked)
    if checked.stopped is None:
        options: dict[str, object] = {
            "sheets": None if sheets == _SHEETS else sheets,
            "votes": None if votes == 1 else votes,
            "short": short,
            "seed": seed or None,
            "rubric": rubric,
        }
        measured = _build_measurement(judge, checked, build_judge_command("check", name, options))
        with stop_on_errors():
            asyncio.run(keep_measurement(settings, measured))
    if checked.stopped is not None:
        raise typer.Exit(2)
    if not checked.passed:
        raise typer.Exit(1)


def _build_measurement(judge: Judge, checked: CheckReport, command: str) -> JudgeMeasurement:
    return JudgeMeasurement(
        kind="check",
        judge=judge.name,
        model=judge.model,
        judge_digest=judge.digest,
        command=command,
        rubric=f"{checked.rubric.name} {checked.rubric.version}",
        rubric_digest=checked.rubric.digest,
        passed=checked.passed,
        verdict=_tell_verdict(checked),
        measured_at=utc_now(),
        figures=list_measured_figures(checked),
    )


_PATIENCE_SECONDS: Final = 60.0
"""What takes longer is worth a word beforehand, and is not asked when its outcome is clear."""


@dataclass(frozen=True)
class _Check:
    """What `check` was told."""

    judge: str
    settings: Settings
    questions: CheckQuestions
    rules: CheckRules
    fresh: bool
    yes: bool


def _run_check(check: _Check) -> CheckReport:
    try:
        with asyncio.Runner() as runner:
            return _ask_with_consent(check, runner)
    except KeyboardInterrupt:
        if check.fresh:
            stop("stopped; the answers are not kept", STOPPED)
        stop_to_resume(". The answers so far are kept")


def _ask_with_consent(check: _Check, runner: asyncio.Runner) -> CheckReport:
    """Consent is asked for outside of the event loop, which would hold back a Ctrl-C."""
    opened = AsyncExitStack()
    try:
        panels = runner.run(opened.enter_async_context(open_judge_panels(check.settings, reuse=True)))
        judge, requests = panels.judges[check.judge], tuple(check.questions.iterate_requests())
        stored = {} if check.fresh else runner.run(recall_answers(judge, requests))
        if stored:
            words = f"{len(stored)} of {len(requests)} answers are stored from an earlier check; --fresh asks again"
            errors.print(words, highlight=False, soft_wrap=True)
        fault = None
        if left := [request for number, request in enumerate(requests) if number not in stored]:
            require_consent(_tell_cost(check.judge, left, check.settings), yes=check.yes)
            fault = runner.run(_find_reading_fault(judge, check.questions))
        evidence = (
            runner.run(_ask_questions(check, judge, stored)) if fault is None else build_unread(check.questions, fault)
        )
    finally:
        runner.run(opened.aclose())
    _print_server_traits(judge)
    return build_report(judge.name, judge.model, evidence, check.rules)


async def _ask_questions(check: _Check, judge: Judge, stored: Mapping[int, Judgement]) -> CheckEvidence:
    rules = check.rules
    asked = FreshJudge(judge) if check.fresh else judge
    pace: list[PacedAsking] = []

    def follow(asking: PacedAsking) -> None:
        answered = any(one is not None and one.error is None for one in asking.answers)
        if answered and asking.measured == FIRST and asking.remaining * asking.answer_seconds > _PATIENCE_SECONDS:
            display.say(_describe_time(asking, short=rules.short))
        pace[:] = [asking]

    def tell() -> Standing:
        if not pace:
            return Standing(len(stored), ["asking the first"])
        left = format_duration(pace[0].estimate_seconds_left())
        return Standing(pace[0].done, [f"{pace[0].at_once} at once", f"about {left} left"])

    async with show_progress(errors, check.judge, "questions", check.questions.count, tell) as display:
        return await measure_judge(asked, check.questions, rules, stored, follow)


def _describe_time(asking: PacedAsking, *, short: bool) -> str:
    """For the whole, and for a short check: from as many questions at once as are allowed to one at a time."""

    def describe(count: int) -> str:
        ends = [format_duration(count * asking.answer_seconds / at_once) for at_once in (asking.most_at_once, 1)]
        return " to ".join(dict.fromkeys(ends))

    words = (
        f"the first answers took {asking.answer_seconds:.1f} s each; the other {asking.remaining} questions take "
        f"{describe(asking.remaining)}, by how many the server answers at once"
    )
    return words if short else f"{words}; --short takes {describe(build_short_questions(0).count)}"


async def _find_reading_fault(judge: Judge, questions: CheckQuestions) -> str | None:
    """Before anything else is paid for: what does not read the longest question need not be asked any."""
    return await find_reading_fault(judge, measure_longest(questions)) if isinstance(judge, AnsweringJudge) else None


def _print_server_traits(judge: Judge) -> None:
    """What the server refused or ignored while it was asked."""
    if not isinstance(judge, ReportingJudge):
        return
    report = judge.report()
    for change in report.changes:
        errors.print(f"{judge.name}: {change}, since the server refuses what is configured", markup=False)
    for parameter in report.ignored:
        errors.print(f"{judge.name}: the server ignores {parameter}", markup=False)
    if report.prompts_cut:
        errors.print(f"{judge.name}: the server counted few tokens for {report.prompts_cut} prompts, and may cut them")


def _tell_cost(name: str, requests: Sequence[JudgeRequest], settings: Settings) -> float | None:
    """US dollars; None where they are not known."""
    if name == OFFLINE:
        errors.print(f"{len(requests)} questions, no calls: the offline judge has no model", highlight=False)
        return 0.0
    cost = estimate_questions(name, requests, settings)
    errors.print(f"{cost.describe()}; retries come on top", highlight=False, markup=False, soft_wrap=True)
    return cost.most_usd


def _find_rubric(panels: ConfiguredPanels, file: Path | None) -> Rubric | None:
    try:
        options = ScoringOptions(rubric=None if file is None else load_rubric(file))
    except UserError as error:
        stop(str(error))
    return panels.resolve_options(NpcArena.name, options).rubric


async def _build_lines(settings: Settings) -> tuple[JudgeLine, ...]:
    panels = build_panels(settings)
    scored = {
        environment: panels.build_panel(environment, ScoringOptions()).judges
        for environment, kind in sorted(discover().items())
        if kind.rubric is not None
    }
    rubric = RubricLabel.from_rubric(_find_rubric(panels, None) or _require_own_rubric())
    async with open_configured_store(settings) as store:
        return tuple(
            [
                JudgeLine(
                    name=name,
                    model=judge.model,
                    environments=tuple(environment for environment, names in scored.items() if name in names),
                    for_training=name != OFFLINE,
                    check=_describe_check(judge, rubric, await store.judge_measurements.find(name)),
                )
                for name, judge in sorted(panels.judges.items())
            ]
        )


def _describe_check(judge: Judge, rubric: RubricLabel, measured: Sequence[JudgeMeasurement]) -> str:
    command = build_judge_command("check", judge.name, {})
    now = (judge.digest, rubric.digest)
    found = [one for one in measured if one.command == command and (one.judge_digest, one.rubric_digest) == now]
    return ("passed" if found[0].passed else "failed") if found else "not checked"


# The questions of a check: exemplars of the bundled characters, and perturbations of them.

_SHORT_REPEATS: Final = 3
_SHORT_LADDERS: Final = 1
"""What `--short` asks of each kind, about 50 questions in all."""

_SPLITS: tuple[Split, ...] = ("train", "test")


@cache
def load_packaged_specimens() -> tuple[GoldCase, ...]:
    """EnvironmentUnavailable when a bundled sheet or scene is broken."""
    return _collect_specimens(NpcArena.read(find_packaged_folder("character_sheets")))


def load_specimens(sheets: Path, scenes: Path) -> tuple[GoldCase, ...]:
    """Specimens of the characters and scenes in these folders. GatewayError naming the file and field of an error."""
    return _collect_specimens(NpcArena(read_sheets(sheets), read_scenes(scenes), sheets.name))


def build_packaged_questions(sheets: int, votes: int, seed: int, rubric: Rubric | None = None) -> CheckQuestions:
    """Questions about one reply of each of `sheets` random characters, plus as many of each rare perturbation."""
    specimens = load_packaged_specimens()
    chosen, templates = sample_one_per_character(specimens, sheets, seed), load_packaged_templates()
    asked = build_questions(chosen, templates, votes, seed, rubric)
    return replace(asked, pairs=(*asked.pairs, *sample_seldom_pairs(specimens, chosen, templates, sheets, seed)))


def build_short_questions(seed: int, rubric: Rubric | None = None) -> CheckQuestions:
    """About 50 questions: one pair of each mutation, a few equal replies and degradation ladders, no retests. For
    changes of a prompt or a rubric, in an author's own tests."""
    specimens = load_packaged_specimens()
    chosen, templates = sample_one_per_character(specimens, _SHEETS, seed), load_packaged_templates()
    pairs = (*build_pairs(chosen, templates, seed), *sample_seldom_pairs(specimens, chosen, templates, 1, seed))
    by_mutation = {pair.mutation: pair for pair in random.Random(seed).sample(pairs, len(pairs))}  # noqa: S311
    some = build_questions(chosen[:_SHORT_REPEATS], templates, seed=seed, rubric=rubric)
    return replace(
        some,
        pairs=tuple(by_mutation[mutation.name] for mutation in MUTATIONS if mutation.name in by_mutation),
        ladders=some.ladders[:_SHORT_LADDERS],
        retest_every=0,
    )


def build_questions(
    chosen: tuple[GoldCase, ...], templates: Templates, votes: int = 1, seed: int = 0, rubric: Rubric | None = None
) -> CheckQuestions:
    """Without a `rubric` by the one of NPC Arena."""
    rubric = rubric or _require_own_rubric()
    return CheckQuestions(
        pairs=build_pairs(chosen, templates, seed),
        twice=chosen,
        ladders=build_ladders(chosen, templates, seed),
        rubric=rubric,
        votes=votes,
    )


def _require_own_rubric() -> Rubric:
    if NpcArena.rubric is None:
        raise UserError("NPC Arena has no rubric")
    return NpcArena.rubric


def _collect_specimens(arena: NpcArena) -> tuple[GoldCase, ...]:
    staged: list[tuple[Cast, str]] = []
    for split in _SPLITS:
        for index in range(arena.size(split, NpcArenaParams())):
            task = arena.task(split, index, NpcArenaParams())
            cast = arena.find_cast(task)
            # Scenes with earlier conversations have a rubric of their own, and the check asks by one.
            if cast is not None and cast.exemplar is not None and not cast.scene.earlier:
                staged.append((cast, task.messages[0].content or ""))
    return build_gold_cases(staged)


# The report of a check.


def _write_report(file: Path, checked: CheckReport) -> None:
    text = checked.model_dump_json(indent=2)
    if str(file) == "-":
        typer.echo(text)
    else:
        file.write_text(f"{text}\n", encoding="utf-8")


def _print_report(checked: CheckReport) -> None:
    """What matters first."""
    for words, style in _describe_outcome(checked):
        _console.print(words, style=style, highlight=False, markup=False, soft_wrap=True)
    if not checked.questions:
        return
    _console.print(_build_figures_table(checked))
    if checked.pairs:
        _console.print(_build_mutations_table(checked), _build_criteria_table(checked))
    if checked.letters:
        _console.print(_build_letters_table(checked))
    cost = "" if checked.cost_usd is None else f", {checked.cost_usd:.4f} US dollars"
    stored = f" ({checked.stored} answered in an earlier check)" if checked.stored else ""
    _console.print(f"{checked.questions} questions{stored}, {checked.calls} calls{cost}", highlight=False)


def _describe_outcome(checked: CheckReport) -> Iterator[tuple[str, str]]:
    """Lines with their colours."""
    if checked.stopped is not None:
        yield f"stopped: {checked.stopped}; the results cover only the questions answered so far", "red"
    else:
        verdict = f"{checked.judge} ({checked.model}): {_tell_verdict(checked)}"
        yield verdict, "green" if checked.passed else "red"
    for words in (checked.unread, *checked.failures):
        if words is not None:
            yield f"failed: {words}", "red"
    for figure in checked.figures:
        if figure.passed is False and figure.trials:
            value = format_figure(figure.value, missing="not measured")
            yield f"missed: {figure.name}, {value} (target {figure.target})", "red"
    if checked.calls_in_time is not None:
        yield (
            f"with more than {checked.calls_in_time} calls at once answers take longer than deadline_seconds: set "
            f"max_concurrency to {checked.calls_in_time}, or raise deadline_seconds",
            "",
        )
    if checked.settled is not None:
        yield f"stopped early: {checked.settled}. --whole asks the rest", ""


def _tell_verdict(checked: CheckReport) -> str:
    if not checked.passed:
        return "below target: do not train on this judge"
    return "no clear fault: run the whole check before training on this judge" if checked.short else "meets all targets"


def _build_figures_table(checked: CheckReport) -> Table:
    table = Table("metric", "value", "95 % interval", "trials", "target", "", title=f"{checked.characters} characters")
    for figure in checked.figures:
        mark = {True: "passed", False: "[red]missed[/red]", None: ""}[figure.passed]
        table.add_row(figure.name, *_format_both(figure), str(figure.trials), figure.target, mark)
    return table


def _build_mutations_table(checked: CheckReport) -> Table:
    table = Table(title="clean reply preferred")
    for title in ("spoilt by", "kind", "judge alone", "95 % interval", "with gates", "trials"):
        table.add_column(title, no_wrap=title == "spoilt by")
    for each in checked.mutations:
        behind, _ = _format_both(each.behind_gates)
        table.add_row(each.mutation, each.grade, *_format_both(each.judge), behind, str(each.judge.trials))
    return table


def _build_letters_table(checked: CheckReport) -> Table:
    table = Table(title="equal replies, by letter")
    for heading in ("letter", "comes first", "95 % interval", "score", "95 % interval", "trials"):
        table.add_column(heading)
    for each in checked.letters:
        table.add_row(each.letter, *_format_both(each.first), *_format_both(each.score), str(each.first.trials))
    return table


def _build_criteria_table(checked: CheckReport) -> Table:
    rubric = checked.rubric
    title = f"values by criterion, rubric {rubric.name} {rubric.version} ({rubric.digest[:8]})"
    table = Table("criterion", "weight", "clean", "spoilt", "clean is higher", "95 % interval", "pairs", title=title)
    for each in checked.criteria:
        table.add_row(
            each.criterion,
            f"{each.weight:.2f}",
            format_figure(each.clean, ".2f"),
            format_figure(each.spoilt, ".2f"),
            *_format_both(each.higher),
            str(each.higher.trials),
        )
    return table


def _format_both(figure: Figure) -> tuple[str, str]:
    """The value, and its interval where it has one."""
    return format_figure(figure.value, missing="not measured"), format_interval(figure.low, figure.high, ".2f", "")
