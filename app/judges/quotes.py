"""Whether a quote is one: models copy no better than to the letter, and not always that."""

import json
import unicodedata
from typing import Final

from app.judges.reading import fold

_LEAST: Final = 3
"""Letters or digits that a quote must have to prove anything; wide ones, such as those of Chinese, count twice."""


def plain(text: str) -> str:
    """Blank space, quotation marks and case made alike."""
    return " ".join(fold(text).split())


def occurs(quote: str, said: str) -> bool:
    """Whether `said`, which is plain, holds the quote."""
    sought = plain(quote).strip("\"' …") if quote else ""
    sought = sought.removesuffix("...").removeprefix("...").strip()
    weight = sum(2 if unicodedata.east_asian_width(letter) == "W" else 1 for letter in sought if letter.isalnum())
    return weight >= _LEAST and sought in said


def short(value: object) -> str:
    """To be told in a problem."""
    text = value if isinstance(value, str) else type(value).__name__
    return json.dumps(text[:60])
