"""Recalling from lorebooks of 5,000 entries with 20 keys each, over 100,000 characters of conversation.

Times are the thread's own processor time, so that a busy machine changes them little.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from app.characters.lorebooks import prepare_books, recall_from
from app.domain.worlds import Lorebook, LoreEntry
from benchmarks.results import read_arguments

ENTRIES = 5_000
KEYS = 20
LETTERS = 100_000
LONGEST = 180
SETTINGS = ((False, False), (False, True), (True, False), (True, True))
"""Case sensitive, whole words."""


@dataclass(frozen=True)
class Taken:
    kind: str
    opening: float
    """Seconds to make the book ready, which is done once."""
    recalling: float
    """Seconds a conversation."""
    came: int


@dataclass(frozen=True)
class Trial:
    book: Lorebook
    said: tuple[str, ...]


def book(key: Callable[[int], str], *, mixed: bool = False, regex: bool = False) -> Lorebook:
    """`mixed`: entries want their keys in four different ways."""
    entries = []
    for number in range(ENTRIES):
        cased, whole = SETTINGS[number % 4] if mixed else SETTINGS[0]
        keys = tuple(key(number * KEYS + place) for place in range(KEYS))
        entries.append(
            LoreEntry(id=str(number), content="lore", keys=keys, regex=regex, case_sensitive=cased, whole_words=whole)
        )
    return Lorebook(scan_depth=1000, entries=tuple(entries))


def chain() -> Lorebook:
    """Each entry's content calls up the next one."""
    return Lorebook(
        recursive=True,
        entries=tuple(
            LoreEntry(
                id=str(number),
                content=f"key {number + 1}. " + "x" * 10_000,
                keys=tuple(f"key {number}{end}" for end in ".abcdefghijklmnopqrs"),
            )
            for number in range(ENTRIES)
        ),
    )


def trials() -> Mapping[str, Trial]:
    drawn = random.Random(1)

    def word() -> str:
        return "".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9)))

    text = " ".join(word() for _ in range(LETTERS // 6))[:LETTERS]
    said = tuple(text[start : start + LETTERS // 1000] for start in range(0, LETTERS, LETTERS // 1000))
    nested = book(lambda number: "a" * (1 + number % LONGEST) + (word() if number % 2 else ""), mixed=True)
    return {
        "phrases in text of random words": Trial(book(lambda _: f"{word()} {word()}"), (text,)),
        "words, in four ways": Trial(book(lambda _: word(), mixed=True), (text,)),
        "words, in four ways, 1,000 messages": Trial(book(lambda _: word(), mixed=True), said),
        "keys that begin with one another": Trial(nested, ("a" * (LONGEST - 1) + "b",) * (LETTERS // LONGEST)),
        "letters that are eighteen": Trial(book(lambda _: word()), ("\ufdfa" * LETTERS,)),
        "patterns that need many steps": Trial(book(lambda n: f"(a?){{{n % 300}}}b{n}", regex=True), ("a" * LETTERS,)),
        "contents that call one another up": Trial(chain(), ("key 0.",)),
    }


def measure() -> Iterator[Taken]:
    for kind, trial in trials().items():
        begun = time.thread_time()
        books = prepare_books({"book": trial.book})
        ready = time.thread_time()
        came = recall_from(books, trial.said, "seed", 10**9, len)
        yield Taken(kind, ready - begun, time.thread_time() - ready, len(came))


def report() -> None:
    print(f"lorebooks of {ENTRIES:,} entries with {KEYS} keys each, {LETTERS:,} characters of conversation")
    for taken in measure():
        times = f"opened in {taken.opening * 1e3:4.0f} ms, recalled in {taken.recalling * 1e3:4.0f} ms"
        print(f"  {taken.kind:38} {times}, {taken.came:5} entries came up")


if __name__ == "__main__":
    read_arguments()
    report()
