"""`atropos-envs graders`: check a grader that is not ours, such as the reward function of a training.

It needs no gateway and no settings. What the check sends stands in `app.toolkit.conformance.probes`, how it reads the
answers in `app.evaluation.graders`."""

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.datasets.configured_datasets import read_table
from app.domain.errors import EnvironmentUnavailable, UserError
from app.domain.values import Proportion
from app.envs.foreign.contract import Description, ForeignOptions, ForeignServer
from app.envs.foreign.graders import FunctionGrader, RewardUrlGrader, ServerGrader, list_rows
from app.envs.foreign.nemo_gym import NemoGymOptions, NemoGymServer
from app.envs.foreign.openenv import OpenEnvOptions, OpenEnvServer
from app.envs.foreign.verifiers import VerifiersOptions, VerifiersServer
from app.evaluation.comparison import render_html
from app.evaluation.grader_rows import (
    ChosenColumns,
    RawRow,
    build_rows,
    choose_columns,
    find_row_faults,
    require_form,
)
from app.evaluation.graders import (
    Broken,
    GraderFailed,
    GraderInput,
    GraderReport,
    ProbeFigure,
    Tried,
    check_grader,
)
from app.sandbox.children import JailedChildren
from app.terminal import ADVANCED
from app.terminal.consoles import AsJson, output_console, parse_object, print_json, show_bars, stop_on_errors
from app.toolkit.conformance.probes import STRATEGIES
from app.toolkit.texts import escape_invisible

graders = typer.Typer(help="Check graders that are not ours.", no_args_is_help=True)

FailOn = Literal["paid", "refused", "any"]
_Watch = Callable[[], None]
"""Called for each text that was graded."""


@graders.callback()
def callback() -> None:
    """Check graders that are not ours."""


@dataclass(frozen=True)
class _Asked:
    """The options."""

    rows: str
    prompt: str
    answer: str
    form: str
    tasks: int
    python: Path
    folders: tuple[Path, ...]
    args: Mapping[str, JsonValue]
    trusted: bool
    force: bool
    deadline: float
    seconds: float
    seed: int


@graders.command()
def check(
    target: Annotated[
        str,
        typer.Argument(
            help="rewards.py:function, package.module:function, verifiers:PACKAGE, openenv+URL, nemo_gym+URL or "
            "openrlhf+URL."
        ),
    ],
    rows: Annotated[
        str, typer.Option(metavar="FILE", help="Rows with right answers: .jsonl, .json, .csv or .parquet, or a hub id.")
    ] = "",
    prompt: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the prompt.", show_default="by name")] = "",
    answer: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the right answer.", show_default="by name")
    ] = "",
    form: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="A right reply with {answer} in place of the value.", show_default="the best paid"
        ),
    ] = "",
    tasks: Annotated[int, typer.Option(min=2, max=100_000, help="Rows to check.")] = 40,
    python: Annotated[
        Path, typer.Option(help="Interpreter that has the grader's packages.", show_default="this one")
    ] = Path(sys.executable),
    folder: Annotated[
        list[Path] | None,
        typer.Option(
            help="Where modules are looked for first; may be repeated.", show_default="here", rich_help_panel=ADVANCED
        ),
    ] = None,
    args: Annotated[
        str,
        typer.Option(help="verifiers: fields of the task set's config, as a JSON object.", rich_help_panel=ADVANCED),
    ] = "{}",
    trusted: Annotated[
        bool, typer.Option("--trusted", help="verifiers: run the package without a jail.", rich_help_panel=ADVANCED)
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="nemo_gym: check a server that may keep state between replies.", rich_help_panel=ADVANCED
        ),
    ] = False,
    deadline: Annotated[
        float, typer.Option(min=0.1, max=600, help="Most seconds of a call.", rich_help_panel=ADVANCED)
    ] = 5.0,
    seconds: Annotated[
        float, typer.Option(min=0, help="Time after which no further row is probed.", rich_help_panel=ADVANCED)
    ] = 60.0,
    seed: Annotated[
        int, typer.Option(help="Chooses rows, and what is drawn for probes.", rich_help_panel=ADVANCED)
    ] = 0,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")] = None,
    fail_on: Annotated[FailOn, typer.Option(help="Findings that end with exit code 1.")] = "paid",
    as_json: AsJson = False,
) -> None:
    """Find out what a grader pays beside right answers, and which right answers it refuses.

    Exit code 1: findings of the kind of --fail-on. Exit code 2: nothing could be checked."""
    with stop_on_errors():
        require_form(form)
        asked = _Asked(
            rows=rows,
            prompt=prompt,
            answer=answer,
            form=form,
            tasks=tasks,
            python=python,
            folders=tuple(folder or ()),
            args=parse_object("--args", args),
            trusted=trusted,
            force=force,
            deadline=deadline,
            seconds=seconds,
            seed=seed,
        )
        report = _run(target, asked, quiet=as_json)
        if html is not None:
            html.write_text(render_html(report), encoding="utf-8")
    if as_json:
        print_json(report)
    else:
        _print_report(report, output_console())
    if _fails(report, fail_on):
        raise typer.Exit(1)


def _fails(report: GraderReport, fail_on: FailOn) -> bool:
    refused = bool(report.refused or report.unpaid)
    return {
        "paid": bool(report.paid),
        "refused": refused,
        "any": bool(report.paid or refused or report.has_other_findings),
    }[fail_on]


def _run(target: str, asked: _Asked, *, quiet: bool) -> GraderReport:
    with show_bars(transient=True, quiet=quiet) as bars:
        bar = bars.add(target, None)
        try:
            return asyncio.run(_check(target, asked, bar.advance))
        except (GraderFailed, EnvironmentUnavailable) as error:
            raise UserError(str(error)) from None


# Targets


async def _check(target: str, asked: _Asked, watch: _Watch) -> GraderReport:
    kind, _, rest = target.partition("+") if "+http" in target else target.partition(":")
    name = re.sub(r"//[^/@]*@", "//", target)  # reports are passed on, and a key may stand in a URL
    if (build := _SERVERS.get(kind)) is not None:
        return await _check_server(build(rest, asked), name, asked, watch)
    if kind == "openrlhf":
        return await _check_url(RewardUrlGrader(rest, name, asked.deadline), asked, watch)
    if not rest or "://" in target:
        raise UserError(
            f"{target!r} names no grader: write file.py:function, package.module:function, verifiers:PACKAGE, or a URL "
            "after openenv+, nemo_gym+ or openrlhf+"
        )
    return await _check_function(target, asked, watch)


async def _check_function(target: str, asked: _Asked, watch: _Watch) -> GraderReport:
    raw = await _read_rows(asked)
    columns = choose_columns(raw[0], asked.prompt, asked.answer, needs_prompt=False)
    children = JailedChildren(_read_no_variable)
    grader = FunctionGrader(target, asked.python, asked.folders, children, asked.deadline)
    try:
        await grader.open(list(raw[0].columns), columns.answer)
        notes = [f"Its parameter `{grader.reference}` gets the right answer."] if grader.reference else []
        return await check_grader(grader, _build_input(asked, asked.rows, raw, columns, notes), time.monotonic, watch)
    finally:
        await grader.close()


async def _check_url(grader: RewardUrlGrader, asked: _Asked, watch: _Watch) -> GraderReport:
    try:
        raw = await _read_rows(asked)
        columns = choose_columns(raw[0], asked.prompt, asked.answer, needs_prompt=True)
        return await check_grader(grader, _build_input(asked, asked.rows, raw, columns, []), time.monotonic, watch)
    finally:
        await grader.close()


async def _check_server(server: ForeignServer, target: str, asked: _Asked, watch: _Watch) -> GraderReport:
    grader = ServerGrader(server, target)
    try:
        description = await grader.open()
        _require_stateless(server, description, asked)
        if description.rows is None:
            source, raw = asked.rows, await _read_rows(asked)
        else:
            source = asked.rows or target
            raw = list_rows(description, source)
        columns = choose_columns(raw[0], asked.prompt, asked.answer, needs_prompt=False)
        if description.rows is None:  # the columns beside prompt and answer are the arguments of a reset
            beside = [name for name in raw[0].columns if name not in (columns.prompt, columns.answer)]
            raw = [replace(one, hidden={name: one.columns.get(name) for name in beside}) for one in raw]
        given = _build_input(asked, source, raw, columns, description.notes)
        return await check_grader(grader, given, time.monotonic, watch)
    finally:
        await grader.close()


def _require_stateless(server: ForeignServer, description: Description, asked: _Asked) -> None:
    if server.kind == "nemo_gym" and not description.replayable and not asked.force:
        raise UserError(
            "the server does not say at /reverify_mode that it is stateless, so thousands of replies may leave "
            "something behind: check a server of your own with --force"
        )


def _build_options(asked: _Asked) -> ForeignOptions:
    return ForeignOptions(max_turns=1, deadline_seconds=asked.deadline)


def _build_openenv(url: str, asked: _Asked) -> ForeignServer:
    return OpenEnvServer("the server", url, _build_options(asked), OpenEnvOptions())


def _build_nemo_gym(url: str, asked: _Asked) -> ForeignServer:
    if not asked.rows:
        raise UserError("name the file of its rows by --rows")
    return NemoGymServer("the server", url, _build_options(asked), NemoGymOptions(Path(asked.rows)))


def _build_verifiers(package: str, asked: _Asked) -> ForeignServer:
    own = VerifiersOptions(args=asked.args, folders=asked.folders, trusted=asked.trusted)
    children = JailedChildren(_read_no_variable)
    return VerifiersServer("the package", package, asked.python, _build_options(asked), own, children)


_SERVERS: Final[Mapping[str, Callable[[str, _Asked], ForeignServer]]] = {
    "openenv": _build_openenv,
    "nemo_gym": _build_nemo_gym,
    "verifiers": _build_verifiers,
}


def _read_no_variable(name: str) -> str | None:
    return None


async def _read_rows(asked: _Asked) -> list[RawRow]:
    if not asked.rows:
        raise UserError("name the rows with right answers by --rows")
    table = await asyncio.to_thread(read_table, asked.rows)
    return [RawRow(place, row) for place, row in table]  # type: ignore[arg-type]


def _build_input(
    asked: _Asked, source: str, raw: Sequence[RawRow], columns: ChosenColumns, notes: Sequence[str]
) -> GraderInput:
    return GraderInput(
        source=source,
        columns=columns,
        rows=build_rows(raw, columns, asked.tasks, asked.seed),
        row_faults=find_row_faults(raw, columns),
        form=asked.form,
        seed=asked.seed,
        seconds=asked.seconds,
        notes=tuple(notes),
    )


# The report

_SENT_SHOWN: Final = 100
_NOT_SENT: Final = "…"


def _print_report(report: GraderReport, console: Console) -> None:
    console.print(Text(report.target, style="bold"), soft_wrap=True)
    for name, words in _iterate_setup(report):
        console.print(Text.assemble((f"  {name}: ", "cyan"), words), soft_wrap=True)
    console.print()
    for name, words in _iterate_headline(report):
        console.print(Text.assemble((f"{name}: ", "bold"), words), soft_wrap=True)
    if report.stopped:
        console.print(Text(f"The check ended early: {escape_invisible(report.stopped)}", style="bold red"))
    _print_figures(console, "Paid, and should not be", report.paid)
    _print_figures(console, "Refused, and should be paid", report.refused)
    if report.unpaid:
        _print_tried(console, "Right answers of the rows that are not paid in full", report.unpaid)
    _print_broken(console, report.broken)
    _print_rest(console, report)


def _iterate_setup(report: GraderReport) -> Iterator[tuple[str, str]]:
    yield "rows", f"{report.tasks:,} of {report.rows}"
    yield "columns", f"prompt: {report.prompt_column or 'the grader brings it'}, answer: {report.answer_column}"
    yield "form of a right reply", f"{_quote(report.form)}, given as {report.way}"
    if report.reference:
        yield "right answer given as", report.reference
    yield "rewards", f"{report.full:g} is full pay, {report.floor:g} is no pay"
    for note in report.notes:
        yield "note", escape_invisible(note)
    if report.probed < report.right_paid:
        yield "time", f"it was up after {report.probed:,} rows: --seconds gives more"
    yield "calls", f"{report.calls:,} in {report.seconds:.1f} s, the slowest {report.slowest:.2f} s"


def _iterate_headline(report: GraderReport) -> Iterator[tuple[str, str]]:
    yield "right answers paid", _word_share(Proportion(report.right_paid, report.tasks))
    easiest = next(iter(report.paid), None)
    if easiest is None or easiest.example is None:
        yield "cheapest reward", "none found"
    else:
        paid = easiest.example.paid
        yield "cheapest reward", f"{paid:g} for {_quote(easiest.example.sent)} ({easiest.strategy}, {easiest.kind})"
    honest = report.honest
    yield "right replies refused in other spellings and layouts", f"{honest.hits:,.0f} of {honest.trials:,}"
    counts = {how: sum(one.tasks for one in report.broken if one.how == how) for how in _HOW}
    yield "trouble", ", ".join(f"{count:,} {_HOW[how]}" for how, count in counts.items() if count) or "none"
    yield "the most frequent answer is right for", f"{report.commonest:.1%} of the rows"


_HOW: Final = {"raised": "exceptions", "no number": "replies without a number", "late": "hung", "slow": "slow"}


def _word_share(share: Proportion) -> str:
    if share.interval is None:
        return "none were sent"
    low, high = share.interval
    return f"{share.hits:,.0f} of {share.trials:,} ({low:.1%} to {high:.1%})"


def _print_figures(console: Console, title: str, figures: Sequence[ProbeFigure]) -> None:
    if not figures:
        return
    console.print()
    table = Table("strategy", "kind", "rows", "95 %", "earned", "sent", "row", title=None, box=None, show_edge=False)
    for one in figures:
        example = one.example
        table.add_row(
            one.strategy,
            Text(one.kind),
            f"{one.failed:,} of {one.tasks:,}",
            f"{one.low:.0%} to {one.high:.0%}",
            Text(_word_paid(example)),
            Text(_quote(example.sent) if example else ""),
            Text(example.task if example else ""),
        )
    console.print(Text(title, style="bold"))
    console.print(table)
    for strategy in dict.fromkeys(one.strategy for one in figures):
        console.print(Text.assemble((f"  {strategy}: ", "cyan"), STRATEGIES[strategy]), soft_wrap=True)


def _word_paid(example: Tried | None) -> str:
    if example is None:
        return ""
    return escape_invisible(example.trouble[:_SENT_SHOWN]) if example.paid is None else f"{example.paid:g}"


def _print_tried(console: Console, title: str, tried: Sequence[Tried]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for one in tried:
        console.print(Text(f"  {one.task}: {_quote(one.sent)} earned {_word_paid(one)}"), soft_wrap=True)


def _print_broken(console: Console, broken: Sequence[Broken]) -> None:
    if not broken:
        return
    console.print()
    table = Table("trouble", "strategy", "kind", "rows", "seconds", "what came", "sent", box=None, show_edge=False)
    for one in broken:
        seconds, sent = f"{one.most_seconds:.2f}", Text(_quote(one.example.sent))
        what = Text(escape_invisible(one.words))
        table.add_row(one.how, one.strategy, Text(one.kind), f"{one.tasks:,}", seconds, what, sent)
    console.print(Text("Exceptions, no numbers, and slow answers", style="bold"))
    console.print(table)


def _print_rest(console: Console, report: GraderReport) -> None:
    lines = [
        *(f"{one.task}: the {one.reply} reply earned {_list(one.rewards)} in turn" for one in report.unsteady),
        *(f"{place}: a batch is rewarded otherwise than each reply alone" for place in report.out_of_order),
        *(f"{one.fault}: {one.count:,} rows, such as {'; '.join(one.places)}" for one in report.row_faults),
    ]
    for title, listed in (
        ("Rewards and rows", lines),
        ("Not tried", [f"{one.strategy}: {one.reason}" for one in report.not_applied]),
    ):
        if listed:
            console.print()
            console.print(Text(title, style="bold"))
            for line in listed:
                console.print(Text(f"  {escape_invisible(line)}"), soft_wrap=True)


def _list(rewards: Sequence[float | None]) -> str:
    return ", ".join("none" if one is None else f"{one:g}" for one in rewards)


def _quote(text: str) -> str:
    """On one line, cut."""
    shown = escape_invisible(text.replace("\n", "\\n"))
    return f"`{shown[:_SENT_SHOWN]}`" + (_NOT_SENT if len(shown) > _SENT_SHOWN else "")
