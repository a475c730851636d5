"""Quote matching that tolerates the small deviations with which models copy text."""

import json
import unicodedata
from typing import Final

from app.judges.reading import fold

_LEAST: Final = 3
"""Least letters or digits of a quote. Wide characters, such as Chinese, count twice."""


def plain(text: str) -> str:
    """Normalises white space, quotation marks and case."""
    return " ".join(fold(text).split())


def occurs(quote: str, said: str) -> bool:
    """Whether the normalised text `said` contains the quote."""
    sought = plain(quote).strip("\"' …") if quote else ""
    sought = sought.removesuffix("...").removeprefix("...").strip()
    weight = sum(2 if unicodedata.east_asian_width(letter) == "W" else 1 for letter in sought if letter.isalnum())
    return weight >= _LEAST and sought in said


def short(value: object) -> str:
    """A short form for error messages."""
    text = value if isinstance(value, str) else type(value).__name__
    return json.dumps(text[:60])
