"""Records for JSON tasks: what is told of them, and how their text is broken."""

import re
from typing import get_args

import pytest
from pydantic import JsonValue

from app.envs.json_schema.records import (
    STYLES,
    Kind,
    RecordField,
    break_record,
    draw_fact,
    draw_other_fact,
    draw_record,
)
from app.toolkit.json_answers import is_valid
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom

LEVELS: tuple[Level, ...] = get_args(Level)
KINDS: tuple[Kind, ...] = get_args(Kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fact_fits_its_schema_and_so_does_another(kind: Kind) -> None:
    field = RecordField(
        name="x", kind=kind, says=("It is {value}.",), denies=("It is not.",), choices=("a b", "c", "d"), low=5, step=5
    )
    for seed in range(200):
        draws = SeededRandom(f"{kind} {seed}")
        fact = draw_fact(draws, field, seed % STYLES)
        other = draw_other_fact(draws, fact)
        assert is_valid(fact.value, fact.form), fact
        assert (is_valid(other.value, fact.form), other.form, other.value == fact.value) == (True, fact.form, False)


TIME = re.compile(r"(\d+):(\d\d) in the (morning|afternoon|evening)")
PRICE = re.compile(r"(\d+)(?:\.(\d\d))? euros(?: and (\d\d) cents)?")


def test_times_and_prices_say_what_they_are() -> None:
    """Read back by rules of the test's own."""
    read: list[tuple[JsonValue, JsonValue]] = []
    for seed in range(300):
        time = draw_fact(SeededRandom(f"time {seed}"), RecordField(name="x", kind="time", says=("{value}",)), 0)
        if told := TIME.fullmatch(time.words):
            hour = int(told[1]) + (0 if told[3] == "morning" else 12)
            read.append((f"{hour:02}:{told[2]}", time.value))
        price = draw_fact(SeededRandom(f"price {seed}"), RecordField(name="x", kind="price", says=("{value}",)), 2)
        if told := PRICE.fullmatch(price.words):
            read.append((100 * int(told[1]) + int(told[2] or told[3] or 0), price.value))
    assert (len(read) > 400, [pair for pair in read if pair[0] != pair[1]]) == (True, [])


@pytest.mark.parametrize("level", LEVELS)
def test_every_fact_is_told_once_or_put_right_last(level: Level) -> None:
    for seed in range(200):
        made = draw_record(SeededRandom(f"{level} {seed}"), level)
        known = {fact.field.name: fact.value for fact in made.facts}
        untold = [fact.sentence for fact in made.facts if fact.sentence not in made.text]
        allowed = made.form["properties"]
        assert isinstance(allowed, dict)
        assert (made.value, untold, made.value.keys() <= allowed.keys()) == (known, [], True)


def test_what_is_not_known_may_be_left_out() -> None:
    made = [draw_record(SeededRandom(f"unknown {seed}"), "hard") for seed in range(100)]
    optional = [
        set(one.form["properties"]) - set(one.form["required"])  # type: ignore[arg-type]
        for one in made
    ]
    assert [len(names - one.value.keys()) for names, one in zip(optional, made, strict=True)] == [2] * 100
    assert any(names & one.value.keys() for names, one in zip(optional, made, strict=True))


def plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def leaves(value: JsonValue) -> list[str]:
    if isinstance(value, dict):
        return [leaf for member in value.values() for leaf in leaves(member)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [plain(str(value))]


@pytest.mark.parametrize("level", LEVELS)
def test_what_the_text_no_longer_says_is_known_besides(level: Level) -> None:
    """Every name and every value stands in the broken text, however it is written, or a sentence beside it has both."""
    lost = []
    for seed in range(300):
        draws = SeededRandom(f"broken {level} {seed}")
        made = draw_record(draws, level)
        spoilt = break_record(draws, made, level)
        letters = plain(spoilt.text)
        for fact in made.facts:
            said = all(leaf in letters for leaf in leaves(fact.value)) or plain(fact.words) in letters
            if not (said and plain(fact.field.name) in letters) and fact.sentence not in spoilt.known:
                lost.append((fact.field.name, spoilt.text))
        assert ("\x00" in spoilt.text, "u0000" in spoilt.text) == (False, False)
    assert lost == []


def test_a_member_given_twice_is_known_besides() -> None:
    seen = 0
    for seed in range(300):
        draws = SeededRandom(f"twice {seed}")
        made = draw_record(draws, "hard")
        spoilt = break_record(draws, made, "hard")
        for fact in made.facts:
            if len(re.findall(rf"""(?m)^\s*["']?{fact.field.name}["']?:""", spoilt.text)) == 2:
                seen += 1
                assert fact.sentence in spoilt.known
    assert seen > 50
