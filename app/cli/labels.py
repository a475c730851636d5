"""`atropos-envs labels`: choices that people already made, into a running gateway."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer

from app.cli.client import GatewayClient, build_gateway_headers, find_gateway_url
from app.cli.consoles import AsJson, describe_error, errors, print_json, stop
from app.domain.errors import GatewayError
from app.domain.labels import ImportedLabel
from app.domain.values import Frozen
from app.evaluation.labelled_groups import ChoiceFile, read_choices
from app.toolkit.texts import escape_invisible

BATCH = 100
"""Choices in one request, at most."""
BATCH_BYTES = 4 * 1024 * 1024
"""Of JSON in one request, at most: each choice holds the whole chat before it. A larger choice goes alone."""

labels = typer.Typer(help="Import choices that people made.", no_args_is_help=True)


@labels.callback()
def callback() -> None:
    """Import choices that people made."""


class ImportedLine(Frozen):
    file: str
    line: int
    reason: str


class ImportSummary(Frozen):
    """What `labels import --json` prints."""

    choices: dict[str, int]
    """By kind."""
    left_out: tuple[ImportedLine, ...]
    added: int | None
    """Null for a dry run."""
    known: int | None


@dataclass(frozen=True)
class _ReadFile:
    path: Path
    content: ChoiceFile


@labels.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Pairs or chats of SillyTavern, JSON lines.")],
    labeller: Annotated[str, typer.Option(help="Whose choices these are.")] = "imported",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and store nothing.")] = False,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
    as_json: AsJson = False,
) -> None:
    """Import choices that people already made: pairs, and the swipes of chats.

    Lines that hold no choice are named with the reason. What is stored already is not stored again."""
    read = [_read_file(path) for path in files]
    found = [label for one in read for label in one.content.labels]
    added = known = None
    if found and not dry_run:
        address = (url or find_gateway_url()).rstrip("/")
        try:
            added, known = asyncio.run(_send(address, api_key, labeller, found))
        except GatewayError as error:
            stop(describe_error(error))
        except ValueError as error:
            stop(f"--labeller: {error}")
    summary = ImportSummary(
        choices=dict(sorted(Counter(one.kind for one in found).items())),
        left_out=tuple(
            ImportedLine(file=escape_invisible(str(one.path)), line=left.line, reason=escape_invisible(left.reason))
            for one in read
            for left in one.content.left_out
        ),
        added=0 if not found and not dry_run else added,
        known=0 if not found and not dry_run else known,
    )
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary, read, dry_run=dry_run)


def _read_file(path: Path) -> _ReadFile:
    try:
        with path.open(encoding="utf-8") as lines:
            return _ReadFile(path, read_choices(path.name, lines))
    except OSError as error:
        stop(f"cannot read {path}: {error.strerror}")
    except UnicodeDecodeError as error:
        stop(f"{path} is not UTF-8: {error.reason}")


async def _send(url: str, api_key: str, labeller: str, found: Sequence[ImportedLabel]) -> tuple[int, int]:
    added = known = 0
    async with httpx.AsyncClient(base_url=url, headers=build_gateway_headers(api_key), timeout=120) as client:
        for batch in cut_batches(found):
            told = await GatewayClient(client).import_choices(labeller, batch)
            added, known = added + told.added, known + told.known
    return added, known


def cut_batches(found: Sequence[ImportedLabel]) -> Iterator[list[ImportedLabel]]:
    """In their order, within both limits."""
    batch: list[ImportedLabel] = []
    held = 0
    for label in found:
        size = len(label.model_dump_json(exclude_defaults=True).encode())
        if batch and (len(batch) == BATCH or held + size > BATCH_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(label)
        held += size
    if batch:
        yield batch


def _print_summary(summary: ImportSummary, read: Sequence[_ReadFile], *, dry_run: bool) -> None:
    for left in summary.left_out:
        _say(f"{left.file}:{left.line}: left out: {left.reason}")
    if dry_run:
        for one in read:
            for label in one.content.labels:
                others = len(label.choice.rejected)
                _say(f"{label.choice.source}: {label.kind}, over {others} other{'s' if others > 1 else ''}")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.choices.items()) or "no choices"
    stored = "nothing was stored" if dry_run else f"{summary.added:,} stored, {summary.known:,} known already"
    _say(f"{kinds} in {len(read):,} files; {len(summary.left_out):,} lines left out; {stored}")


def _say(words: str) -> None:
    """One line. Files choose some of the words, so nothing in them moves the cursor."""
    line = escape_invisible(words).replace("\n", "⟨U+000A⟩")
    errors.print(line, highlight=False, markup=False, soft_wrap=True)
