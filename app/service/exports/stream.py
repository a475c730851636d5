"""Streams exports page by page, so that memory use does not depend on their size."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol

from pydantic import BaseModel

from app.domain.digests import digest
from app.domain.exports import ExportFormat, ExportRequest, ExportShape, ExportSummary, LeftOut, StoredGroup
from app.domain.groups import Rollout
from app.ports.views import ExportStore
from app.service.exports.json_lines import JsonLinesEncoder
from app.service.exports.label_rows import LabelRow, LabelRows
from app.service.exports.reading_rows import JudgementRow, ReadingFilter
from app.service.exports.row_models import DpoRow, KtoRow, PrivateRow, RolloutRow, Row, SftRow
from app.service.exports.row_selection import build_rows, explain_absence, list_rollout_ids

PAGE_SIZE: Final = 64
"""Groups read per page."""
MEDIA_TYPES: Final[Mapping[ExportFormat, str]] = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
_ROW_TYPES: Final[Mapping[ExportShape, type[BaseModel]]] = {
    "rollouts": RolloutRow,
    "sft": SftRow,
    "dpo": DpoRow,
    "kto": KtoRow,
    "judgements": JudgementRow,
    "labels": LabelRow,
}


class RowEncoder(Protocol):
    """Encodes rows as a file, in pieces."""

    def encode_rows(self, rows: Sequence[BaseModel]) -> bytes: ...

    def finish(self) -> bytes: ...


async def stream_export(
    exports: ExportStore, wanted: ExportRequest, last: int, not_for_training: Collection[str] = ()
) -> AsyncIterator[bytes]:
    """The export file in pieces, oldest groups first, up to sequence `last`. Scores of the judges in `not_for_training`
    are left out unless the request includes them."""
    encoder = await asyncio.to_thread(build_encoder, wanted.format, _choose_row_type(wanted))
    choice = build_row_filter(wanted, not_for_training)
    after = 0
    while page := await exports.read_page(wanted, after, last, PAGE_SIZE):
        after = page[-1].sequence
        if piece := await asyncio.to_thread(_encode_page, encoder, choice, page):
            yield piece
    if piece := await asyncio.to_thread(encoder.finish):
        yield piece


async def summarise_export(
    exports: ExportStore, wanted: ExportRequest, last: int, not_for_training: Collection[str] = ()
) -> ExportSummary:
    """What `stream_export` of the same arguments writes and leaves out."""
    choice = build_row_filter(wanted, not_for_training)
    after = rows = 0
    while page := await exports.read_page(wanted, after, last, PAGE_SIZE):
        after = page[-1].sequence
        rows += await asyncio.to_thread(lambda read: sum(1 for _ in choice.select_rows(read)), page)
    return ExportSummary(rows=rows, left_out=dict(sorted((+choice.left_out).items())))


async def stream_labels(rows: LabelRows, form: ExportFormat) -> AsyncIterator[bytes]:
    """People's labels as a file in pieces, oldest first."""
    encoder = await asyncio.to_thread(build_encoder, form, LabelRow)
    async for page in rows.read_pages():
        if page and (piece := await asyncio.to_thread(encoder.encode_rows, page)):
            yield piece
    if piece := await asyncio.to_thread(encoder.finish):
        yield piece


async def summarise_labels(rows: LabelRows) -> ExportSummary:
    """What `stream_labels` of the same rows writes and leaves out."""
    count = 0
    async for page in rows.read_pages():
        count += len(page)
    return ExportSummary(rows=count, left_out=dict(sorted((+rows.left_out).items())))


def build_row_filter(wanted: ExportRequest, not_for_training: Collection[str]) -> "RowFilter | ReadingFilter":
    """Selects the rows of a request page by page, and counts what it leaves out."""
    return (ReadingFilter if wanted.shape == "judgements" else RowFilter)(wanted, not_for_training)


def _encode_page(encoder: RowEncoder, choice: "RowFilter | ReadingFilter", page: Sequence[StoredGroup]) -> bytes:
    rows = [*choice.select_rows(page)]
    return encoder.encode_rows(rows) if rows else b""


def _choose_row_type(wanted: ExportRequest) -> type[BaseModel]:
    return PrivateRow if wanted.private and wanted.shape == "rollouts" else _ROW_TYPES[wanted.shape]


def build_encoder(form: ExportFormat, row: type[BaseModel]) -> RowEncoder:
    """The encoder of a format for rows of this class."""
    if form == "jsonl":
        return JsonLinesEncoder()
    made: RowEncoder = import_module("app.service.exports.parquet").ParquetEncoder(row)
    return made


class RowFilter:
    """Selects the rows of a request, and counts by reason the rollouts that are in none. Keeps a 16-byte digest of each
    row to skip duplicates."""

    def __init__(self, wanted: ExportRequest, not_for_training: Collection[str]) -> None:
        self._wanted = wanted
        self._needed = frozenset({"text"} if wanted.shape == "rollouts" else {"text", "thought"})
        """The parts without which there is no row."""
        self._not_for_training = (
            frozenset() if wanted.offline_judge else frozenset(not_for_training) - {wanted.judge or ""}
        )
        self._taken: set[bytes] = set()
        self.left_out: Counter[LeftOut] = Counter()

    def select_rows(self, page: Sequence[StoredGroup]) -> Iterator[Row]:
        for stored in page:
            admitted = self._admit(stored.group.rollouts)
            built = [*build_rows(stored, self._wanted, admitted)]
            rows = [row for row in built if self._is_new(row)]
            self.left_out["duplicate"] += len(built) - len(rows)
            self._count_unused(admitted, built)
            yield from rows

    def _admit(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Completions that failed a gate before a judge was asked stay or go with those that were judged, so that no
        filter keeps the failures alone."""
        judged = [self._find_refusal(one) for one in rollouts if one.score.judges]
        of_group = None if None in judged else next(iter(judged), None)
        admitted = []
        for one in rollouts:
            follows = bool(judged) and one.score.gate == 0 and not one.score.judges
            refusal = of_group if follows else self._find_refusal(one)
            if refusal is None:
                admitted.append(one)
            else:
                self.left_out[refusal] += 1
        return admitted

    def _find_refusal(self, rollout: Rollout) -> LeftOut | None:
        if rollout.reduced is not None and not self._needed.isdisjoint(rollout.reduced.missing):
            return "reduced"
        if not self._not_for_training.isdisjoint(rollout.score.judges):
            return "offline_judge"
        return None if self._wanted.judge in (None, *rollout.score.judges) else "other_judge"

    def _count_unused(self, rollouts: Sequence[Rollout], built: Sequence[Row]) -> None:
        used = {rollout_id for row in built for rollout_id in list_rollout_ids(row)}
        for one in rollouts:
            if one.rollout_id not in used:
                self.left_out[explain_absence(one, self._wanted)] += 1

    def _is_new(self, row: Row) -> bool:
        """Whether the row is new: equal prompt, completion and label count as a duplicate."""
        if not isinstance(row, SftRow | KtoRow):
            return True
        said = [one.model_dump(mode="json") for one in (*row.prompt, *row.completion)]
        mark = bytes.fromhex(digest([said, row.tools, row.label if isinstance(row, KtoRow) else None]))
        new = mark not in self._taken
        self._taken.add(mark)
        return new
