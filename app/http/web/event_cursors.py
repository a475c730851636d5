"""Pagination cursors for events: the last event of a page as one string."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.worlds import Event, EventId, GameTime

EventCursor = tuple[datetime, str]

_PLACE: Final = TypeAdapter[EventCursor](tuple[GameTime, EventId])


def build_cursor(page: Sequence[Event], limit: int) -> str | None:
    """The cursor for the next page; None on the last page."""
    if len(page) < limit:
        return None
    last = page[-1]
    return f"{last.time.replace(tzinfo=None).isoformat()}Z,{last.id}"


def parse_cursor(text: str) -> EventCursor | None:
    """Parses a cursor that `next_before` wrote; None when it is invalid."""
    time, _, event = text.partition(",")
    try:
        return _PLACE.validate_python((time, event))
    except ValidationError:
        return None
