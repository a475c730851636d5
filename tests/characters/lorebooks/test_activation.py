"""Which entries come up: a row for each rule."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from app.characters.lorebooks import (
    MOST_LETTERS,
    MOST_PATTERNS,
    MOST_ROUNDS,
    KeyIndex,
    MatchMode,
    recall,
    refuse_unusable,
)
from app.domain.errors import InvalidRequest
from app.domain.worlds import Lorebook, LoreEntry

SAID = ("The ferry is late.", "Is the Harbour closed?", "Ask the reeve about the tides.")


def entry(called: str, *keys: str, **others: Any) -> LoreEntry:
    """Its content is its id, once for each token it is to have; the tests count words."""
    tokens = others.pop("tokens", 1)
    return LoreEntry(id=called, keys=keys, **{"content": " ".join([called] * tokens)} | others)


def count(text: str) -> int:
    return len(text.split())


def told(
    *entries: LoreEntry, said: tuple[str, ...] = SAID, budget: int = 100, seed: str = "s", **of_book: Any
) -> list[str]:
    return [
        one.entry.id
        for one in recall({"book": Lorebook(entries=entries, **of_book)}, said, seed, budget, count)
        if one.told
    ]


def keys_of(key: str, text: str, **others: Any) -> list[str]:
    return told(entry("e", key, **others), said=(text,))


@dataclass(frozen=True)
class Row:
    rule: str
    come: Callable[[], list[str]]
    expected: list[str]


TIDES = entry("tides", "tides")
FERRY = entry("ferry", "ferry")

KEYS = [
    Row("a key in what was said", lambda: told(TIDES, entry("moon", "moon")), ["tides"]),
    Row("one key of several", lambda: told(entry("e", "moon", "tides")), ["e"]),
    Row("no keys, never", lambda: told(entry("e")), []),
    Row(
        "disabled, never",
        lambda: told(entry("e", "tides", enabled=False), entry("c", constant=True, enabled=False)),
        [],
    ),
    Row(
        "constant, always",
        lambda: told(entry("e", constant=True), entry("f", "moon", constant=True), said=()),
        ["e", "f"],
    ),
    Row("nothing to tell, never", lambda: told(entry("e", "tides", content=" ")), []),
    Row("blank keys find nothing", lambda: told(entry("e", " ")), []),
    Row("spaces around a key", lambda: keys_of(" tides ", "tides"), ["e"]),
    Row("part of a word", lambda: keys_of("tide", "tides"), ["e"]),
    Row("case makes no difference", lambda: keys_of("tides", "TIDES"), ["e"]),
    Row("unless the entry says so", lambda: keys_of("tides", "TIDES", case_sensitive=True), []),
    Row("or its book", lambda: told(entry("e", "harbour"), case_sensitive=True), []),
    Row(
        "whom the entry overrules",
        lambda: told(entry("e", "harbour", case_sensitive=False), case_sensitive=True),
        ["e"],
    ),
    Row("typographic quotation marks", lambda: keys_of("reeve's", "the reeve’s seal"), ["e"]),
    Row("wide letters", lambda: keys_of("abc", "ＡＢＣ"), ["e"]),
    Row("accents in two signs", lambda: keys_of("café", "cafe\u0301"), ["e"]),
]

WHOLE = [
    ("tide", "the tide.", True),
    ("tide", "tides", False),
    ("tide", "eventide", False),
    ("tide", "tides and tide", True),
    ("tide", "tide_table", False),
    ("high tide", "high tides", True),
    ("o'clock", "six o'clock", True),
    ("st.", "st. anne", True),
    ("st.", "st.anne", False),
    ("村", "この村へ行く", True),
    ("bob", "昨日bobが来た", True),
    ("bob", "昨日bobbyが来た", False),
    ("วัด", "ไปวัดกัน", True),
    ("강문", "강문이 왔다", True),
    ("हिन", "हिन्दी", False),
    ("лес", "лесник", False),
    ("лес", "в лес!", True),
]

PATTERNS = [
    ("tides?", "Tide", False),
    ("(?i)tides?", "Tide", True),
    ("/tides?/i", "Tide", True),
    ("/tide$/m", "a tide\nof words", True),
    ("/a.b/gs", "a\nb", True),
    ("/a.b/", "a\nb", False),
    (r"\btide\b", "tides", False),
    (r"(?=tide)", "tide", False),
    ("/tide/q", "tide", False),
    ("(a?){300}b", "b" * 50_000, False),
]

WORDS = ("tides", "reeve", "moon")
SECONDARY: list[tuple[str, tuple[str, ...], bool]] = [
    ("and_any", ("reeve", "moon"), True),
    ("and_any", ("moon", "sun"), False),
    ("and_all", ("reeve", "ask"), True),
    ("and_all", ("reeve", "moon"), False),
    ("not_any", ("moon", "sun"), True),
    ("not_any", ("reeve", "moon"), False),
    ("not_all", ("reeve", "moon"), True),
    ("not_all", ("reeve", "ask"), False),
    ("not_any", (), True),
    ("and_all", ("reeve", " "), False),
    ("not_all", ("reeve", " "), True),
]

DEPTH = [
    Row(
        "the last two messages by default",
        lambda: told(FERRY, entry("harbour", "harbour"), TIDES),
        ["harbour", "tides"],
    ),
    Row("as many as the book says", lambda: told(FERRY, TIDES, scan_depth=3), ["ferry", "tides"]),
    Row("or the entry", lambda: told(entry("e", "ferry", scan_depth=3), entry("f", "harbour", scan_depth=1)), ["e"]),
    Row("none at all", lambda: told(TIDES, scan_depth=0), []),
    Row("keys do not span messages", lambda: told(entry("e", "closed? ask"), entry("f", "closed?\nask")), []),
    Row("secondary keys are looked for as far", lambda: told(entry("e", "tides", secondary_keys=("ferry",))), []),
    Row("the key may stand elsewhere than they", lambda: told(entry("e", "tides", secondary_keys=("closed",))), ["e"]),
]

BUDGET = [
    Row("exactly full", lambda: told(entry("e", constant=True, tokens=4), budget=4), ["e"]),
    Row("one too many", lambda: told(entry("e", constant=True, tokens=5), budget=4), []),
    Row(
        "the lowest priority is left out first",
        lambda: told(entry("a", constant=True, priority=1), entry("b", constant=True, priority=2), budget=1),
        ["b"],
    ),
    Row(
        "without one, the lowest order",
        lambda: told(entry("a", constant=True, order=1), entry("b", constant=True, order=2), budget=1),
        ["b"],
    ),
    Row(
        "of equal priority, the lowest order",
        lambda: told(entry("a", constant=True, order=1, priority=5), entry("b", constant=True, priority=5), budget=1),
        ["b"],
    ),
    Row(
        "of equal order, the later one",
        lambda: told(*(entry(name, constant=True) for name in "abc"), budget=2),
        ["a", "b"],
    ),
    Row(
        "smaller ones after it are left out too",
        lambda: told(
            entry("a", constant=True, order=9),
            entry("b", constant=True, order=8, tokens=9),
            entry("c", constant=True, order=7),
            budget=5,
        ),
        ["a"],
    ),
    Row("a book has its own", lambda: told(*(entry(name, constant=True) for name in "abc"), token_budget=1), ["a"]),
    Row("which does not add to the other", lambda: told(entry("e", constant=True), token_budget=9, budget=0), []),
]

ORDER = [
    Row(
        "lower order stands higher up",
        lambda: told(entry("a", constant=True), entry("b", constant=True, order=1)),
        ["b", "a"],
    ),
    Row(
        "before the character stands before after it",
        lambda: told(
            entry("a", constant=True, order=1, position="after_character"), entry("b", constant=True, order=2)
        ),
        ["b", "a"],
    ),
    Row(
        "priority makes no difference",
        lambda: told(*(entry(i, constant=True, priority=p) for p, i in enumerate("ab"))),
        ["a", "b"],
    ),
]

REEVE = entry("reeve", "tides", content="the reeve is Maud")
MAUD = entry("maud", "maud", content="maud owns a heron")
HERON = entry("heron", "heron")

RECURSION = [
    Row("off by default", lambda: told(REEVE, MAUD), ["reeve"]),
    Row("contents are scanned", lambda: told(REEVE, MAUD, HERON, recursive=True), ["reeve", "maud", "heron"]),
    Row(
        "but not those that prevent it",
        lambda: told(REEVE.model_copy(update={"prevent_recursion": True}), MAUD, recursive=True),
        ["reeve"],
    ),
    Row(
        "nor for those that are excluded",
        lambda: told(REEVE, MAUD.model_copy(update={"exclude_recursion": True}), HERON, recursive=True),
        ["reeve"],
    ),
    Row(
        "an excluded one hears what was said",
        lambda: told(entry("e", "tides", exclude_recursion=True), recursive=True),
        ["e"],
    ),
    Row(
        "at any depth",
        lambda: told(REEVE, MAUD.model_copy(update={"scan_depth": 0}), recursive=True),
        ["reeve", "maud"],
    ),
    Row(
        "with secondary keys in what was said",
        lambda: told(REEVE, entry("e", "maud", secondary_keys=("ask",)), recursive=True),
        ["reeve", "e"],
    ),
    Row(
        "what has no room calls up nothing",
        lambda: told(REEVE, MAUD, budget=3, recursive=True),
        [],
    ),
    Row(
        "nor what was out of luck",
        lambda: told(REEVE.model_copy(update={"probability": 0.0}), MAUD, recursive=True),
        [],
    ),
    Row(
        "what was said goes before what was called up",
        lambda: told(REEVE, MAUD.model_copy(update={"priority": 1000}), budget=4, recursive=True),
        ["reeve"],
    ),
    Row(
        "no further than some rounds",
        lambda: told(
            *(entry(f"e{n}", "tides" if n == 0 else f"no.{n}.", content=f"no.{n + 1}.") for n in range(50)),
            recursive=True,
        ),
        [f"e{n}" for n in range(1 + MOST_ROUNDS)],
    ),
]

ROWS = [
    *KEYS,
    *(
        Row(f"whole word {key} in {text}", partial(keys_of, key, text, whole_words=True), ["e"] if found else [])
        for key, text, found in WHOLE
    ),
    *(
        Row(f"pattern {key} in {text[:20]!r}", partial(keys_of, key, text, regex=True), ["e"] if found else [])
        for key, text, found in PATTERNS
    ),
    *(
        Row(
            f"{logic} {seconds}",
            partial(told, entry("e", "tides", secondary_keys=seconds, logic=logic)),
            ["e"] if found else [],
        )
        for logic, seconds, found in SECONDARY
    ),
    *DEPTH,
    *BUDGET,
    *ORDER,
    *RECURSION,
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_rule(row: Row) -> None:
    assert row.come() == row.expected


def test_a_chance_falls_out_the_same_for_a_seed_and_as_often_as_it_says() -> None:
    maybe = [entry(f"e{n}", constant=True, probability=0.25) for n in range(1000)]
    once, again, other = (told(*maybe, budget=1000, seed=seed) for seed in ("a", "a", "b"))
    assert (once == again, once == other, 200 < len(once) < 300) == (True, False, True)


@pytest.mark.parametrize(("probability", "come"), [(0.0, 0), (1.0, 100)])
def test_chances_that_are_none(probability: float, come: int) -> None:
    sure = [entry(f"e{n}", constant=True, probability=probability) for n in range(100)]
    assert len(told(*sure)) == come


def test_why_and_why_not() -> None:
    town = Lorebook(
        recursive=True,
        token_budget=6,
        entries=(
            entry("tides", "moon", "Tides", content="maud", order=9),
            entry("maud", "maud", name="Maud the reeve"),
            entry("heron", constant=True, order=10),
            entry("eel", constant=True, order=8, probability=0.0),
            entry("ferry", constant=True, order=7, tokens=6),
            entry("gull", constant=True, order=6),
        ),
    )
    sea = Lorebook(entries=(entry("whale", "tides", order=1, tokens=3), entry("seal", "tides", order=200)))
    came = recall({"town": town, "sea": sea}, SAID, "s", 5, count)
    assert [(one.book, one.entry.id, one.because, one.tokens, one.told) for one in came] == [
        ("town", "tides", 'key "Tides"', 1, True),
        ("town", "heron", "constant", 1, True),
        ("sea", "seal", 'key "tides"', 1, True),
        ("town", "eel", "constant; left out: its chance of 0 did not come up", 1, False),
        ("town", "ferry", "constant; left out: no room in the 6 tokens of its book", 6, False),
        ("town", "gull", "constant; left out: no room in the 6 tokens of its book", 1, False),
        ("sea", "whale", 'key "tides"; left out: no room in 5 tokens', 3, False),
    ]


def test_the_entry_that_called_another_up_is_named() -> None:
    came = recall({"b": Lorebook(recursive=True, entries=(REEVE, MAUD))}, SAID, "s", 100, count)
    assert [one.because for one in came] == ['key "tides"', 'key "maud" in the entry "reeve"']


def test_only_the_end_of_a_long_conversation_is_scanned() -> None:
    early, late = entry("early", "ferry", scan_depth=9), entry("late", "tides", scan_depth=9)
    said = ("The ferry.", "x" * MOST_LETTERS, "The tides.")
    assert told(early, late, said=said) == ["late"]


@pytest.mark.parametrize("whole", [False, True])
def test_all_keys_that_occur_are_found_and_no_others(whole: bool) -> None:
    drawn = random.Random(7)
    wrong = []
    for _ in range(300):
        keys = {"".join(drawn.choices("ab.", k=drawn.randint(1, 6))) for _ in range(40)}
        text = "".join(drawn.choices("aab. ", k=60))
        index = KeyIndex(MatchMode(case_sensitive=True, whole_words=whole), keys)
        found = {key for key in keys if index.numbers[key] in index.find_keys(text)}
        if found != {key for key in keys if occurs(key, text, whole)}:
            wrong.append((keys, text))
    assert wrong == []


def occurs(key: str, text: str, whole: bool) -> bool:
    """Place by place."""
    around = f" {text} "
    places = [at for at in range(1, len(text) + 1) if around.startswith(key, at)]
    edges = [not around[at - 1].isalnum() and not around[at + len(key)].isalnum() for at in places]
    return any(edges) if whole else bool(places)


NO_GROUP = "RE2 cannot use this pattern: missing ): ("


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([entry("a", "(", regex=False), entry("b", "/a+/i", regex=True)], None),
        ([entry("a", regex=True), entry("b", "a", "(", regex=True)], (NO_GROUP, "entries[1].keys[1]")),
        ([entry("a", "b", regex=True, secondary_keys=("(",))], (NO_GROUP, "entries[0].secondary_keys[0]")),
        ([entry("a", "/b/x", regex=True)], ("a pattern has no flag 'x'", "entries[0].keys[0]")),
        ([entry("a"), entry("a")], ("the id 'a' occurs more than once", "entries[1].id")),
        (
            [entry("a", *["b"] * (MOST_PATTERNS + 1), regex=True)],
            ("a lorebook has at most 1000 keys that are patterns", "entries[0].keys[1000]"),
        ),
    ],
)
def test_what_is_refused_before_it_is_kept(entries: list[LoreEntry], problem: tuple[str, str] | None) -> None:
    assert refusal(Lorebook(entries=tuple(entries))) == problem


def refusal(book: Lorebook) -> tuple[str, str | None] | None:
    try:
        refuse_unusable(book)
    except InvalidRequest as error:
        return error.detail, error.field
    return None
