"""What is retrieved for a character, and why, for the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.worlds import Explained, HiddenEvent, Ranked, Recalled, Way
from app.http.viewer.events import Line, line_of
from app.http.viewer.retrieved import reason_of
from app.toolkit.display import day_and_time, heat, number, visible

WAYS: Final[Mapping[Way, str]] = {"text": "words", "newest": "new", "important": "important"}


@dataclass(frozen=True)
class Part:
    """A component of a retrieval score in [0, 1], shown as a bar."""

    name: str
    share: float
    heat: int
    label: str


@dataclass(frozen=True)
class RankedLine:
    line: Line
    parts: tuple[Part, ...]
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
    line: Line
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


def recall_of(explained: Explained) -> Recall:
    lines = tuple(map(_ranked, explained.events))
    lore = tuple(map(_lore, explained.lore))
    return Recall(
        as_of=day_and_time(explained.as_of),
        told=tuple(line for line in lines if line.told),
        left_out=tuple(line for line in lines if not line.told),
        lore=lore,
        hidden=tuple(map(_hidden, explained.hidden)),
        used=sum(one.tokens for one in lines if one.told) + sum(one.tokens for one in lore if one.told),
        budget=explained.budget_tokens,
    )


def _ranked(ranked: Ranked) -> RankedLine:
    values = (
        ("recency", ranked.recency),
        ("importance", ranked.importance),
        ("relevance", ranked.relevance),
    )
    return RankedLine(
        line=line_of(ranked.event),
        parts=tuple(Part(name, value, heat(value), number(value, 2)) for name, value in values),
        score=number(ranked.score, 2),
        ways=", ".join(WAYS[way] for way in ranked.ways),
        tokens=ranked.tokens,
        told=ranked.told,
    )


def _lore(recalled: Recalled) -> LoreLine:
    return LoreLine(
        lorebook=visible(recalled.lorebook),
        entry=visible(recalled.entry),
        because=visible(recalled.because),
        tokens=recalled.tokens,
        told=recalled.told,
    )


def _hidden(hidden: HiddenEvent) -> HiddenLine:
    return HiddenLine(line=line_of(hidden.event), reason=reason_of(hidden.reason), by=hidden.by or "")
