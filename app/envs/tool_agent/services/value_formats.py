"""Formats of days, times and amounts, for tools and users."""

from datetime import date, timedelta
from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.simulated_service import OperationRefused

DATE: Final[JsonValue] = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": "Day as YYYY-MM-DD"}
TIME: Final[JsonValue] = {"type": "string", "pattern": r"^\d{2}:\d{2}$", "description": "Start as HH:MM, 24 hours"}
AS_WRITTEN: Final = (
    "In replies, write amounts, days, times, names and numbers exactly as the tools write them. Where you are asked "
    "for one of them, give that one, and no others of the tools' results that you neither changed nor were asked "
    "about: an answer among others is none."
)
"""The last sentences of a service's rules."""

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def format_time(minutes: int) -> str:
    """HH:MM of minutes after midnight."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def parse_time(time: str) -> int:
    """Minutes after midnight. The call is refused if it is not a time of day."""
    hours, minutes = int(time[:2]), int(time[3:])
    if hours > 23 or minutes > 59:
        raise OperationRefused(f"{time} is no time of day")
    return hours * 60 + minutes


def check_day(text: str) -> str:
    """The day, if it exists. The call is refused otherwise."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise OperationRefused(f"{text[:10]} is no day of the calendar") from None


def add_days(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def write_day(day: str) -> str:
    """`2026-03-05` as a user says it: 5 March 2026."""
    return f"{int(day[8:])} {_MONTHS[int(day[5:7]) - 1]} {day[:4]}"


def format_euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
