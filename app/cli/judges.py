"""`atropos-envs judges`: list judges and measure their quality.

A check spoils exemplars of the bundled characters in known ways, and asks the judge which of two replies is better, so
that the right answer is known without anybody's label. Equal replies show what a position or a letter is worth to the
judge, ladders of more and more faults whether its scores fall, repeated questions whether its answers stay. `bench`
measures a judge by people's labels instead."""

import asyncio
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import TypeAdapter
from rich.table import Table

from app.characters.casting import Cast
from app.characters.loading import read_scenes, read_sheets
from app.cli.costs import estimate_questions
from app.cli.judge_bench import bench, open_judge_panels
from app.domain.errors import UserError
from app.domain.judging import Rubric
from app.domain.runs import ScoringOptions
from app.domain.values import Frozen, Split, suggest
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
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
    Figure,
    build_ladders,
    build_report,
    find_unread_end,
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
    AsJson,
    errors,
    format_figure,
    format_interval,
    output_console,
    require_consent,
    show_bars,
    stop,
    stop_on_errors,
)
from app.toolkit.templates import find_packaged_folder

judges = typer.Typer(help="List judges and measure their quality.", no_args_is_help=True)
_console = output_console()

judges.command("bench")(bench)


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
    _console.print(table)


@judges.command()
def check(
    name: Annotated[
        str | None,
        typer.Argument(help="Judge name; the first judge of NPC Arena by default.", autocompletion=complete_judge),
    ] = None,
    sheets: Annotated[int, typer.Option(min=1, help="Number of characters whose replies are spoilt.")] = 8,
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
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Measure how often a judge prefers good replies to spoilt ones.

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
    with stop_on_errors():
        require_consent(_tell_cost(name, questions, settings), yes=yes)
    evidence = _run_check(name, settings, questions)
    checked = build_report(name, panels.judges[name].model, evidence, short=short)
    if json_file is not None:
        _write_report(json_file, checked)
    if str(json_file) != "-":
        _print_report(checked)
    if checked.stopped is not None:
        stop(f"stopped: {checked.stopped}; the results cover only the questions answered so far")
    if not checked.passed:
        raise typer.Exit(1)


def _run_check(name: str, settings: Settings, questions: CheckQuestions) -> CheckEvidence:
    with stop_on_errors():
        evidence = asyncio.run(_measure_judge(name, settings, questions))
    return evidence


async def _measure_judge(name: str, settings: Settings, questions: CheckQuestions) -> CheckEvidence:
    async with open_judge_panels(settings) as panels:
        await _require_whole_prompts(panels.judges[name], questions)
        with show_bars() as bars:
            evidence = await measure_judge(panels.judges[name], questions, bars.add(name, questions.count).advance)
        _print_server_traits(panels.judges[name])
        return evidence


async def _require_whole_prompts(judge: Judge, questions: CheckQuestions) -> None:
    """Before anything else is paid for. Ends with 1 for a judge that is not shown the whole of the longest question."""
    if not isinstance(judge, AnsweringJudge):
        return
    size = measure_longest(questions)
    unread = await find_unread_end(judge, size)
    if unread is not None:
        errors.print(
            f"judge {judge.name!r} does not read back a word from the {unread} of a prompt of {size:,} "
            "bytes, as long as the longest question: its server cuts prompts at its window and answers all the "
            "same. Raise the window (Ollama: `num_ctx`, llama.cpp: `--ctx-size`), or take a model that does as it is "
            "told",
            markup=False,
            highlight=False,
        )
        raise typer.Exit(1)


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


def _tell_cost(name: str, questions: CheckQuestions, settings: Settings) -> float | None:
    """US dollars; None where they are not known."""
    if name == OFFLINE:
        errors.print(f"{questions.count} questions, no calls: the offline judge has no model", highlight=False)
        return 0.0
    cost = estimate_questions(name, list(questions.iterate_requests()), settings)
    errors.print(f"{cost.describe()}; retries come on top", highlight=False, markup=False)
    return cost.most_usd


def _find_rubric(panels: ConfiguredPanels, file: Path | None) -> Rubric | None:
    try:
        options = ScoringOptions(rubric=None if file is None else load_rubric(file))
    except UserError as error:
        stop(str(error))
    return panels.resolve_options(NpcArena.name, options).rubric


def _build_lines(panels: ConfiguredPanels) -> tuple[JudgeLine, ...]:
    scored = {
        environment: panels.build_panel(environment, ScoringOptions()).judges
        for environment, kind in sorted(discover().items())
        if kind.rubric is not None
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


# The questions of a check: exemplars of the bundled characters, and perturbations of them.

_SHORT_CHARACTERS: Final = 8
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
    chosen, templates = sample_one_per_character(specimens, _SHORT_CHARACTERS, seed), load_packaged_templates()
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
    rubric = rubric or NpcArena.rubric
    if rubric is None:
        raise UserError("NPC Arena has no rubric")
    return CheckQuestions(
        pairs=build_pairs(chosen, templates, seed),
        twice=chosen,
        ladders=build_ladders(chosen, templates, seed),
        rubric=rubric,
        votes=votes,
    )


def _collect_specimens(arena: NpcArena) -> tuple[GoldCase, ...]:
    staged: list[tuple[Cast, str]] = []
    for split in _SPLITS:
        for index in range(arena.size(split, NpcArenaParams())):
            task = arena.task(split, index, NpcArenaParams())
            cast = arena.find_cast(task)
            if cast is not None and cast.exemplar is not None:
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
    _console.print(_build_figures_table(checked), _build_mutations_table(checked), _build_criteria_table(checked))
    _console.print(_build_letters_table(checked))
    for words in checked.failures:
        _console.print(f"failed: {words}", style="red", highlight=False, markup=False)
    cost = "" if checked.cost_usd is None else f", {checked.cost_usd:.4f} US dollars"
    _console.print(f"{checked.questions} questions, {checked.calls} calls{cost}", highlight=False)
    if checked.stopped is not None:
        return
    met = "no clear fault: run the whole check before training on this judge" if checked.short else "meets all targets"
    verdict = met if checked.passed else "below target: do not train on this judge"
    _console.print(f"{checked.judge} ({checked.model}): {verdict}", style="green" if checked.passed else "red")


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
