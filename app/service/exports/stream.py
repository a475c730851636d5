"""Streams exports page by page, so that memory use does not depend on their size."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol

from pydantic import BaseModel

from app.domain.digests import digest
from app.domain.exports import ExportRequest, Format, Shape, StoredGroup
from app.domain.groups import Rollout
from app.ports.store import Exports
from app.service.exports.choosing import rows_of
from app.service.exports.lines import LinesEncoder
from app.service.exports.rows import DpoRow, KtoRow, PrivateRow, RolloutRow, Row, SftRow

PAGE: Final = 64
"""Groups read per page."""
MEDIA_TYPES: Final[Mapping[Format, str]] = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
_ROWS: Final[Mapping[Shape, type[BaseModel]]] = {"rollouts": RolloutRow, "sft": SftRow, "dpo": DpoRow, "kto": KtoRow}


class Encoder(Protocol):
    """Encodes rows as a file, in pieces."""

    def add(self, rows: Sequence[BaseModel]) -> bytes: ...

    def end(self) -> bytes: ...


async def exported(
    exports: Exports, wanted: ExportRequest, last: int, not_for_training: Collection[str] = ()
) -> AsyncIterator[bytes]:
    """The export file in pieces, oldest groups first, up to sequence `last`. Scores of the judges in `not_for_training`
    are left out unless the request includes them."""
    encoder = await asyncio.to_thread(encoder_of, wanted.format, _row(wanted))
    choice = Choice(wanted, not_for_training)
    after = 0
    while page := await exports.page(wanted, after, last, PAGE):
        after = page[-1].sequence
        if piece := await asyncio.to_thread(_piece, encoder, choice, page):
            yield piece
    if piece := await asyncio.to_thread(encoder.end):
        yield piece


def _piece(encoder: Encoder, choice: "Choice", page: Sequence[StoredGroup]) -> bytes:
    rows = [*choice.rows(page)]
    return encoder.add(rows) if rows else b""


def _row(wanted: ExportRequest) -> type[BaseModel]:
    return PrivateRow if wanted.private and wanted.shape == "rollouts" else _ROWS[wanted.shape]


def encoder_of(form: Format, row: type[BaseModel]) -> Encoder:
    """The encoder of a format for rows of this class."""
    if form == "jsonl":
        return LinesEncoder()
    made: Encoder = import_module("app.service.exports.parquet").ParquetEncoder(row)
    return made


class Choice:
    """Selects the rows of a request. Keeps a 16-byte digest of each row to skip duplicates."""

    def __init__(self, wanted: ExportRequest, not_for_training: Collection[str]) -> None:
        self._wanted = wanted
        self._left_out = frozenset() if wanted.offline_judge else frozenset(not_for_training) - {wanted.judge or ""}
        self._taken: set[bytes] = set()

    def rows(self, page: Sequence[StoredGroup]) -> Iterator[Row]:
        for stored in page:
            admitted = [one for one in stored.group.rollouts if self._admits(one)]
            yield from (row for row in rows_of(stored, self._wanted, admitted) if self._is_new(row))

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
