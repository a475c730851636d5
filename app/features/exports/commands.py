"""`atropos-envs export` and `tasks`: training data and prompt data sets from a running gateway into files."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from pydantic import JsonValue, ValidationError
from rich.progress import (
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from app.domain.errors import GatewayError, UserError
from app.domain.faults import explain_connection, explain_os_error
from app.domain.runs import Purpose
from app.domain.scores import Outcome, Reason
from app.domain.values import Frozen, Split
from app.features.exports.model import (
    LEFT_OUT_MEANINGS,
    ExportFormat,
    ExportRequest,
    ExportShape,
    ExportSummary,
    LeftOut,
)
from app.features.exports.routes import NEWEST_GROUP
from app.features.exports.rows import JSON_LINES_ONLY, PROMPT_ROW_TYPES, PromptRow, Trainer, build_prompt_row
from app.features.exports.service import RowEncoder, build_encoder
from app.service.requests import HandedOutTask
from app.terminal import ADVANCED
from app.terminal.client import (
    ApiKey,
    GatewayClient,
    Url,
    build_gateway_headers,
    describe_refusal,
    describe_silence,
    find_gateway_url,
    open_gateway,
)
from app.terminal.completion import complete_environment, complete_judge, complete_run
from app.terminal.consoles import (
    AsJson,
    describe_error,
    errors,
    parse_params,
    print_json,
    show_bars,
    stop,
    stop_on_errors,
)

# `atropos-envs export`.

_READ_SECONDS = 120.0
"""Timeout per chunk: with a narrow filter the gateway may search for long."""
_SUMMARY_SECONDS = 600.0
"""The summary reads the whole export again."""
_HINTS: Mapping[LeftOut, str] = {"offline_judge": " (--offline-judge includes them)"}
_EXPORT_PARAMETERS: Final = {field.alias or name for name, field in ExportRequest.model_fields.items()}
_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
"""Accepted formats of times."""


def export(
    file: Annotated[Path, typer.Argument(help="Output file; its suffix selects the format: .jsonl or .parquet.")],
    shape: Annotated[ExportShape, typer.Option(help="Row format.")] = "rollouts",
    env: Annotated[str | None, typer.Option(help="Only this environment.", autocompletion=complete_environment)] = None,
    run: Annotated[str | None, typer.Option(help="Only this run.", autocompletion=complete_run)] = None,
    label: Annotated[
        str | None, typer.Option(help="Only tasks with this label, such as a character's id.", rich_help_panel=ADVANCED)
    ] = None,
    scene: Annotated[
        str | None, typer.Option(help="Only tasks of this scene, by its id.", rich_help_panel=ADVANCED)
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Only completions scored by this judge.", autocompletion=complete_judge, rich_help_panel=ADVANCED
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=_FORMATS,
            help="Only groups scored at this time or later, such as 2030-01-31T12:00:00; UTC by default.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            formats=_FORMATS, help="Only groups scored before this time; UTC by default.", rich_help_panel=ADVANCED
        ),
    ] = None,
    purpose: Annotated[
        Purpose, typer.Option(help="Training rollouts or evaluations.", rich_help_panel=ADVANCED)
    ] = "train",
    task_id: Annotated[str | None, typer.Option(help="Only this task.", rich_help_panel=ADVANCED)] = None,
    outcome: Annotated[
        Outcome | None, typer.Option(help="Only groups with this outcome.", rich_help_panel=ADVANCED)
    ] = None,
    reason: Annotated[
        Reason | None,
        typer.Option(help="Only groups with a completion unscored for this reason.", rich_help_panel=ADVANCED),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Only groups of this policy model.", rich_help_panel=ADVANCED)
    ] = None,
    flag: Annotated[str | None, typer.Option(help="Only groups with this flag.", rich_help_panel=ADVANCED)] = None,
    min_step: Annotated[int | None, typer.Option(help="First policy step.", rich_help_panel=ADVANCED)] = None,
    max_step: Annotated[int | None, typer.Option(help="Last policy step.", rich_help_panel=ADVANCED)] = None,
    min_mean: Annotated[
        float | None, typer.Option(help="Least mean reward of a group.", rich_help_panel=ADVANCED)
    ] = None,
    max_mean: Annotated[
        float | None, typer.Option(help="Largest mean reward of a group.", rich_help_panel=ADVANCED)
    ] = None,
    min_std: Annotated[
        float | None, typer.Option(help="Least spread of a group's rewards.", rich_help_panel=ADVANCED)
    ] = None,
    max_std: Annotated[
        float | None, typer.Option(help="Largest spread of a group's rewards.", rich_help_panel=ADVANCED)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="sft: minimum value (0.7). kto: minimum value of a desirable completion (0.5).",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="sft: number of best completions per group.", rich_help_panel=ADVANCED)
    ] = None,
    margin: Annotated[
        float, typer.Option(max=1, help="dpo: minimum difference in reward.", rich_help_panel=ADVANCED)
    ] = 0.1,
    pairs: Annotated[
        int, typer.Option(min=1, help="dpo: maximum number of pairs per group.", rich_help_panel=ADVANCED)
    ] = 1,
    offline_judge: Annotated[
        bool,
        typer.Option(
            "--offline-judge", help="Include scores of judges that are not for training.", rich_help_panel=ADVANCED
        ),
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Include notes, reasons and what only judges were told.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Export stored rollouts as training data.

    The file appears only when it is complete."""
    options = {name: value for name, value in locals().items() if name in _EXPORT_PARAMETERS}
    with stop_on_errors(1):
        wanted = ExportRequest.model_validate(
            {**options, "format": _infer_format(file), **_assume_utc(since=since, until=until)}
        )
    url = (url or find_gateway_url()).rstrip("/")
    try:
        if file.exists() and not force:
            stop(f"{file} already exists; use --force to overwrite it", 1)
        with _use_partial_file(file) as part:
            size, newest = _download(url, api_key, wanted, part)
            part.replace(file)
        summary = _fetch_summary(url, api_key, wanted, newest)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        stop(describe_silence(url, error), 1)
    except OSError as error:
        stop(f"cannot write {file}: {explain_os_error(error)}", 1)
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
        params=wanted.write_query() | {"newest_group": newest},
        headers=build_gateway_headers(api_key),
        timeout=httpx.Timeout(30, read=_SUMMARY_SECONDS),
    )
    if reply.is_error:
        stop(f"the file is complete, but nothing says what was left out: {describe_refusal(reply)}", 1)
    return ExportSummary.model_validate_json(reply.content)


def _assume_utc(**moments: datetime | None) -> dict[str, datetime]:
    return {name: moment.replace(tzinfo=moment.tzinfo or UTC) for name, moment in moments.items() if moment is not None}


def _download(url: str, api_key: str, wanted: ExportRequest, part: Path) -> tuple[int, str]:
    """The size, and up to which group the file goes."""
    query = wanted.write_query()
    headers = build_gateway_headers(api_key)
    columns = (TextColumn(wanted.shape), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    timeout = httpx.Timeout(30, read=_READ_SECONDS)
    with (
        httpx.stream("GET", f"{url}/export", params=query, headers=headers, timeout=timeout) as reply,
        Progress(*columns, console=errors, transient=True) as progress,
    ):
        if reply.is_error:
            reply.read()
            stop(describe_refusal(reply), 1)
        bar = progress.add_task("", total=None)
        with part.open("wb") as written:
            try:
                for piece in reply.iter_bytes():
                    written.write(piece)
                    progress.update(bar, advance=len(piece))
            except httpx.HTTPError as error:
                why = explain_connection(error)
                stop(f"the download from {url} failed after {written.tell():,} bytes; no file was written: {why}", 1)
            return written.tell(), reply.headers.get(NEWEST_GROUP, "")


# `atropos-envs tasks`: tasks as a prompt data set.

_ENDLESS: Final = 1_000
"""Default number of rows of an endless split."""
_MOST: Final = 100_000
"""Default maximum of rows of a split whose size depends on params."""
_A_BATCH: Final = 256
"""Tasks of one request."""


def tasks(
    file: Annotated[Path, typer.Argument(help="Output file; its suffix selects the format: .jsonl or .parquet.")],
    env: Annotated[list[str], typer.Option(help="Environment name; repeatable.", autocompletion=complete_environment)],
    trainer: Annotated[Trainer, typer.Option("--for", help="Trainer whose column format to use.")] = "trl",
    split: Annotated[Split, typer.Option(help="Split to export.")] = "train",
    params: Annotated[str, typer.Option(help="Environment params, as a JSON object.", rich_help_panel=ADVANCED)] = "{}",
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of each environment.", show_default="the whole split; 1,000 if it is endless"),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="Index of the first task.", rich_help_panel=ADVANCED)] = 0,
    run: Annotated[
        str | None,
        typer.Option(
            help="Run whose retrieved contexts to use.", autocompletion=complete_run, rich_help_panel=ADVANCED
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Export environments' tasks as a prompt data set.

    Each row has the task id to score answers under.
    Nothing is leased, and the same command writes the same file.
    The file appears only when it is complete."""
    form = _infer_format(file)
    if file.exists() and not force:
        stop(f"{file} already exists; use --force to overwrite it", 1)
    if form != "jsonl" and trainer in JSON_LINES_ONLY:
        stop(f"rows for {trainer} are JSON lines: name a file that ends in .jsonl", 1)
    try:
        parsed = parse_params(params)
        wanted = [_PromptExportSpec(trainer, name, split, parsed, run, first, count) for name in env]
        with _use_partial_file(file) as part:
            encoder = build_encoder(form, PROMPT_ROW_TYPES[trainer])
            rows = asyncio.run(_write_rows(part, encoder, url or find_gateway_url(), api_key, wanted))
            part.replace(file)
    except (UserError, ValidationError) as error:
        stop(str(error), 1)
    except GatewayError as error:
        stop(describe_error(error), 1)
    except OSError as error:
        stop(f"cannot write {file}: {explain_os_error(error)}", 1)
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
class _PromptExportSpec:
    trainer: Trainer
    environment: str
    split: Split
    params: dict[str, JsonValue]
    run: str | None
    first: int
    count: int | None

    def build_request(self, batch_size: int, cursor: int) -> dict[str, JsonValue]:
        """The body of `next-batch`."""
        task: dict[str, JsonValue] = {"split": self.split, "params": self.params, "run": self.run}
        return {**task, "batch_size": batch_size, "cursor": cursor}


async def _write_rows(
    part: Path, encoder: RowEncoder, url: str, api_key: str, wanted: Sequence[_PromptExportSpec]
) -> int:
    """Returns the number of rows."""
    written = 0
    async with open_gateway(url, api_key, 120) as gateway:
        counts = [await _count_rows(gateway, each) for each in wanted]
        with part.open("wb") as file, show_bars(transient=True) as bars:
            bar = bars.add("tasks", sum(counts))
            for each, count in zip(wanted, counts, strict=True):
                async for rows in _fetch_rows(gateway, each, count):
                    file.write(encoder.encode_rows(rows))
                    written += len(rows)
                    bar.show(written)
            file.write(encoder.finish())
    return written


async def _fetch_rows(gateway: GatewayClient, wanted: _PromptExportSpec, count: int) -> AsyncIterator[list[PromptRow]]:
    fetched = 0
    seen: set[str] = set()
    while fetched < count:
        cursor = wanted.first + fetched
        body = wanted.build_request(min(_A_BATCH, count - fetched), cursor)
        batch = await gateway.fetch_next_batch(body, wanted.environment)
        # Tasks of training come again without end: the whole split is what comes before the first does.
        tasks = batch.tasks if wanted.count else [*_take_until_repeated(batch.tasks, seen)]
        yield [build_prompt_row(wanted.trainer, task, wanted.split, index) for index, task in enumerate(tasks, cursor)]
        fetched += len(tasks)
        if batch.exhausted or not tasks or len(tasks) < len(batch.tasks):
            break


def _take_until_repeated(tasks: Iterable[HandedOutTask], seen: set[str]) -> Iterator[HandedOutTask]:
    for task in tasks:
        if task.task_id in seen:
            return
        seen.add(task.task_id)
        yield task


async def _count_rows(gateway: GatewayClient, wanted: _PromptExportSpec) -> int:
    """Maximum number of rows. Raises the service's error when there can be none."""
    environment = await gateway.fetch_environment(wanted.environment)
    size = next((split.size for split in environment.splits if split.name == wanted.split), None)
    if wanted.count is not None or size is None:
        return wanted.count or _ENDLESS
    return max(size, _MOST) if wanted.params else size


# Files.


def _infer_format(file: Path) -> ExportFormat:
    if file.suffix not in (".jsonl", ".parquet"):
        stop(f"{file}: its name must end in .jsonl or .parquet", 1)
    return "jsonl" if file.suffix == ".jsonl" else "parquet"


@contextmanager
def _use_partial_file(file: Path) -> Iterator[Path]:
    """A temporary path next to the file, removed at exit unless it was renamed. Next to it, since only within one file
    system is a file renamed in one step."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
