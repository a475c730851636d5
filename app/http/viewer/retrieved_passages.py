"""Retrieved and withheld passages for the pages. All text is untrusted: games and retrievers wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.tasks import Context
from app.toolkit.display import Excerpt, cut_excerpt, escape_invisible, format_time

VISIBLE_CHARACTERS: Final = 600
"""Characters of a passage that are shown before folding."""

REASONS: Final[Mapping[str, str]] = {
    "future": "later than as_of",
    "not_visible": "not visible to the character",
    "superseded": "superseded",
    "not_yet_valid": "not yet valid",
    "no_longer_valid": "no longer valid",
}
"""Reasons of the built-in retriever; those of others are shown unchanged."""


@dataclass(frozen=True)
class PassageView:
    id: str
    source: str
    time: str
    text: Excerpt


@dataclass(frozen=True)
class WithheldView:
    """A withheld passage; `text` is None if the retriever gave none."""

    id: str
    reason: str
    text: Excerpt | None
    leak_terms: str


@dataclass(frozen=True)
class RetrievedView:
    as_of: str
    told: tuple[PassageView, ...]
    held: tuple[WithheldView, ...]
    failure: str


def build_retrieved(context: Context | None) -> RetrievedView | None:
    """The retrieved passages of a task; None if nothing was retrieved for it."""
    if context is None:
        return None
    return RetrievedView(
        as_of=format_time(context.as_of),
        told=tuple(
            PassageView(
                escape_invisible(passage.id),
                escape_invisible(passage.source),
                format_time(passage.time),
                cut_excerpt(passage.text, VISIBLE_CHARACTERS),
            )
            for passage in context.passages
        ),
        held=tuple(
            WithheldView(
                id=escape_invisible(item.id),
                reason=describe_reason(item.reason),
                text=cut_excerpt(item.text, VISIBLE_CHARACTERS) if item.text else None,
                leak_terms=escape_invisible(", ".join(item.leak_terms)),
            )
            for item in context.withheld
        ),
        failure=escape_invisible(context.failure or ""),
    )


def describe_reason(word: str) -> str:
    return REASONS.get(word, escape_invisible(word.replace("_", " ")))
