"""The bits by which a group says which of its parts are not kept."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import ColumnElement, func

from app.domain.keeping import KEPT_PARTS, KeptPart
from app.store.tables import groups

PART_BITS: Final[Mapping[KeptPart, int]] = {part: 1 << place for place, part in enumerate(KEPT_PARTS)}
ALL_BITS: Final = sum(PART_BITS.values())


def build_mask(parts: Collection[KeptPart]) -> int:
    return sum(PART_BITS[part] for part in parts)


def list_parts(mask: int | None) -> frozenset[KeptPart]:
    return frozenset(part for part, bit in PART_BITS.items() if (mask or 0) & bit)


def has_text() -> ColumnElement[bool]:
    """Whether what a group's completions said is stored."""
    return func.coalesce(groups.c.reduced, 0).bitwise_and(PART_BITS["text"]) == 0
