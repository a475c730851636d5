"""Caches that are bounded by bytes, and what they take something to hold."""

import sys
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr

from app.domain.tasks import Message
from app.domain.values import ByteCache, SameObject, measure_bytes, remember

LONG = "x" * 10_000


@dataclass(frozen=True)
class Kept:
    text: str


@dataclass(frozen=True, slots=True)
class KeptInSlots:
    text: str


class KeptInPrivateSlots:
    __slots__ = ("__text",)

    def __init__(self) -> None:
        self.__text = LONG


class KeptByName(NamedTuple):
    text: str


class KeptBeside(BaseModel):
    """In fields that nobody declared, and in one that no field shows."""

    model_config = ConfigDict(extra="allow")
    _text: str = PrivateAttr(default="")


def keep_privately() -> KeptBeside:
    kept = KeptBeside()
    kept._text = LONG
    return kept


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        (LONG,),
        {"a": [LONG]},
        {LONG: None},
        frozenset({LONG}),
        Message(role="user", content=LONG),
        Kept(LONG),
        KeptInSlots(LONG),
        SameObject({"a": LONG}),
        KeptInPrivateSlots(),
        KeptByName(LONG),
        KeptBeside.model_validate({"text": LONG}),
        keep_privately(),
        MappingProxyType({"a": LONG}),
        Counter([LONG]),
        deque([LONG]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_all_parts_are_measured(value: object) -> None:
    assert 0 <= measure_bytes(value) - sys.getsizeof(LONG) < 2_000


@pytest.mark.parametrize("value", [measure_bytes, Kept, None, 1])
def test_what_others_hold_is_hardly_measured(value: object) -> None:
    assert measure_bytes(value) < 100


def test_what_holds_itself_is_measured_once() -> None:
    held: list[object] = [LONG]
    held.append(held)
    assert measure_bytes(held) == sys.getsizeof(held) + sys.getsizeof(LONG)


def test_what_was_used_last_is_kept() -> None:
    cache = ByteCache[str, str](3_000)
    for name in "abc":
        cache.put(name, name, 800)
    found = cache.get("a")
    cache.put("d", "d", 800)
    assert (found, cache.find_all("abcd"), cache.held_bytes) == ("a", {"a": "a", "c": "c", "d": "d"}, 3_000)


def test_what_is_larger_than_the_cache_takes_the_place_of_nothing_but_itself() -> None:
    cache = ByteCache[str, str](3_000)
    for name, size in (("a", 800), ("b", 800), ("b", 9_000)):
        cache.put(name, name, size)
    assert (cache.find_all("ab"), cache.held_bytes) == ({"a": "a"}, 1_000)


def test_what_is_taken_out_frees_its_bytes() -> None:
    cache = ByteCache[str, str](3_000)
    cache.put("a", "a", 800)
    assert (cache.pop("a"), cache.pop("a"), len(cache), cache.held_bytes) == ("a", None, 0, 0)


def count_calls(most_bytes: int, calls: list[str]) -> Callable[[str], str | None]:
    @remember(most_bytes)
    def shout(text: str) -> str | None:
        calls.append(text[:1])
        return text.upper() if text else None

    return shout


def test_a_function_is_called_once_while_its_results_fit() -> None:
    calls: list[str] = []
    shout = count_calls(25_000, calls)
    said = [shout(text) for text in ("a", "", "a", "", "b" * 10_000, "c" * 10_000, "b" * 10_000, "a")]
    assert ([text and text[:1] for text in said], calls) == (
        ["A", None, "A", None, "B", "C", "B", "A"],
        ["a", "", "b", "c", "b", "a"],
    )


def test_what_raises_is_not_kept() -> None:
    @remember(1_000)
    def refuse(text: str) -> str:
        raise ValueError(text)

    for _ in "ab":
        with pytest.raises(ValueError, match="no"):
            refuse("no")
    assert len(refuse.cache) == 0


def test_bytes_are_counted_right_whoever_uses_it_at_once() -> None:
    cache = ByteCache[int, str](20_000)

    def use(number: int) -> None:
        for turn in range(300):
            cache.put((number * turn) % 50, "x", turn)
            cache.get(turn % 50)
            cache.pop(turn % 7)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    held = cache.held_bytes
    for number in range(50):
        cache.pop(number)
    assert (held <= 20_000, cache.held_bytes, len(cache)) == (True, 0, 0)


def test_of_large_results_the_last_is_kept_where_a_cache_is_for_them() -> None:
    kept = []
    for keeps_last in (False, True):
        cache = ByteCache[str, str](3_000, keeps_last=keeps_last)
        for name in "ab":
            cache.put(name, LONG)
        kept.append((cache.get("a"), cache.get("b")))
    assert kept == [(None, None), (None, LONG)]
