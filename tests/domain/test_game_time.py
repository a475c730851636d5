"""Times of a world: what is read as one, and what a game is told when its time is none."""

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter, ValidationError

from app.domain.worlds import GameTime

TIME = TypeAdapter[datetime](GameTime)
NINE = datetime(2031, 4, 3, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2031-04-03T09:00:00Z", NINE),
        ("2031-04-03T11:00:00+02:00", NINE),
        ("2031-04-03 09:00Z", NINE),
        ("0412-01-01T00:00:00Z", datetime(412, 1, 1, tzinfo=UTC)),
        ("2031-04-03T09:00:00.123456789Z", NINE.replace(microsecond=123_456)),
    ],
)
def test_a_time_is_kept_in_utc(written: str, read: datetime) -> None:
    time = TIME.validate_python(written)
    assert (time, time.utcoffset()) == (read, UTC.utcoffset(None))


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("2031-04-03T09:00:00", "the time zone is missing"),
        ("2031-04-03", "the time zone is missing"),
        (NINE.replace(tzinfo=None), "the time zone is missing"),
        (1_900_000_000, "ISO 8601"),
        ("1900000000", "ISO 8601"),
        (True, "ISO 8601"),
        ("2031-02-31T09:00:00Z", "outside expected range"),
        ("0001-01-01T00:00:00+14:00", "years 1 to 9999"),
        ("9999-12-31T23:59:59-14:00", "years 1 to 9999"),
    ],
)
def test_what_is_no_time_is_told_why(written: object, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        TIME.validate_python(written)
