"""What is retrieved for a character, and why, for the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.worlds import HiddenEvent, RankedEvent, RecalledLore, RetrievalExplanation, SearchWay
from app.http.viewer.events import EventLine, build_event_line
from app.http.viewer.retrieved_passages import describe_reason
from app.toolkit.display import escape_invisible, format_number, format_time, scale_heat

WAYS: Final[Mapping[SearchWay, str]] = {"text": "words", "newest": "new", "important": "important"}


@dataclass(frozen=True)
class ScorePart:
    """A component of a retrieval score in [0, 1], shown as a bar."""

    name: str
    share: float
    heat: int
    label: str


@dataclass(frozen=True)
class RankedLine:
    line: EventLine
    parts: tuple[ScorePart, ...]
    score: str
    ways: str
    tokens: int
    told: bool


@dataclass(frozen=True)
class LoreLine:
    lorebook: str
    entry: str
    because: str
    tokens: int
    told: bool


@dataclass(frozen=True)
class HiddenLine:
    line: EventLine
    reason: str
    by: str


@dataclass(frozen=True)
class Recall:
    """Retrieved events, best first; `used` of `budget` tokens are taken."""

    as_of: str
    told: tuple[RankedLine, ...]
    left_out: tuple[RankedLine, ...]
    lore: tuple[LoreLine, ...]
    hidden: tuple[HiddenLine, ...]
    used: int
    budget: int


def build_recall(explained: RetrievalExplanation) -> Recall:
    lines = tuple(map(_build_ranked_line, explained.events))
    lore = tuple(map(_build_lore_line, explained.lore))
    return Recall(
        as_of=format_time(explained.as_of),
        told=tuple(line for line in lines if line.told),
        left_out=tuple(line for line in lines if not line.told),
        lore=lore,
        hidden=tuple(map(_build_hidden_line, explained.hidden)),
        used=sum(one.tokens for one in lines if one.told) + sum(one.tokens for one in lore if one.told),
        budget=explained.budget_tokens,
    )


def _build_ranked_line(ranked: RankedEvent) -> RankedLine:
    values = (
        ("recency", ranked.recency),
        ("importance", ranked.importance),
        ("relevance", ranked.relevance),
    )
    return RankedLine(
        line=build_event_line(ranked.event),
        parts=tuple(ScorePart(name, value, scale_heat(value), format_number(value, 2)) for name, value in values),
        score=format_number(ranked.score, 2),
        ways=", ".join(WAYS[way] for way in ranked.ways),
        tokens=ranked.tokens,
        told=ranked.told,
    )


def _build_lore_line(recalled: RecalledLore) -> LoreLine:
    return LoreLine(
        lorebook=escape_invisible(recalled.lorebook),
        entry=escape_invisible(recalled.entry),
        because=escape_invisible(recalled.because),
        tokens=recalled.tokens,
        told=recalled.told,
    )


def _build_hidden_line(hidden: HiddenEvent) -> HiddenLine:
    return HiddenLine(line=build_event_line(hidden.event), reason=describe_reason(hidden.reason), by=hidden.by or "")
