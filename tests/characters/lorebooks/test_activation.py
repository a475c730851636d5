"""Which entries come up: a row for each rule, in rules.yaml."""

import random
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
from app.domain.values import Frozen
from app.domain.worlds import Lorebook, LoreEntry
from tests.support.tables import read_table

RULES = read_table(__file__, "rules.yaml", list[Any])
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


class Keys(Frozen):
    """The tables of keys.yaml, which says what each holds."""

    whole: tuple[tuple[str, str, bool], ...]
    patterns: tuple[tuple[str, str, bool], ...]
    secondary: tuple[tuple[str, tuple[str, ...], bool], ...]


KEYS = read_table(__file__, "keys.yaml", Keys)
PATTERNS = [*KEYS.patterns, ("(a?){300}b", "b" * 50_000, False)]

REEVE = entry("reeve", "tides", content="the reeve is Maud")
MAUD = entry("maud", "maud", content="maud owns a heron")


@pytest.mark.parametrize("row", RULES, ids=lambda row: row["rule"])
def test_rule(row: dict[str, Any]) -> None:
    entries = [entry(one.pop("id"), *one.pop("keys", ()), **one) for one in map(dict, row["entries"])]
    more = {**row.get("book", {}), "budget": row.get("budget", 100)}
    assert told(*entries, said=tuple(row.get("said", SAID)), **more) == row["come"]


@pytest.mark.parametrize(("key", "text", "found"), KEYS.whole)
def test_whole_words(key: str, text: str, found: bool) -> None:
    assert keys_of(key, text, whole_words=True) == ["e"] * found


@pytest.mark.parametrize(("key", "text", "found"), PATTERNS, ids=lambda value: str(value)[:20])
def test_patterns(key: str, text: str, found: bool) -> None:
    assert keys_of(key, text, regex=True) == ["e"] * found


@pytest.mark.parametrize(("logic", "seconds", "found"), KEYS.secondary)
def test_secondary_keys(logic: str, seconds: tuple[str, ...], found: bool) -> None:
    assert told(entry("e", "tides", secondary_keys=seconds, logic=logic)) == ["e"] * found


def test_contents_call_up_no_further_than_some_rounds() -> None:
    chain = [entry(f"e{n}", "tides" if n == 0 else f"no.{n}.", content=f"no.{n + 1}.") for n in range(50)]
    assert told(*chain, recursive=True) == [f"e{n}" for n in range(1 + MOST_ROUNDS)]


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
    assert [(one.book, one.entry.id, one.because, one.tokens, one.told) for one in came] == read_table(
        __file__, "why.yaml", list[tuple[str, str, str, int, bool]]
    )


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
