"""When two values of an argument are the same: by type, by value, and for texts by a normalisation.

Texts are folded as the Berkeley Function-Calling Leaderboard folds them (case, blanks and the characters `,./-_*^`
aside, one kind of quotation mark), and then the numbers in them must agree as well, sign and decimal point included:
there "1.5" is taken for "15". A text that folds to nothing is only itself, one from a list of choices or with a format
of its own (an address, a date) is exact, and one that is far longer than what it should say is never the same.

Lists are the same in the same order, but for those whose items are unique by their schema: those are sets.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from pydantic import JsonValue

from app.toolkit.tool_calls.schemas import Schema, allows_type, get_item_schema, get_members

_IGNORED: Final = re.compile(r"[\s,./\\_*^\-\u2010-\u2015\u2212]+")
_QUOTES: Final = str.maketrans(dict.fromkeys("'‘’“”„`´«»", '"'))
_NUMBER: Final = re.compile(r"(?:(?<![\w.)\-])[-\u2212])?(?:\d+(?:,\d{3}(?!\d))*(?:\.\d+)?|(?<![\w.])\.\d+)")
_RAISED: Final = {ord(digit): f"^{value}" for value, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
"""Powers would become digits of the number before them."""

_EXACT: Final = {"enum", "const", "format", "pattern"}

MOST_TIMES: Final = 4
MOST_MORE: Final = 200
"""How much longer a text may be for its blanks and marks: so many times, and so many characters. Folding takes time."""


def is_same_value(said: JsonValue, accepted: JsonValue, schema: Schema) -> bool:
    if isinstance(said, bool) or isinstance(accepted, bool):
        return said is accepted
    if isinstance(accepted, int | float):
        return isinstance(said, int | float) and said == accepted and _is_whole_enough(said, accepted, schema)
    if isinstance(accepted, str):
        return isinstance(said, str) and is_same_text(said, accepted, exact=not _EXACT.isdisjoint(schema))
    if isinstance(accepted, list):
        return isinstance(said, list) and len(said) == len(accepted) and _are_same_items(said, accepted, schema)
    if isinstance(accepted, dict):
        return isinstance(said, dict) and _are_same_members(said, accepted, get_members(schema))
    return said is None


def is_same_text(said: str, accepted: str, *, exact: bool = False) -> bool:
    if said == accepted or exact:
        return said == accepted
    if len(said) > MOST_TIMES * len(accepted) + MOST_MORE:
        return False
    folded = _fold_text_once(accepted)
    return folded != ("", ()) and _fold_text(said) == folded


def _is_whole_enough(said: float, accepted: float, schema: Schema) -> bool:
    """A float stands for a whole number only where the schema asks for numbers."""
    return isinstance(said, int) or isinstance(accepted, float) or allows_type(schema, "number")


def _are_same_items(said: Sequence[JsonValue], accepted: Sequence[JsonValue], schema: Schema) -> bool:
    within = get_item_schema(schema)
    if schema.get("uniqueItems") is not True:
        return all(is_same_value(one, other, within) for one, other in zip(said, accepted, strict=True))
    left = [*accepted]
    for one in said:
        place = next((place for place, other in enumerate(left) if is_same_value(one, other, within)), None)
        if place is None:
            return False
        del left[place]
    return True


def _are_same_members(
    said: Mapping[str, JsonValue], accepted: Mapping[str, JsonValue], schemas: Mapping[str, Schema]
) -> bool:
    return said.keys() == accepted.keys() and all(
        is_same_value(said[name], accepted[name], schemas.get(name, {})) for name in accepted
    )


def _fold_text(text: str) -> tuple[str, tuple[str, ...]]:
    plain = unicodedata.normalize("NFKC", text.translate(_RAISED)).casefold().translate(_QUOTES)
    numbers = tuple(_NUMBER.findall(plain))
    return _IGNORED.sub("", plain), tuple(number.replace(",", "").replace("\u2212", "-") for number in numbers)


_fold_text_once = lru_cache(maxsize=4096)(_fold_text)
"""For right answers only: what models write may be long."""
