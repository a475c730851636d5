"""`atropos-envs tasks`: exports environments' tasks as a prompt data set file."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from pydantic import JsonValue
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import AsJson, describe_error, errors, print_json, stop
from app.cli.data_files import infer_format, use_partial_file
from app.cli.gateway_client import GatewayClient
from app.cli.process.plan import parse_params
from app.domain.errors import GatewayError
from app.domain.values import Frozen, Split
from app.service.exports.prompt_rows import (
    JSON_LINES_ONLY,
    PROMPT_ROW_TYPES,
    PromptRow,
    Trainer,
    build_prompt_row,
)
from app.service.exports.stream import RowEncoder, build_encoder

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
