"""Where a page of events ends, written as one word, so that the page that follows begins there."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.worlds import Event, EventId, GameTime

Place = tuple[datetime, str]

_PLACE: Final = TypeAdapter[Place](tuple[GameTime, EventId])


def next_before(page: Sequence[Event], limit: int) -> str | None:
    """None when the page is the last."""
    if len(page) < limit:
        return None
    last = page[-1]
    return f"{last.time.replace(tzinfo=None).isoformat()}Z,{last.id}"


def place_of(text: str) -> Place | None:
    """What `next_before` wrote; None for anything else."""
    time, _, event = text.partition(",")
    try:
        return _PLACE.validate_python((time, event))
    except ValidationError:
        return None
