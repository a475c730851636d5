"""`atropos-envs data`: what of a data set makes tasks, what is left out and why, and whether its golds are paid.

The check reads the rows as the service does, and lets the environment score some golds: one that is not paid in full
shows a wrong column, or an answer in another form. Then it writes right answers otherwise and says which of them are
ambiguous under the rules (`app.cli.turned_answers`). Judged environments are exempt."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.envs.check import find_environment, open_tools
from app.cli.turned_answers import AnswerCheck, RowToTurn, check_answers
from app.datasets.configured_datasets import ConfiguredDatasets
from app.datasets.rows import CheckedRows, RowReport
from app.domain.errors import GatewayError, UserError
from app.domain.faults import explain_faults
from app.domain.tasks import Completion, DatasetSource
from app.domain.values import Frozen, Split, take_evenly
from app.ports.environment import Environment
from app.settings import Settings, read_settings
from app.terminal import ADVANCED
from app.terminal.completion import complete_environment
from app.terminal.consoles import (
    AsJson,
    describe_error,
    errors,
    output_console,
    print_json,
    show_bars,
    stop,
)
from app.toolkit.procedural import DatasetEnvironment
from app.toolkit.texts import escape_invisible

data = typer.Typer(help="Check a data set before training on it.", no_args_is_help=True)

_GIVEN_NAME: Final = "checked"
"""Name of the data set that the command line gives."""
_MOST_SHOWN: Final = 600
"""Characters of a prompt and of a gold that are printed."""
_OPTIONS: Final = {
    "subset": "--subset",
    "revision": "--revision",
    "splits": "--split",
    "columns": "--column",
    "hold_out": "--hold-out",
}
"""By fields of the source."""
_SPLITS: Final[tuple[Split, ...]] = get_args(Split)


class LeftOutRows(Frozen):
    reason: str
    count: int
    places: tuple[str, ...]
    """File and line of the first few."""


class CheckedSplit(Frozen):
    used: int
    """Rows that make tasks."""
    in_both: int
    """Rows that the other split has too."""
    left_out: tuple[LeftOutRows, ...]


class ShownTask(Frozen):
    split: Split
    index: int
    prompt: str
    gold: str | None
    """Null where no right answer is known."""
    reward: float | None
    """Of the gold; null without one, and where it was not scored."""
    rationale: str | None


class CheckedDataset(Frozen):
    name: str
    origin: str
    digest: str
    splits: dict[Split, CheckedSplit]
    tasks: tuple[ShownTask, ...]
    answers: AnswerCheck | None
    """Null where answers are no values, or judges score them."""


class DataReport(Frozen):
    """What `data check --json` prints."""

    environment: str
    datasets: tuple[CheckedDataset, ...]
    passed: bool
    """Every gold that code scored is paid in full."""


@data.callback()
def callback() -> None:
    """Check a data set before training on it."""


@data.command()
def check(
    env: Annotated[str, typer.Argument(help="Environment that is to read it.", autocompletion=complete_environment)],
    path: Annotated[
        str, typer.Argument(help="Folder, file or hub id.", show_default="the data sets of the settings")
    ] = "",
    subset: Annotated[
        str | None,
        typer.Option(help="Configuration of the data set on the hub, or subfolder.", rich_help_panel=ADVANCED),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Commit, tag or branch on the hub.", rich_help_panel=ADVANCED)
    ] = None,
    splits: Annotated[
        list[str] | None,
        typer.Option(
            "--split", metavar="OURS=THEIRS", help="Which of its splits is ours, such as test=validation; repeatable."
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="OURS=THEIRS", help="Which of its columns is ours, such as answer=Answer; repeatable."
        ),
    ] = None,
    hold_out: Annotated[
        float | None, typer.Option(help="Share of train that serves as test.", rich_help_panel=ADVANCED)
    ] = None,
    files: Annotated[
        Path | None, typer.Option(help="Folder of files that rows name, such as databases.", rich_help_panel=ADVANCED)
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, max=1_000, help="Tasks to make and score of each data set.")] = 3,
    answers: Annotated[
        int, typer.Option(min=0, help="Right answers of each data set to rewrite, spread evenly over its rows.")
    ] = 200,
    as_json: AsJson = False,
) -> None:
    """Check which rows of a data set are used, which are left out and why, and whether right answers are paid.

    Right answers are also rewritten: a list reversed, a unit dropped, another spelling. The report counts the rows that
    each rewriting applies to, and those where it is paid. It names some ambiguous rows: the rewritten answer means the
    same and is not paid, or means something else and is paid.

    Exit code 1: a right answer of the shown tasks is not paid. Exit code 2: the data set cannot be read."""
    try:
        settings = read_settings()
        kind = find_environment(env).kind
        sources: Mapping[str, DatasetSource] = settings.datasets.get(env, {})
        if path:
            options: dict[str, object] = {"subset": subset, "revision": revision, "hold_out": hold_out, "files": files}
            options["splits"] = {ours: theirs.split(",") for ours, theirs in _parse_pairs("--split", splits)}
            options["columns"] = dict(_parse_pairs("--column", columns))
            sources = {_GIVEN_NAME: DatasetSource.model_validate({"source": path, **options})}
        report = asyncio.run(_check(kind, sources, settings, tasks, answers))
    except ValidationError as error:
        first = explain_faults(error, DatasetSource)[0]
        stop(f"{_OPTIONS.get(str(first.path[0]) if first.path else '', 'PATH')}: {first.words}")
    except GatewayError as error:
        stop(describe_error(error))
    except UserError as error:
        stop(str(error))
    if as_json:
        print_json(report)
    else:
        _print_report(report, output_console())
    if not report.passed:
        raise typer.Exit(1)


def _parse_pairs(option: str, values: Sequence[str] | None) -> list[tuple[str, str]]:
    pairs = [tuple(one.split("=", 1)) for one in values or ()]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise UserError(f"{option}: write the name here, `=`, and the name in the data set")
    return [(ours, theirs) for ours, theirs in pairs]


async def _check(
    kind: type[Environment], sources: Mapping[str, DatasetSource], settings: Settings, count: int, answers: int
) -> DataReport:
    if not issubclass(kind, DatasetEnvironment):
        raise UserError(f"{kind.name} reads no data sets")
    if not sources:
        raise UserError(f"the settings have no data set for {kind.name}: give a folder, a file or a hub id")
    folders = {"character_sheets": settings.character_sheets}
    configured = ConfiguredDatasets({kind.name: sources}, folders=folders, hub_cache=settings.cache_dir)
    with errors.status("reading the rows"):
        environment = await asyncio.to_thread(kind.open, configured)
    judged = kind.rubric is not None  # nobody pays a good reply in full
    checked = []
    for name, dataset in environment.datasets.items():
        reports = configured.reports[kind.name][name]
        splits = {
            split: _describe_split(report, environment.count_left_out(name, split)) for split, report in reports.items()
        }
        checked.append(
            CheckedDataset(
                name=name,
                origin=dataset.origin,
                digest=dataset.digest,
                splits=splits,
                tasks=tuple(await _show_tasks(environment, name, count)),
                answers=await _turn_answers(environment, name, answers)
                if answers and kind.answers_are_values and not judged
                else None,
            )
        )
    passed = judged or all(task.reward in (None, 1.0) for dataset in checked for task in dataset.tasks)
    return DataReport(environment=kind.name, datasets=tuple(checked), passed=passed)


def _describe_split(report: RowReport, by_environment: Mapping[str, int]) -> CheckedSplit:
    """`by_environment`: rows that the environment leaves out beyond those of the report, by reason."""
    left_out = [LeftOutRows(reason=one.reason, count=one.count, places=one.places) for one in report.left_out]
    left_out += [LeftOutRows(reason=reason, count=count, places=()) for reason, count in by_environment.items()]
    used = report.used - sum(by_environment.values())
    return CheckedSplit(used=used, in_both=report.shared, left_out=tuple(left_out))


async def _show_tasks(environment: Environment, dataset: str, count: int) -> list[ShownTask]:
    """Spread over the split that comes first."""
    params = environment.Params.model_validate({"dataset": dataset})
    split = next(split for split in _SPLITS if environment.size(split, params))
    size = environment.size(split, params) or 0
    async with open_tools(type(environment)) as tools:
        tasks = [(index, environment.task(split, index, params)) for index in take_evenly(range(size), count)]
        golds = [environment.gold(task) for _, task in tasks]
        scores = [
            (await environment.score(task, [gold], tools))[0] if gold is not None else None
            for (_, task), gold in zip(tasks, golds, strict=True)
        ]
    return [
        ShownTask(
            split=split,
            index=index,
            prompt="\n".join(f"{message.role}: {message.content}" for message in task.messages),
            gold=_write_gold(gold),
            reward=None if score is None else score.reward,
            rationale=None if score is None else score.rationale,
        )
        for (index, task), gold, score in zip(tasks, golds, scores, strict=True)
    ]


async def _turn_answers(environment: DatasetEnvironment[Any], dataset: str, most: int) -> AnswerCheck:
    """Spread over all splits."""
    params = environment.Params.model_validate({"dataset": dataset})
    splits = environment.datasets[dataset].splits
    places = [(split, index) for split in _SPLITS for index in range(len(splits.get(split, ())))]
    rows = [
        RowToTurn(split, index, _describe_place(splits[split], index), environment.task(split, index, params))
        for split, index in take_evenly(places, most)
    ]
    async with open_tools(type(environment)) as tools:
        with show_bars(transient=True) as bars:
            bar = bars.add(f"turning answers of {dataset} round", len(rows))
            return await check_answers(
                rows, environment.gold, lambda task, group: environment.score(task, group, tools), bar.advance
            )


def _describe_place(rows: Sequence[object], index: int) -> str:
    return rows.describe_place(index) if isinstance(rows, CheckedRows) else f"row {index + 1}"


def _write_gold(gold: Completion | None) -> str | None:
    if gold is None:
        return None
    calls = [call.function for message in gold.messages or () for call in message.tool_calls]
    return gold.answer or "\n".join(f"{call.name} {call.arguments}" for call in calls)


def _print_report(report: DataReport, console: Console) -> None:
    for dataset in report.datasets:
        _print(console, f"{report.environment}: {dataset.origin}, digest {dataset.digest}")
        table = Table("split", "rows used", "in both splits")
        for split, one in dataset.splits.items():
            table.add_row(split, str(one.used), str(one.in_both))
        console.print(table)
        left_out = [(split, one) for split, checked in dataset.splits.items() for one in checked.left_out]
        if left_out:
            reasons = Table("left out", "rows", "why", "where")
            for split, rows in left_out:
                more = " …" if rows.count > len(rows.places) else ""
                cells = split, str(rows.count), rows.reason, "; ".join(rows.places) + more
                reasons.add_row(*map(_escape, cells))
            console.print(reasons)
        for task in dataset.tasks:
            _print_task(console, task)
        if dataset.answers is not None:
            _print_answers(console, dataset.answers)


def _print_answers(console: Console, checked: AnswerCheck) -> None:
    _print(console, f"\nright answers of {checked.rows} rows, turned round")
    table = Table("turn", "means", "rows", "paid", "not paid")
    for one in checked.turns:
        table.add_row(one.turn, one.means, str(one.rows), str(one.paid), str(one.unpaid))
    console.print(table)
    for row in checked.unpaid:
        _print(console, f"gold not paid: {row.split} {row.index} ({row.place}): {_cut(row.right)}")
    for one in checked.turns:
        verdict = "paid" if one.means == "another thing" else "not paid"
        for row in one.ambiguous:
            turned = f"{row.split} {row.index} ({row.place}): {row.right} as {row.turned}"
            _print(console, f"ambiguous, {one.turn}, {verdict}: {turned}")


def _print_task(console: Console, task: ShownTask) -> None:
    _print(console, f"\n{task.split} {task.index}")
    _print(console, _cut(task.prompt))
    if task.gold is None:
        _print(console, "gold: none is known")
        return
    _print(console, f"gold: {_cut(task.gold)}")
    reward = "not scored" if task.reward is None else f"{task.reward:g}"
    _print(console, f"reward of the gold: {reward} ({task.rationale})")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} … ({len(text)} characters)"


def _print(console: Console, text: str) -> None:
    console.print(escape_invisible(text), highlight=False, markup=False, soft_wrap=True)


def _escape(text: str) -> str:
    return escape(escape_invisible(text))
