"""Streams exports page by page, so that memory use does not depend on their size."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol

from pydantic import BaseModel

from app.domain.digests import digest
from app.domain.exports import ExportFormat, ExportRequest, ExportShape, StoredGroup
from app.domain.groups import Rollout
from app.ports.store import ExportStore
from app.service.exports.json_lines import JsonLinesEncoder
from app.service.exports.row_models import DpoRow, KtoRow, PrivateRow, RolloutRow, Row, SftRow
from app.service.exports.row_selection import build_rows

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
    choice = RowFilter(wanted, not_for_training)
    after = 0
    while page := await exports.read_page(wanted, after, last, PAGE_SIZE):
        after = page[-1].sequence
        if piece := await asyncio.to_thread(_encode_page, encoder, choice, page):
            yield piece
    if piece := await asyncio.to_thread(encoder.finish):
        yield piece


def _encode_page(encoder: RowEncoder, choice: "RowFilter", page: Sequence[StoredGroup]) -> bytes:
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
    """Selects the rows of a request. Keeps a 16-byte digest of each row to skip duplicates."""

    def __init__(self, wanted: ExportRequest, not_for_training: Collection[str]) -> None:
        self._wanted = wanted
        self._left_out = frozenset() if wanted.offline_judge else frozenset(not_for_training) - {wanted.judge or ""}
        self._taken: set[bytes] = set()

    def select_rows(self, page: Sequence[StoredGroup]) -> Iterator[Row]:
        for stored in page:
            admitted = [one for one in stored.group.rollouts if self._admits(one)]
            yield from (row for row in build_rows(stored, self._wanted, admitted) if self._is_new(row))

    def _admits(self, rollout: Rollout) -> bool:
        judges = frozenset(rollout.score.judges)
        return (self._wanted.judge is None or self._wanted.judge in judges) and not judges & self._left_out

    def _is_new(self, row: Row) -> bool:
        """Whether the row is new: equal prompt, completion and label count as a duplicate."""
        if not isinstance(row, SftRow | KtoRow):
            return True
        said = [one.model_dump(mode="json") for one in (*row.prompt, *row.completion)]
        mark = bytes.fromhex(digest([said, row.tools, row.label if isinstance(row, KtoRow) else None]))
        new = mark not in self._taken
        self._taken.add(mark)
        return new
