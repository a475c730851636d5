"""SQLite's functions for dates and times, without what looks at the clock or at where it is set."""

import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

_AT_WHICH_PLACE: Final = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}
"""Where the moment stands among the arguments; left out, it is now."""
_PLACES_ON_EARTH: Final = {"localtime", "utc"}
MOST_ARGUMENTS = 8

Argument = int | float | str | bytes | None

_plain = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _worked_out(name: str, *arguments: Argument) -> Argument:
    """ValueError for what depends on when or where it is asked."""
    words = [one.strip().lower() for one in arguments if isinstance(one, str)]
    moment = arguments[_AT_WHICH_PLACE[name] :]
    if not moment or len(arguments) > MOST_ARGUMENTS or "now" in words or not _PLACES_ON_EARTH.isdisjoint(words):
        raise ValueError("the time at which a query runs is no part of an answer")
    places = ", ".join("?" * len(arguments))
    found: tuple[Argument] = _plain.execute(f"SELECT {name}({places})", arguments).fetchone()
    return found[0]


DATE_FUNCTIONS: Final[Mapping[str, Callable[..., Argument]]] = {
    name: partial(_worked_out, name) for name in _AT_WHICH_PLACE
}
