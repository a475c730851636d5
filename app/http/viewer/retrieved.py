"""Retrieved and withheld passages for the pages. All text is untrusted: games and retrievers wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.tasks import Context
from app.toolkit.display import Excerpt, day_and_time, excerpt, visible

AT_ONCE: Final = 600
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
class Told:
    id: str
    source: str
    time: str
    text: Excerpt


@dataclass(frozen=True)
class Held:
    """A withheld passage; `text` is None if the retriever gave none."""

    id: str
    reason: str
    text: Excerpt | None
    leak_terms: str


@dataclass(frozen=True)
class Retrieved:
    as_of: str
    told: tuple[Told, ...]
    held: tuple[Held, ...]
    failure: str


def retrieved(context: Context | None) -> Retrieved | None:
    """The retrieved passages of a task; None if nothing was retrieved for it."""
    if context is None:
        return None
    return Retrieved(
        as_of=day_and_time(context.as_of),
        told=tuple(
            Told(
                visible(passage.id), visible(passage.source), day_and_time(passage.time), excerpt(passage.text, AT_ONCE)
            )
            for passage in context.passages
        ),
        held=tuple(
            Held(
                id=visible(item.id),
                reason=reason_of(item.reason),
                text=excerpt(item.text, AT_ONCE) if item.text else None,
                leak_terms=visible(", ".join(item.leak_terms)),
            )
            for item in context.withheld
        ),
        failure=visible(context.failure or ""),
    )


def reason_of(word: str) -> str:
    return REASONS.get(word, visible(word.replace("_", " ")))
