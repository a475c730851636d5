"""`atropos-envs envs`: list, check and create environments.

A check opens the environment twice here and once in another process, so that anything that depends on the order of
sets or on hashes shows in the digests of its tasks. The checks themselves are
`app.toolkit.conformance`."""

import asyncio
import json
import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import app.envs.community
from app.cli.envs.adding import add
from app.cli.envs.check import CheckObserver, FoundEnvironment, discover_environments, find_environment, run_all_checks
from app.cli.envs.subprocess_digests import compute_digests_in_subprocess
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import UserError
from app.domain.values import Frozen, Split
from app.ports.environment import Datasets, Environment
from app.service.catalogue import Catalogue
from app.settings import Settings, read_settings
from app.terminal.completion import complete_environment
from app.terminal.consoles import AsJson, format_figure, output_console, print_outcome, show_bars, stop, stop_on_errors
from app.toolkit.conformance.attempts import ALL_TASKS
from app.toolkit.conformance.checks import CHECKS, Check
from app.toolkit.conformance.subject import (
    CheckDepth,
    CheckResult,
    ConformanceFigures,
    ConformanceFinding,
    ConformanceReport,
    MeasuredRewards,
    RefusalFigure,
    Spread,
    StrategyFigure,
)
from app.toolkit.templates import Template

envs = typer.Typer(help="List, check, add and create environments.", no_args_is_help=True)
envs.add_typer(add, name="add")
_console = output_console()

_GUESSED_SHARE = 8
"""Strategies are chosen on one task in so many, and measured on as many others."""


@envs.callback()
def callback() -> None:
    """List, check, add and create environments."""


@envs.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """List the environments that this installation serves: scoring, source and availability."""
    try:
        listed = _list_lines(_configure_datasets(read_settings()))
    except UserError as error:
        stop(str(error))
    if as_json:
        typer.echo(json.dumps([line.model_dump() for line in listed], indent=2))
    else:
        _console.print(_build_table(listed))


@envs.command()
def check(
    where: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE", help="Environment name, file or folder.", autocompletion=complete_environment
        ),
    ],
    tasks: Annotated[int, typer.Option(min=20, max=100_000, help="Tasks to check per split.")] = 1_000,
    texts: Annotated[int, typer.Option(min=0, max=100_000, help="Nonsense texts to score.")] = 2_000,
    as_json: AsJson = False,
) -> None:
    """Run the conformance checks on an environment and measure its speed.

    Exit code 1: a check failed. Exit code 2: nothing to check.
    Judged environments are scored by the offline judge."""
    with stop_on_errors():
        settings = read_settings()
        depth = CheckDepth(
            tasks=tasks, scored=tasks, texts=texts, guessed=max(CheckDepth.guessed, tasks // _GUESSED_SHARE)
        )
        report = _run_checks(find_environment(where), settings, depth, quiet=as_json)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _print_report(report, _console)
    if not report.passed:
        raise typer.Exit(1)


@envs.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Environment name: lower-case letters, digits and _, such as tide_tables.")
    ],
    path: Annotated[Path | None, typer.Option(help="Folder to write into.", show_default="as described above")] = None,
    package: Annotated[bool, typer.Option("--package", help="Create an installable package.")] = False,
    judged: Annotated[
        bool, typer.Option("--judged", help="Create an environment scored by judges against a rubric.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a small working environment to build on.

    By default it goes into app/envs/community of the checkout.
    With --package it goes into a new folder of the current directory."""
    with stop_on_errors():
        made = write_environment(
            ScaffoldRequest(name=name, folder=path, package=package, judged=judged), taken=discover_environments()
        )
    words = "\n".join([*(f"wrote {file}" for file in made.files), made.next_steps])
    print_outcome(words, as_json=as_json, files=[str(file) for file in made.files], next_steps=made.next_steps)


def _run_checks(what: FoundEnvironment, settings: Settings, depth: CheckDepth, *, quiet: bool) -> ConformanceReport:
    with show_bars(transient=True, quiet=quiet) as bars:
        bar = bars.add(what.kind.name, len(CHECKS))
        done = -1
        count = 0

        def note_check(one: Check) -> None:
            nonlocal done
            done += 1
            bar.show(done, f"{count:,} scored", name=one.asks)

        def note_score() -> None:
            nonlocal count
            count += 1
            bar.show(max(0, done), f"{count:,} scored")

        async def fetch_digests() -> dict[Split, str]:
            other = (await compute_digests_in_subprocess([what.where], settings.datasets))[what.where]
            if other.broke:
                raise RuntimeError(f"it fails in a separate process: {other.broke}")
            return other.digests

        return asyncio.run(
            run_all_checks(
                what.kind, _configure_datasets(settings), depth, CheckObserver(note_check, note_score), fetch_digests
            )
        )


def _configure_datasets(settings: Settings) -> ConfiguredDatasets:
    """As the service reads them."""
    folders = {"character_sheets": settings.character_sheets}
    return ConfiguredDatasets(settings.datasets, folders=folders, hub_cache=settings.cache_dir)


# The report of `envs check`.

_FINDINGS_SHOWN = 3
"""Findings shown per check."""
_VARIANT_SHOWN = 40
"""Characters shown of how a strategy went about it."""


def _print_report(report: ConformanceReport, _console: Console) -> None:
    title = Text.assemble((report.environment, "bold"), f" {report.version}  ", (report.source, "dim"))
    _console.print(title, soft_wrap=True)
    table = Table("check", "result", show_edge=False, pad_edge=False, box=None)
    for one in report.checks:
        table.add_row(one.asks, _format_result(one))
        for finding in one.findings[:_FINDINGS_SHOWN]:
            table.add_row(_format_finding(finding), "")
        if len(one.findings) > _FINDINGS_SHOWN:
            table.add_row(Text(f"    and {len(one.findings) - _FINDINGS_SHOWN} more", style="dim"), "")
    _console.print(table)
    if report.figures is not None:
        _console.print()
        _console.print(_build_figures_table(report.figures))
        for line in _list_reward_figures(report.figures.rewards):
            _console.print(line, highlight=False, soft_wrap=isinstance(line, str))
    _console.print()
    _console.print(_word_outcome(report), style="green" if report.passed else "red", highlight=False)


def _word_outcome(report: ConformanceReport) -> str:
    if report.passed:
        return "passed: all checks"
    failed = sum(not one.passed for one in report.checks)
    if report.figures is None and not failed:
        return (
            "failed: it raised an error during measurement, on tasks beyond those checked (use --tasks to check more)"
        )
    return f"failed: {failed} of {len(report.checks)}"


def _format_result(one: CheckResult) -> Text:
    if not one.applied:
        return Text("not applicable", style="dim")
    return Text("passed", style="green") if one.passed else Text("failed", style="bold red")


def _format_finding(finding: ConformanceFinding) -> Text:
    lines = [("expected", finding.expected), ("got", finding.came), ("fix", finding.mend)]
    text = Text()
    for name, words in [*([("task", finding.task)] if finding.task else []), *lines]:
        text.append(f"    {name}: ", style="cyan").append(f"{words}\n")
    return text


def _build_figures_table(figures: ConformanceFigures) -> Table:
    table = Table("metric", "value", show_edge=False, pad_edge=False, box=None)
    for name, value in _iter_rows(figures):
        table.add_row(name, Text(value))
    return table


def _iter_rows(figures: ConformanceFigures) -> Iterator[tuple[str, str]]:
    sizes = ["endless" if size is None else f"{size:,}" for size in (figures.train_size, figures.test_size)]
    yield "training tasks, test tasks", ", ".join(sizes)
    yield "distinct prompts", f"{figures.distinct_prompts:,} of {figures.looked_at:,}"
    yield "prompt length in characters", _format_spread(figures.prompt_characters)
    yield "prompt length in tokens (estimate)", _format_spread(figures.prompt_tokens)
    yield "share of the most frequent right answer", format_figure(figures.commonest_gold, ".1%")
    yield (
        "share paid for another task's right answer",
        f"{format_figure(figures.strangers_paid, '.1%')} (at most {figures.chance:.1%})",
    )
    yield "tasks generated per second and core", f"{figures.tasks_per_second:,.0f}"
    yield "right answers scored per second", format_figure(figures.gold_scores_per_second, ",.0f")
    yield "junk replies scored per second", f"{figures.junk_scores_per_second:,.0f}"
    clock = f"{figures.score_p99_ms_by_the_clock:.2f} ms wall time"
    yield "scoring one reply, 99th percentile", f"{figures.score_p99_ms:.2f} ms CPU time, {clock}"


def _list_reward_figures(rewards: MeasuredRewards) -> Iterator[Table | str]:
    """Nothing for judged environments."""
    if not rewards.strategies:
        return
    yield ""
    yield _build_strategies_table(rewards.strategies)
    yield _describe_worst(rewards.strategies)
    if rewards.not_applied:
        yield f"nothing to send for: {', '.join(rewards.not_applied)}"
    yield ""
    refused = [one for one in rewards.refusals if one.refused]
    if refused:
        yield _build_refusals_table(refused)
    spellings = f"{len(rewards.refusals)} spellings and layouts of right answers"
    yield f"{spellings}: {len(refused)} refused" if refused else f"{spellings}: none refused"


def _build_refusals_table(refusals: Sequence[RefusalFigure]) -> Table:
    table = Table("right answers refused", "tasks", "refused", "95 %", "why", show_edge=False, box=None)
    for one in refusals:
        style = "dim" if one.because else "bold red"
        interval = f"{one.low:.1%} to {one.high:.1%}"
        table.add_row(one.kind, f"{one.tasks:,}", Text(f"{one.refused:.1%}", style=style), interval, one.because)
    return table


def _build_strategies_table(strategies: Sequence[StrategyFigure]) -> Table:
    """Each strategy over all tasks, and the levels and labels where it was paid anything."""
    table = Table("without doing the task", "tasks", "paid", "99 %", "stated", "how", show_edge=False, box=None)
    for one in strategies:
        if one.group == ALL_TASKS or one.paid > 0:
            name = one.strategy if one.group == ALL_TASKS else f"  {one.group}"
            style = "bold red" if one.allowed < min(one.low, one.paid) else "dim" if one.paid == 0 else ""
            paid, stated = Text(f"{one.paid:.1%}", style=style), f"{one.allowed:.1%}"
            interval = f"{one.low:.1%} to {one.high:.1%}"
            table.add_row(name, f"{one.tasks:,}", paid, interval, stated, Text(_shorten(one.variant), style="dim"))
    return table


def _describe_worst(strategies: Sequence[StrategyFigure]) -> str:
    worst = max(strategies, key=lambda one: (one.low, one.paid))
    if worst.paid == 0:
        return "most is paid to: none of them"
    return f"most is paid to: {worst.strategy} ({worst.group}), {worst.paid:.1%} of {worst.tasks:,} tasks"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _VARIANT_SHOWN else f"{line[: _VARIANT_SHOWN - 1]}…"


def _format_spread(spread: Spread) -> str:
    return f"{spread.least:,} to {spread.most:,}, median {spread.median:,}"


# `envs list`.

Turns = Literal["one", "several"]


class EnvironmentLine(Frozen):
    name: str
    version: str
    turns: Turns
    scored_by: str
    """`verifier`, `verifier, running programs`, or `judges` with the rubric's name."""
    source: str
    """`core`, `community`, or the package that provides it."""
    available: bool
    reason: str | None
    """Why it is not available."""


def _list_lines(datasets: Datasets) -> tuple[EnvironmentLine, ...]:
    """Blocking: opens every environment. UserError when the code of one fails."""
    classes = discover_environments()
    catalogue = Catalogue(classes)
    catalogue.open(datasets)
    packages = _map_entry_points()
    return tuple(
        _build_line(kind, catalogue.explain_unavailability(name), packages) for name, kind in sorted(classes.items())
    )


def _build_table(listed: tuple[EnvironmentLine, ...]) -> Table:
    table = Table("environment", "version", "turns", "scored by", "from", "available")
    for line in listed:
        reason = Text(line.reason or "no", style="red") if not line.available else Text("yes")
        table.add_row(line.name, line.version, line.turns, line.scored_by, line.source, reason)
    return table


def _build_line(kind: type[Environment], reason: str | None, packages: dict[str, str]) -> EnvironmentLine:
    return EnvironmentLine(
        name=kind.name,
        version=kind.version,
        turns="several" if kind.multi_turn else "one",
        scored_by=_describe_scoring(kind),
        source=_find_source(kind, packages),
        available=reason is None,
        reason=reason,
    )


def _describe_scoring(kind: type[Environment]) -> str:
    if kind.rubric is not None:
        return f"judges ({kind.rubric.name})"
    return "verifier, running programs" if kind.runs_programs else "verifier"


def _find_source(kind: type[Environment], packages: dict[str, str]) -> str:
    if kind.__module__.startswith("app.envs."):
        return "community" if kind.__module__.startswith("app.envs.community.") else "core"
    return packages.get(f"{kind.__module__}:{kind.__qualname__}", kind.__module__)


def _map_entry_points() -> dict[str, str]:
    """Package name by entry point value."""
    points = entry_points(group="atropos_environments.envs")
    return {point.value: point.dist.name for point in points if point.dist is not None}


# `envs new`: a small environment that passes all checks.

_TEMPLATES: Final = Path(__file__).with_name("templates")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_LONGEST_NAME: Final = 40
_FILES_OF_ONE: Final[Mapping[bool, Mapping[str, str]]] = {
    False: {
        "__init__.py": "__init__.py.j2",
        "environment.py": "verified.py.j2",
        "prompts.yaml": "prompts.yaml.j2",
    },
    True: {
        "__init__.py": "__init__.py.j2",
        "environment.py": "judged.py.j2",
        "prompts.yaml": "judged_prompts.yaml.j2",
        "rubric.yaml": "rubric.yaml.j2",
    },
}
"""Files of an environment's folder and their templates, by whether it is judged."""
_FILES_OF_A_PACKAGE: Final[Mapping[str, str]] = {
    "pyproject.toml": "pyproject.toml.j2",
    "README.md": "README.md.j2",
    "tests/test_{name}.py": "test_package.py.j2",
}


@dataclass(frozen=True)
class ScaffoldRequest:
    name: str
    folder: Path | None = None
    """None for the default folder."""
    package: bool = False
    judged: bool = False


@dataclass(frozen=True)
class ScaffoldResult:
    files: tuple[Path, ...]
    next_steps: str


def write_environment(request: ScaffoldRequest, taken: Collection[str]) -> ScaffoldResult:
    """Writes all files or none. UserError for an invalid or `taken` name, for existing files, and where no default
    folder exists."""
    _check_name(request.name, taken)
    folder = _choose_folder(request)
    texts = {folder / path: text for path, text in _render_texts(request).items()}
    existing = [str(path) for path in texts if path.exists()]
    if existing:
        raise UserError(f"already exists: {', '.join(existing)}; nothing was written")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return ScaffoldResult(tuple(map(_shorten_path, texts)), _describe_next_steps(request, folder))


def _build_module_name(name: str) -> str:
    """Module name of a package, prefixed to avoid clashes with other modules."""
    return f"atropos_envs_{name}"


def _check_name(name: str, taken: Collection[str]) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > _LONGEST_NAME:
        raise UserError(
            f"invalid environment name {name!r}: use at most {_LONGEST_NAME} lower-case letters, digits and _, "
            "starting with a letter, and no Python keyword; for example tide_tables"
        )
    if name in taken:
        raise UserError(f"the environment {name!r} already exists; names must be unique")


def _choose_folder(request: ScaffoldRequest) -> Path:
    if request.package:
        return (request.folder or Path()) / _build_module_name(request.name).replace("_", "-")
    if request.folder is not None:
        return request.folder
    community = Path(app.envs.community.__path__[0])
    if not (community.parents[2] / "pyproject.toml").is_file():
        raise UserError("this is an installed package, not a checkout: use --path FOLDER or --package")
    return community


def _render_texts(request: ScaffoldRequest) -> dict[str, str]:
    """Texts by path within the folder."""
    values = {
        "name": request.name,
        "title": request.name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in request.name.split("_")),
        "module": _build_module_name(request.name),
        "distribution": _build_module_name(request.name).replace("_", "-"),
        "service_version": version("atropos-environments"),
    }
    inside = "src/{module}" if request.package else "{name}"
    sources = {f"{inside}/{file}": source for file, source in _FILES_OF_ONE[request.judged].items()}
    if request.package:
        sources |= _FILES_OF_A_PACKAGE
    return {
        path.format(**values): Template.read(_TEMPLATES / source).render(**values) + "\n"
        for path, source in sources.items()
    }


def _shorten_path(path: Path) -> Path:
    """Relative to the current directory where possible."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _describe_next_steps(request: ScaffoldRequest, folder: Path) -> str:
    shown = _shorten_path(folder)
    if request.package:
        steps: tuple[str, ...] = (
            f"python -m pip install -e {shown}    # beside atropos-environments, which then serves it",
            f"atropos-envs envs check {request.name}",
            "atropos-envs serve",
        )
    elif request.folder is None:
        steps = (f"atropos-envs envs check {request.name}", "atropos-envs serve")
    else:
        steps = (f"atropos-envs envs check {shown / request.name}",)
    listed = "\n".join(f"    {step}" for step in steps)
    return (
        f"It passes all checks. Change it step by step, and check it after each change:\n{listed}\nSee CONTRIBUTING.md."
    )
