"""Patterns of strangers, and windows that find what a search of the whole text finds."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.toolkit.texts import (
    MOST_CHARACTERS,
    WINDOW,
    compile_pattern,
    iterate_lines,
    iterate_pieces,
    iterate_words,
    run_in_turn,
)
from app.toolkit.thoughts import iterate_matches
from tests.architecture.test_house import ROOT
from tests.support.tables import read_table

TABLE = read_table(__file__, "patterns.yaml", tuple[tuple[str, str], ...])


@pytest.mark.parametrize(
    ("pattern", "text", "all_of_it", "place"),
    [
        ("a+b", "aab", True, (0, 3)),
        ("a+b", "xaab", False, (1, 4)),
        ("(?P<year>[0-9]{4})", "in 1984", False, (3, 7)),
        ("(?i)É", "né", False, (1, 2)),
        (r"\pL+", "日本", True, (0, 2)),
        ("", "", True, (0, 0)),
        ("b", "a", False, None),
        ("^(a+)+$", "a" * 100_000 + "b", False, None),
    ],
)
def test_a_pattern(pattern: str, text: str, all_of_it: bool, place: tuple[int, int] | None) -> None:
    made = compile_pattern(pattern)
    assert (made.matches(text), made.find(text)) == (all_of_it, place)


@pytest.mark.parametrize(("text", "most", "count"), [("aXbXa", 9, 2), ("aXbXa", 1, 1), ("b", 9, 0), ("aa", 9, 2)])
def test_matches_are_counted_up_to_a_most(text: str, most: int, count: int) -> None:
    assert compile_pattern("a").count(text, most) == count


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [*TABLE, ("a" * (MOST_CHARACTERS + 1), "a pattern has at most 1000 characters, this one 1001")],
)
def test_what_cannot_be_used_says_why(pattern: str, reason: str) -> None:
    assert refusal(lambda: compile_pattern(pattern)) == reason


def test_a_text_may_be_too_long_for_a_pattern() -> None:
    costly = compile_pattern("(a?){300}b")
    refused = "the pattern may take more than 10,000,000 steps over 100,000 bytes"
    assert (refusal(lambda: costly.matches("a" * 100_000)), costly.find("a" * 100)) == (refused, None)


def refusal(use: Callable[[], object]) -> str:
    with pytest.raises(ValueError, match=r"pattern|surrogate") as caught:
        use()
    return str(caught.value)


TAG = re.compile(r"\b<(/?)answer>")


@pytest.mark.parametrize("shift", range(12))
def test_a_match_is_found_wherever_a_window_ends(shift: int) -> None:
    text = ("x" * (WINDOW - shift) + "<answer>x</answer>") * 3
    found = [match.span() for match in iterate_matches(TAG, text, len("</answer>"))]
    assert (found, len(found)) == ([match.span() for match in TAG.finditer(text)], 6)


@pytest.mark.parametrize("pattern", [r"[旅人]|[^\W_旅人]+", r"[旅人]|[^\W_旅人]+|[.!?\n]"])
@pytest.mark.parametrize("shift", range(4))
def test_words_are_found_wherever_a_window_ends(pattern: str, shift: int) -> None:
    text = "x" * (WINDOW - shift) + " 旅a旅人.b_ c!" + "y" * (3 * WINDOW) + "人z" * WINDOW + "é.!_" * WINDOW
    compiled = re.compile(pattern)
    assert list(iterate_words(compiled, text)) == compiled.findall(text)


def test_pieces_are_the_text_and_end_where_it_is_safe() -> None:
    text = "é" * WINDOW + " " + "é" * (2 * WINDOW) + " x"
    pieces = list(iterate_pieces(text, re.compile("[ x]")))
    assert pieces == ["é" * WINDOW, " " + "é" * (2 * WINDOW), " x"]


@pytest.mark.parametrize("text", ["", "\n", "a", "a\r\nb\r\r\n\rc\r", "\r\n\n\r\n", "a\n\nb\n"])
def test_lines_are_those_of_a_split(text: str) -> None:
    assert list(iterate_lines(text)) == text.replace("\r\n", "\n").split("\n")


async def test_slow_work_of_one_kind_holds_up_no_other() -> None:
    slow = [asyncio.create_task(run_in_turn("authors", time.sleep, 0.5)) for _ in range(40)]
    began = time.monotonic()
    others = [
        await run_in_turn("bodies", str, 1),
        await run_in_turn("exports", str, 2),
        await asyncio.to_thread(str, 3),
    ]
    seconds = time.monotonic() - began
    for one in slow:
        one.cancel()
    assert (others, seconds < 5) == (["1", "2", "3"], True), seconds


SLOW = Path(__file__).with_name("slow_thread.txt").read_text(encoding="utf-8")


def test_a_process_ends_while_a_thread_still_works() -> None:
    ran = subprocess.run([sys.executable, "-c", SLOW], cwd=ROOT, timeout=60, capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


def test_an_iterator_that_ended_is_an_error_like_any_other() -> None:
    """It hung: a future takes no StopIteration."""
    ended: Callable[[], int] = iter(()).__next__
    with pytest.raises(RuntimeError, match="an iterator had ended"):
        asyncio.run(asyncio.wait_for(run_in_turn("authors", ended), 20))
