"""What an export would hold, by shape, of a bounded number of groups."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pydantic import BaseModel, JsonValue

from app.domain.exports import ExportRequest, ExportShape, ExportSummary, StoredGroup
from app.ports.views import ExportStore
from app.service.exports.label_rows import LabelRows
from app.service.exports.stream import PAGE_SIZE, build_row_filter

COUNTED: Final[tuple[ExportShape, ...]] = ("rollouts", "sft", "dpo", "kto")
"""Shapes of completions, which one reading counts."""
SHOWN_ROWS: Final = 5


@dataclass(frozen=True)
class ExportPreview:
    """`groups` were read, the last of them with sequence `newest`. `rows` are the first ones of the wanted shape."""

    groups: int
    summaries: dict[ExportShape, ExportSummary]
    rows: tuple[dict[str, JsonValue], ...]


async def preview_export(
    exports: ExportStore, wanted: ExportRequest, after: int, last: int, not_for_training: Collection[str] = ()
) -> ExportPreview:
    """Of the groups after one sequence and up to another: few, since all of them are read."""
    shapes = COUNTED if wanted.shape in COUNTED else (*COUNTED, wanted.shape)
    choices = {
        shape: build_row_filter(wanted.model_copy(update={"shape": shape}), not_for_training) for shape in shapes
    }
    counts = dict.fromkeys(shapes, 0)
    shown: list[BaseModel] = []
    groups = 0
    async for page in _read_pages(exports, wanted, after, last):
        groups += len(page)
        for shape, choice in choices.items():
            rows = list(choice.select_rows(page))
            counts[shape] += len(rows)
            if shape == wanted.shape:
                shown += rows[: SHOWN_ROWS - len(shown)]
    summaries = {
        shape: ExportSummary(rows=counts[shape], left_out=dict(sorted((+choices[shape].left_out).items())))
        for shape in shapes
    }
    return ExportPreview(groups, summaries, tuple(row.model_dump(mode="json") for row in shown))


async def _read_pages(
    exports: ExportStore, wanted: ExportRequest, after: int, last: int
) -> AsyncIterator[Sequence[StoredGroup]]:
    while page := await exports.read_page(wanted, after, last, PAGE_SIZE):
        after = page[-1].sequence
        yield page


async def preview_labels(labels: LabelRows, most: int) -> ExportPreview:
    """Until so many rows were read."""
    rows = 0
    shown: list[BaseModel] = []
    async for page in labels.read_pages():
        rows += len(page)
        shown += islice(page, SHOWN_ROWS - len(shown))
        if rows >= most:
            break
    summary = ExportSummary(rows=rows, left_out=dict(sorted((+labels.left_out).items())))
    return ExportPreview(0, {"labels": summary}, tuple(row.model_dump(mode="json") for row in shown))
