"""Formatting of untrusted texts and numbers for display. HTML escaping is done by the templates."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from markupsafe import Markup
from pydantic import JsonValue

PALETTE = Path(__file__).with_name("palette.css").read_text(encoding="utf-8")
"""Colours, light and dark, and the ground of every page: the viewer's and the reports'."""
SHOWN_AT_ONCE = 1_500
SHOWN_AT_ALL = 200_000
"""Characters; the JSON of a group has the rest."""

_SIGNS = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)
"""Control characters, direction overrides, fillers, tags, lone surrogates and the like. Joiners (U+200C, U+200D) and
variation selectors are left alone: scripts and emoji need them."""
_FLAG = "\U0001f3f4"
_INVISIBLE = re.compile(_SIGNS)
_INVISIBLE_OR_FLAG = re.compile(f"{_FLAG}[\U000e0030-\U000e007a]{{3,6}}\U000e007f|{_SIGNS}")
"""Flags of regions consist of a black one and tags. To look for them takes five times as long."""


@dataclass(frozen=True)
class Excerpt:
    """`head` is shown at once, `rest` on demand. `length`: characters of the original; `more`: of them in `rest`;
    `omitted`: in neither."""

    head: str
    rest: str
    length: int
    more: int
    omitted: int


def escape_invisible(text: str) -> str:
    """Replaces invisible characters by their code, such as `⟨U+202E⟩`."""
    if text.isascii() and text.isprintable():  # as most names are
        return text
    pattern = _INVISIBLE_OR_FLAG if _FLAG in text else _INVISIBLE
    return pattern.sub(lambda match: match[0] if len(match[0]) > 1 else f"⟨U+{ord(match[0]):04X}⟩", text)


def finalize(value: object) -> object:
    """For Jinja: makes invisible characters visible in every value of a page."""
    return escape_invisible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def cut_excerpt(text: str, at_once: int = SHOWN_AT_ONCE) -> Excerpt:
    """Cuts at the end of a line or word where possible."""
    kept = text[:SHOWN_AT_ALL]
    cut = len(kept) if len(kept) <= at_once + at_once // 4 else _find_cut(kept, at_once)
    return Excerpt(
        escape_invisible(kept[:cut]), escape_invisible(kept[cut:]), len(text), len(kept) - cut, len(text) - len(kept)
    )


def _find_cut(text: str, limit: int) -> int:
    for separator in ("\n", " "):
        place = text.rfind(separator, limit // 2, limit)
        if place > 0:
            return place + 1
    return limit


def as_json(value: Mapping[str, JsonValue] | JsonValue) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def format_number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def format_percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def format_p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_bytes(count: float) -> str:
    """In units of a thousand, with three figures."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_time(time: datetime | None) -> str:
    """Date and time to the second, in its own zone; empty for None."""
    return "" if time is None else time.replace(tzinfo=None).isoformat(" ", "seconds")


def format_signed(value: float, digits: int = 2) -> str:
    """With a real minus sign; `0.00` has none."""
    rounded = f"{abs(value):.{digits}f}"
    sign = "" if float(rounded) == 0 else "+" if value > 0 else "−"
    return sign + rounded


def scale_heat(value: float) -> int:
    """Colour class 0 to 10 of a `value` in [0, 1]."""
    return max(0, min(10, round(value * 10)))
