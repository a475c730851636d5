"""Times of a world: what is read as one, and what a game is told when its time is none."""

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter, ValidationError

from app.domain.values import Frozen
from app.domain.worlds import GameTime
from tests.support.tables import read_table

TIME = TypeAdapter[datetime](GameTime)
NINE = datetime(2031, 4, 3, 9, tzinfo=UTC)


class Tables(Frozen):
    """The tables of game_time.yaml, which says what each holds."""

    read: tuple[tuple[str, datetime], ...]
    refused: tuple[tuple[object, str], ...]


TABLES = read_table(__file__, "game_time.yaml", Tables)


@pytest.mark.parametrize(("written", "read"), TABLES.read)
def test_a_time_is_kept_in_utc(written: str, read: datetime) -> None:
    time = TIME.validate_python(written)
    assert (time, time.utcoffset()) == (read, UTC.utcoffset(None))


@pytest.mark.parametrize(
    ("written", "complaint"), [*TABLES.refused, (NINE.replace(tzinfo=None), "the time zone is missing")]
)
def test_what_is_no_time_is_told_why(written: object, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        TIME.validate_python(written)
