"""`atropos-envs data`: what of a data set makes tasks, what is left out and why, and whether its golds are paid."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, get_args

import httpx
import typer
from pydantic import JsonValue, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from app.cli.client import GatewayClient, build_gateway_headers, describe_refusal, find_gateway_url
from app.cli.consoles import AsJson, describe_error, errors, output_console, print_json, stop, stop_on_errors
from app.cli.envs.check import find_environment, open_tools
from app.cli.process.plan import parse_params
from app.datasets.configured_datasets import ConfiguredDatasets
from app.datasets.rows import RowReport
from app.domain.errors import GatewayError
from app.domain.exports import LEFT_OUT_MEANINGS, ExportFormat, ExportRequest, ExportShape, ExportSummary, LeftOut
from app.domain.runs import Purpose
from app.domain.scores import Outcome, Reason
from app.domain.tasks import Completion, DatasetSource
from app.domain.values import Frozen, Split
from app.features.exports.routes import NEWEST_GROUP
from app.features.exports.rows import JSON_LINES_ONLY, PROMPT_ROW_TYPES, PromptRow, Trainer, build_prompt_row
from app.features.exports.service import RowEncoder, build_encoder
from app.ports.environment import Environment
from app.settings import Settings, read_settings
from app.toolkit.procedural import DatasetEnvironment
from app.toolkit.texts import escape_invisible

data = typer.Typer(help="Check a data set before training on it.", no_args_is_help=True)

CHECKED: Final = "checked"
"""Name of the data set that the command line gives."""
SHOWN: Final = 600
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
    env: Annotated[str, typer.Argument(help="Environment that is to read it.")],
    path: Annotated[
        str, typer.Argument(help="Folder, file or hub id.", show_default="the data sets of the settings")
    ] = "",
    subset: Annotated[str | None, typer.Option(help="Configuration on the hub, or folder within the folder.")] = None,
    revision: Annotated[str | None, typer.Option(help="Commit, tag or branch on the hub.")] = None,
    splits: Annotated[
        list[str] | None, typer.Option("--split", metavar="OURS=THEIRS", help="Such as test=validation. Repeatable.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="OURS=THEIRS", help="Such as answer=Answer. Repeatable.")
    ] = None,
    hold_out: Annotated[float | None, typer.Option(help="Share of train that serves as test.")] = None,
    files: Annotated[Path | None, typer.Option(help="Folder of files that rows name, such as databases.")] = None,
    tasks: Annotated[int, typer.Option(min=1, max=1_000, help="Tasks to make and score of each data set.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Say what of a data set is used and what is left out and why, and score the golds of some tasks.

    Exit code 1: a gold is not paid. Exit code 2: the data set cannot be read."""
    try:
        settings = read_settings()
        kind = find_environment(env).kind
        given: Mapping[str, DatasetSource] = settings.datasets.get(env, {})
        if path:
            options: dict[str, object] = {"subset": subset, "revision": revision, "hold_out": hold_out, "files": files}
            options["splits"] = {ours: theirs.split(",") for ours, theirs in _parse_pairs("--split", splits)}
            options["columns"] = dict(_parse_pairs("--column", columns))
            given = {CHECKED: DatasetSource.model_validate({"source": path, **options})}
        with errors.status("reading the rows"):
            report = asyncio.run(_check(kind, given, settings, tasks))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        stop(f"{_OPTIONS.get(str(first['loc'][0]), 'PATH')}: {first['msg'].removeprefix('Value error, ')}")
    except GatewayError as error:
        stop(describe_error(error))
    except ValueError as error:
        stop(str(error))
    if as_json:
        print_json(report)
    else:
        _print_report(report, output_console())
    if not report.passed:
        raise typer.Exit(1)


def _parse_pairs(option: str, given: Sequence[str] | None) -> list[tuple[str, str]]:
    pairs = [tuple(one.split("=", 1)) for one in given or ()]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError(f"{option}: write the name here, `=`, and the name in the data set")
    return [(ours, theirs) for ours, theirs in pairs]


async def _check(
    kind: type[Environment], given: Mapping[str, DatasetSource], settings: Settings, count: int
) -> DataReport:
    if not issubclass(kind, DatasetEnvironment):
        raise ValueError(f"{kind.name} reads no data sets")
    if not given:
        raise ValueError(f"the settings have no data set for {kind.name}: give a folder, a file or a hub id")
    folders = {"character_sheets": settings.character_sheets}
    configured = ConfiguredDatasets({kind.name: given}, folders=folders, hub_cache=settings.cache_dir)
    environment = await asyncio.to_thread(kind.open, configured)
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
            )
        )
    judged = kind.rubric is not None  # nobody pays a good reply in full
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
    shown = min(count, size)
    async with open_tools(type(environment)) as tools:
        indexes = [place * size // shown for place in range(shown)]
        tasks = [(index, environment.task(split, index, params)) for index in indexes]
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
        left_out = [(split, one) for split, found in dataset.splits.items() for one in found.left_out]
        if left_out:
            reasons = Table("left out", "rows", "why", "where")
            for split, rows in left_out:
                more = " …" if rows.count > len(rows.places) else ""
                cells = split, str(rows.count), rows.reason, "; ".join(rows.places) + more
                reasons.add_row(*map(_escape, cells))
            console.print(reasons)
        for task in dataset.tasks:
            _print_task(console, task)


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
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} … ({len(text)} characters)"


def _print(console: Console, text: str) -> None:
    console.print(escape_invisible(text), highlight=False, markup=False, soft_wrap=True)


def _escape(text: str) -> str:
    return escape(escape_invisible(text))


# Atomic writing of training data files.


def infer_format(file: Path) -> ExportFormat:
    if file.suffix not in (".jsonl", ".parquet"):
        stop(f"{file}: its name must end in .jsonl or .parquet", 1)
    return "jsonl" if file.suffix == ".jsonl" else "parquet"


@contextmanager
def use_partial_file(file: Path) -> Iterator[Path]:
    """A temporary path next to the file, removed at exit unless it was renamed."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


# `atropos-envs export`: training data from a running gateway into a file.

READ_SECONDS = 120.0
"""Timeout per chunk: with a narrow filter the gateway may search for long."""

SUMMARY_SECONDS = 600.0

_HINTS: Mapping[LeftOut, str] = {"offline_judge": " (--offline-judge includes them)"}

FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
"""Accepted formats of times."""


def export(
    file: Annotated[Path, typer.Argument(help="Output file; its suffix selects the format: .jsonl or .parquet.")],
    shape: Annotated[ExportShape, typer.Option(help="Row format.")] = "rollouts",
    env: Annotated[str | None, typer.Option(help="Only this environment.")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    label: Annotated[str | None, typer.Option(help="Only tasks with this label, such as a character's id.")] = None,
    scene: Annotated[str | None, typer.Option(help="Only tasks of this scene, by its id.")] = None,
    judge: Annotated[str | None, typer.Option(help="Only completions scored by this judge.")] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=FORMATS, help="Only groups scored at this time or later; UTC by default.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=FORMATS, help="Only groups scored before this time; UTC by default.")
    ] = None,
    purpose: Annotated[Purpose, typer.Option(help="Training rollouts or evaluations.")] = "train",
    task_id: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only groups with this outcome.")] = None,
    reason: Annotated[
        Reason | None, typer.Option(help="Only groups with a completion unscored for this reason.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only groups of this policy model.")] = None,
    flag: Annotated[str | None, typer.Option(help="Only groups with this flag.")] = None,
    min_step: Annotated[int | None, typer.Option(help="First policy step.")] = None,
    max_step: Annotated[int | None, typer.Option(help="Last policy step.")] = None,
    min_mean: Annotated[float | None, typer.Option(help="Least mean reward of a group.")] = None,
    max_mean: Annotated[float | None, typer.Option(help="Largest mean reward of a group.")] = None,
    min_std: Annotated[float | None, typer.Option(help="Least spread of a group's rewards.")] = None,
    max_std: Annotated[float | None, typer.Option(help="Largest spread of a group's rewards.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="sft: minimum value (0.7). kto: minimum value of a desirable completion (0.5)."
        ),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="sft: number of best completions per group.")] = None,
    margin: Annotated[float, typer.Option(max=1, help="dpo: minimum difference in reward.")] = 0.1,
    pairs: Annotated[int, typer.Option(min=1, help="dpo: maximum number of pairs per group.")] = 1,
    offline_judge: Annotated[
        bool, typer.Option("--offline-judge", help="Include scores of judges that are not for training.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Include notes, rationales and what the judges were told.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
    as_json: AsJson = False,
) -> None:
    """Export stored rollouts as training data.

    The file appears only when it is complete."""
    given = {name: value for name, value in locals().items() if name in ExportRequest.model_fields}
    with stop_on_errors(1):
        wanted = ExportRequest.model_validate(
            {**given, "format": infer_format(file), **_assume_utc(since=since, until=until)}
        )
    url = (url or find_gateway_url()).rstrip("/")
    try:
        if file.exists() and not force:
            stop(f"{file} already exists; use --force to overwrite it", 1)
        with use_partial_file(file) as part:
            size, newest = _download(url, api_key, wanted, part)
            part.replace(file)
        summary = _fetch_summary(url, api_key, wanted, newest)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        stop(f"cannot reach the gateway at {url} (set --url): {error or type(error).__name__}", 1)
    except OSError as error:
        stop(f"cannot write {file}: {error.strerror}", 1)
    if as_json:
        print_json(ExportReport(file=str(file), bytes=size, **dict(summary)))
        return
    report = f"{file}: {summary.rows:,} rows, {size:,} bytes{_describe_left_out(summary)}"
    errors.print(report, highlight=False, markup=False, soft_wrap=True)


class ExportReport(ExportSummary):
    """What `export --json` prints."""

    file: str
    bytes: int


def _describe_left_out(summary: ExportSummary) -> str:
    reasons = [
        f"{count:,} {LEFT_OUT_MEANINGS[reason]}{_HINTS.get(reason, '')}" for reason, count in summary.left_out.items()
    ]
    return f"\nleft out: {'; '.join(reasons)}" if reasons else ""


def _fetch_summary(url: str, api_key: str, wanted: ExportRequest, newest: str) -> ExportSummary:
    """Of the same groups as the file, though others may have been stored meanwhile."""
    reply = httpx.get(
        f"{url}/export/summary",
        params=wanted.model_dump(mode="json", exclude_defaults=True) | {"newest_group": newest},
        headers=build_gateway_headers(api_key),
        timeout=httpx.Timeout(30, read=SUMMARY_SECONDS),
    )
    if reply.is_error:
        stop(f"the file is complete, but {url}/export/summary returned {describe_refusal(reply)}", 1)
    return ExportSummary.model_validate_json(reply.content)


def _assume_utc(**moments: datetime | None) -> dict[str, datetime]:
    return {name: moment.replace(tzinfo=moment.tzinfo or UTC) for name, moment in moments.items() if moment is not None}


def _download(url: str, api_key: str, wanted: ExportRequest, part: Path) -> tuple[int, str]:
    """The size, and up to which group the file goes."""
    asked = wanted.model_dump(mode="json", exclude_defaults=True)
    headers = build_gateway_headers(api_key)
    columns = (TextColumn(wanted.shape), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    timeout = httpx.Timeout(30, read=READ_SECONDS)
    with (
        httpx.stream("GET", f"{url}/export", params=asked, headers=headers, timeout=timeout) as reply,
        Progress(*columns, console=errors, transient=True) as progress,
    ):
        if reply.is_error:
            reply.read()
            stop(f"{url}/export returned {reply.status_code}: {describe_refusal(reply)}", 1)
        bar = progress.add_task("", total=None)
        with part.open("wb") as written:
            try:
                for piece in reply.iter_bytes():
                    written.write(piece)
                    progress.update(bar, advance=len(piece))
            except httpx.HTTPError as error:
                stop(f"the download from {url} failed after {written.tell():,} bytes; no file was written: {error}", 1)
            return written.tell(), reply.headers.get(NEWEST_GROUP, "")


# `atropos-envs tasks`: exports environments' tasks as a prompt data set file.

ENDLESS: Final = 1_000
"""Default number of rows of an endless split."""
MOST: Final = 100_000
"""Default maximum of rows of a test split whose size depends on params."""
A_BATCH: Final = 256


def tasks(
    file: Annotated[Path, typer.Argument(help="Output file; its suffix selects the format: .jsonl or .parquet.")],
    env: Annotated[list[str], typer.Option(help="Environment name; repeatable.")],
    trainer: Annotated[Trainer, typer.Option("--for", help="Trainer whose column format to use.")] = "trl",
    split: Annotated[Split, typer.Option(help="Split to export.")] = "train",
    params: Annotated[str, typer.Option(help="Environment params, as a JSON object.")] = "{}",
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of each environment.", show_default="the whole split; 1,000 if it is endless"),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="Index of the first task.")] = 0,
    run: Annotated[str | None, typer.Option(help="Run whose retrieved contexts to use.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
    as_json: AsJson = False,
) -> None:
    """Export environments' tasks as a prompt data set.

    Each row has the task id to score answers under.
    Nothing is leased, and the same command writes the same file.
    The file appears only when it is complete."""
    form = infer_format(file)
    if file.exists() and not force:
        stop(f"{file} already exists; use --force to overwrite it", 1)
    if form != "jsonl" and trainer in JSON_LINES_ONLY:
        stop(f"rows for {trainer} are JSON lines: name a file that ends in .jsonl", 1)
    try:
        parsed = parse_params(params)
        wanted = [PromptExportSpec(trainer, name, split, parsed, run, first, count) for name in env]
        with use_partial_file(file) as part:
            encoder = build_encoder(form, PROMPT_ROW_TYPES[trainer])
            rows = asyncio.run(_write_rows(part, encoder, url or find_gateway_url(), api_key, wanted))
            part.replace(file)
    except ValueError as error:
        stop(str(error), 1)
    except GatewayError as error:
        stop(describe_error(error), 1)
    except OSError as error:
        stop(f"cannot write {file}: {error.strerror}", 1)
    if as_json:
        print_json(PromptExportReport(file=str(file), environments=tuple(env), rows=rows))
        return
    errors.print(f"{file}: {rows:,} tasks of {', '.join(env)}", highlight=False, markup=False, soft_wrap=True)


class PromptExportReport(Frozen):
    """What `tasks --json` prints."""

    file: str
    environments: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class PromptExportSpec:
    trainer: Trainer
    environment: str
    split: Split
    params: dict[str, JsonValue]
    run: str | None
    first: int
    count: int | None

    def build_request(self, batch_size: int, cursor: int) -> dict[str, JsonValue]:
        """The body of `next-batch`."""
        said: dict[str, JsonValue] = {"split": self.split, "params": self.params, "run": self.run}
        return {**said, "batch_size": batch_size, "cursor": cursor}


async def _write_rows(
    part: Path, encoder: RowEncoder, url: str, api_key: str, wanted: Sequence[PromptExportSpec]
) -> int:
    """Returns the number of rows."""
    headers = build_gateway_headers(api_key)
    columns = (TextColumn("tasks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    written = 0
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        gateway = GatewayClient(client)
        counts = [await _count_rows(gateway, each) for each in wanted]
        with part.open("wb") as file, Progress(*columns, console=errors, transient=True) as progress:
            bar = progress.add_task("", total=sum(counts))
            for each, count in zip(wanted, counts, strict=True):
                async for rows in _fetch_rows(gateway, each, count):
                    file.write(encoder.encode_rows(rows))
                    written += len(rows)
                    progress.update(bar, completed=written)
            file.write(encoder.finish())
    return written


async def _fetch_rows(gateway: GatewayClient, wanted: PromptExportSpec, count: int) -> AsyncIterator[list[PromptRow]]:
    fetched = 0
    while fetched < count:
        cursor = wanted.first + fetched
        ask = wanted.build_request(min(A_BATCH, count - fetched), cursor)
        batch = await gateway.fetch_next_batch(ask, wanted.environment)
        places = enumerate(batch.tasks, start=cursor)
        yield [build_prompt_row(wanted.trainer, task, wanted.split, at) for at, task in places]
        fetched += len(batch.tasks)
        if batch.exhausted or not batch.tasks:
            break


async def _count_rows(gateway: GatewayClient, wanted: PromptExportSpec) -> int:
    """Maximum number of rows. Raises the service's error when there can be none."""
    found = await gateway.fetch_environment(wanted.environment)
    size = next((split.size for split in found.splits if split.name == wanted.split), None)
    if wanted.count is not None or size is None:
        return wanted.count or ENDLESS
    return max(size, MOST) if wanted.params and wanted.split == "test" else size
