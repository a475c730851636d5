"""`atropos-envs labels` and `judges agreement`: choices that people made, into a gateway, and judges beside them."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import httpx
import typer
from rich.markup import escape
from rich.table import Table

from app.domain.errors import GatewayError
from app.domain.faults import explain_os_error
from app.domain.labels import ImportedLabel, ImportRequest, NamedLabeller
from app.domain.values import Frozen
from app.evaluation.agreement import FEWEST_GROUPS, AgreementFigure, AgreementSlice, CriterionAgreement
from app.evaluation.labelled_groups import ChoiceFile, read_choices
from app.features.labels.model import ImportReceipt
from app.features.labels.routes import JudgeAgreement
from app.terminal.client import ApiKey, GatewayClient, Url, find_gateway_url, open_gateway
from app.terminal.completion import complete_environment, complete_judge, complete_run
from app.terminal.consoles import (
    AsJson,
    describe_error,
    errors,
    format_bracketed,
    format_figure,
    output_console,
    print_json,
    stop,
)
from app.toolkit.texts import escape_invisible

BATCH = 100
"""Choices in one request, at most."""
BATCH_BYTES = 4 * 1024 * 1024
"""Of JSON in one request, at most: each choice holds the whole chat before it. A larger choice goes alone."""

_IMPORTER: Final = "imported"
"""Who imports choices where nobody is named and the service has no keys."""

labels = typer.Typer(help="Import choices that people made, such as preferred replies.", no_args_is_help=True)


@labels.callback()
def callback() -> None:
    """Import choices that people made, such as preferred replies."""


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
    on_behalf_of: Annotated[str, typer.Option(help="Whose choices these are.", show_default="nobody named")] = "",
    labeller: Annotated[
        str, typer.Option(help="Who imports them, where the service has no keys. With a key, its name is stored.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and store nothing.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
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
            added, known = asyncio.run(_send(address, api_key, _name_importer(api_key, labeller, on_behalf_of), found))
        except GatewayError as error:
            stop(describe_error(error))
        except ValueError as error:
            stop(f"--labeller, --on-behalf-of: {error}")
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
        stop(f"cannot read {path}: {explain_os_error(error)}")
    except UnicodeDecodeError as error:
        stop(f"{path} is not UTF-8: {error.reason}")


def _name_importer(api_key: str, labeller: str, on_behalf_of: str) -> NamedLabeller:
    """ValueError for what is no name."""
    name = labeller or ("" if api_key else _IMPORTER)
    return NamedLabeller(labeller=name or None, on_behalf_of=on_behalf_of or None)


async def _send(url: str, api_key: str, by: NamedLabeller, choices: Sequence[ImportedLabel]) -> tuple[int, int]:
    added = known = 0
    async with open_gateway(url, api_key, 120) as gateway:
        for batch in cut_batches(choices):
            receipt = await _import_choices(gateway, by, batch)
            added, known = added + receipt.added, known + receipt.known
    return added, known


def cut_batches(choices: Sequence[ImportedLabel]) -> Iterator[list[ImportedLabel]]:
    """In their order, within both limits."""
    batch: list[ImportedLabel] = []
    held = 0
    for label in choices:
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


# `atropos-envs judges agreement`: how far a judge agrees with the people who labelled its groups.


def agreement(
    judge: Annotated[str, typer.Argument(help="Judge to compare with people.", autocompletion=complete_judge)],
    env: Annotated[
        str | None, typer.Option(help="Only groups of this environment.", autocompletion=complete_environment)
    ] = None,
    run: Annotated[str | None, typer.Option(help="Only groups of this run.", autocompletion=complete_run)] = None,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Show how far a judge agrees with people, beside how far people agree with one another."""
    address = (url or find_gateway_url()).rstrip("/")
    try:
        found = asyncio.run(_fetch(address, api_key, judge, env, run))
    except GatewayError as error:
        stop(describe_error(error))
    if as_json:
        print_json(found)
    else:
        print_agreement(found)


async def _fetch(url: str, api_key: str, judge: str, env: str | None, run: str | None) -> JudgeAgreement:
    async with open_gateway(url, api_key, 600) as gateway:
        return await _fetch_agreement(gateway, judge, env, run)


def print_agreement(found: JudgeAgreement) -> None:
    console = output_console()
    for part in (found.overall, *found.languages, *found.rubrics):
        console.print(_build_pair_table(part, found.judge))
        if part.criteria:
            console.print(_build_criterion_table(part))
        for line in _describe_defects(part):
            console.print(escape_invisible(line), highlight=False, markup=False)
    for arm, counts in found.draws.items():
        tried = counts.labelled + counts.skipped
        share = f", {counts.skipped / tried:.0%} skipped" if tried else ""
        console.print(escape_invisible(f"{arm}: {counts.labelled:,} labelled{share}"), highlight=False, markup=False)
    if found.with_others:
        words = f"{found.with_others:,} groups have only the scores of a panel of several judges"
        console.print(words, highlight=False, markup=False)
    if found.unverified:
        words = f"{found.unverified:,} labels in the figures are by names that nobody verified"
        console.print(words, highlight=False, markup=False)
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.labels.items())) or "none"
    words = f"labels: {kinds}; only those that the queue drew uniformly are in the figures"
    console.print(escape_invisible(words), highlight=False, markup=False)


def _build_pair_table(part: AgreementSlice, judge: str) -> Table:
    pairs = part.pairs
    judge = _make_plain(judge)
    title = f"{_make_plain(part.name)}: which of two replies is better, {pairs.groups:,} groups"
    table = Table("who", "pairs", "agrees with people", title=title)
    table.add_row(judge, f"{pairs.pairs:,}", _format_agreement(pairs.judge, pairs.groups))
    table.add_row("a second person, on pairs of two people", f"{pairs.shared_pairs:,}", _format_agreement(pairs.people))
    table.add_row(f"{judge}, on the same pairs", f"{pairs.shared_pairs:,}", _format_agreement(pairs.judge_on_shared))
    table.add_row("whoever finds all replies equal", "", f"{pairs.constant:.2f}")
    return table


def _build_criterion_table(part: AgreementSlice) -> Table:
    figures = ("beyond chance (kappa)", "same level", "by always the commonest level", "judge minus person")
    levels = ("people: share of levels 0-4", "judge: share of levels 0-4")
    table = Table("criterion", "replies", *figures, *levels, title=f"{_make_plain(part.name)}: criteria")
    for one in part.criteria:
        table.add_row(*_describe_criterion(one))
    return table


def _describe_criterion(one: CriterionAgreement) -> Iterator[str]:
    yield _make_plain(one.criterion)
    yield f"{one.replies:,}"
    yield _format_agreement(one.kappa, one.groups)
    yield _format_agreement(one.agreement, one.groups)
    yield format_figure(one.constant, ".2f", "")
    yield format_figure(one.bias, "+.2f", "")
    for rates in (one.people, one.judge):
        yield " ".join(f"{rate:.0%}" for rate in rates)


_DEFECT_FIGURES: Final = (
    ("auc", "a reply without a defect scores higher than one with a defect"),
    ("gate_precision", "of replies set to 0, people find a defect in"),
    ("gate_recall", "of replies with a defect, set to 0 are"),
    ("cap_precision", "of capped replies, people find a defect in"),
    ("cap_recall", "of replies with a defect, capped are"),
)


def _describe_defects(part: AgreementSlice) -> Iterator[str]:
    figures = part.defects
    if not figures.replies:
        return
    yield f"{part.name}: defects, {figures.replies:,} replies, {figures.groups:,} groups"
    if figures.base_rate is not None:
        commoner = f"whoever always gives the commoner answer is right in {figures.constant or 0:.0%}"
        yield f"  people find a defect in {figures.base_rate:.0%} of replies; {commoner}"
    for name, words in _DEFECT_FIGURES:
        yield f"  {words}: {_format_agreement(getattr(figures, name), figures.groups)}"


def _make_plain(text: str) -> str:
    """For cells and titles of tables, which would read markup in a language or the name of a criterion."""
    return escape(escape_invisible(text))


def _format_agreement(figure: AgreementFigure, groups: int | None = None) -> str:
    if groups is not None and groups < FEWEST_GROUPS:
        return f"needs {FEWEST_GROUPS} groups"
    return format_bracketed(figure, "not defined")


async def _fetch_agreement(
    gateway: GatewayClient, judge: str, environment: str | None, run: str | None
) -> JudgeAgreement:
    asked = httpx.QueryParams({k: v for k, v in {"env": environment, "run": run}.items() if v is not None})
    path = f"/judges/{quote(judge, safe='')}/agreement?{asked}"
    return JudgeAgreement.model_validate_json(await gateway.send_request("GET", path))


async def _import_choices(gateway: GatewayClient, by: NamedLabeller, choices: Sequence[ImportedLabel]) -> ImportReceipt:
    made = ImportRequest(labeller=by.labeller, on_behalf_of=by.on_behalf_of, choices=tuple(choices))
    body = made.model_dump(mode="json", exclude_defaults=True)
    return ImportReceipt.model_validate_json(await gateway.send_request("POST", "/labels/import", body))
