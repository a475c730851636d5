"""SQLite's date and time functions, without the current time and the local time zone."""

import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

_MOMENT_PLACES: Final = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}
"""Position of the time among the arguments; without it SQLite takes the current time."""
_TIME_ZONES: Final = {"localtime", "utc"}
MOST_ARGUMENTS = 8

Argument = int | float | str | bytes | None

_plain = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _call_date_function(name: str, *arguments: Argument) -> Argument:
    """ValueError if the result depends on the current time or the time zone."""
    words = [one.strip().lower() for one in arguments if isinstance(one, str)]
    moment = arguments[_MOMENT_PLACES[name] :]
    if not moment or len(arguments) > MOST_ARGUMENTS or "now" in words or not _TIME_ZONES.isdisjoint(words):
        raise ValueError("the time at which a query runs is no part of an answer")
    places = ", ".join("?" * len(arguments))
    found: tuple[Argument] = _plain.execute(f"SELECT {name}({places})", arguments).fetchone()
    return found[0]


DATE_FUNCTIONS: Final[Mapping[str, Callable[..., Argument]]] = {
    name: partial(_call_date_function, name) for name in _MOMENT_PLACES
}
