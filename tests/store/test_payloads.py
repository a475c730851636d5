"""What is written into columns can be written into either database and comes back as it was."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    insert,
)

from app.domain.judging import Judgement, Verdict
from app.domain.tasks import Completion, Message
from app.store.statements import (
    decode,
    decode_json,
    encode,
    encode_completion,
    encode_json,
    filter_storable,
    from_micros,
    insert_new_rows,
    insert_rows,
    to_micros,
    upsert_rows,
)
from app.store.tasks import TITLE_LENGTH, build_title

TEXT = some.text(alphabet=some.characters(exclude_categories=()), max_size=40)
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MOMENTS = some.datetimes(datetime(1900, 1, 1), datetime(2900, 1, 1), timezones=some.just(UTC))


def fits(text: str) -> bool:
    return "\x00" not in text and text.encode("utf-8").decode() == text


@given(TEXT, TEXT)
def test_models_come_back_whatever_text_they_hold(raw: str, note: str) -> None:
    judgement = Judgement(judge="j", model=note, order=(raw,), raw=raw, verdicts=(Verdict(candidate=note, scores={}),))
    written = encode(judgement)
    assert (decode(Judgement, written), fits(written)) == (judgement, True)


@pytest.mark.parametrize("text", ['ab\x00\n"\\', "旅人\ud83d", "", "z"])
def test_long_texts_come_back_as_short_ones_do(text: str) -> None:
    """A lone surrogate in one piece does not change how the others are written."""
    long = text + "é" * 300_000 + text
    spoken = (Message(role="assistant", content=long, reasoning_content=text), Message(role="tool", tool_call_id="c"))
    completions = [
        Completion(text=long),
        Completion(text=long, finish_reason="stop", extra={"a": 1}),
        Completion(messages=spoken, finish_reason="length"),
    ]
    written = [*map(encode_completion, completions)]
    assert ([decode(Completion, each) for each in written], [*map(fits, written)]) == (completions, [True] * 3)


@given(JSON)
def test_json_comes_back(value: object) -> None:
    written = encode_json(value)  # type: ignore[arg-type]  # hypothesis does not know the type of what it makes
    assert (decode_json(written), fits(written)) == (value, True)


def test_defaults_are_left_out_and_nulls_inside_values_are_not() -> None:
    completion = Completion(text="", extra={"kept": None})
    assert encode(completion) == '{"text":"","extra":{"kept":null}}'


def test_parts_can_be_excluded_whatever_the_text() -> None:
    judgements = [Judgement(judge=name, model="m", order=(), prompt="p") for name in ("j", "\ud83d")]
    assert [encode(judgement, {"prompt"}) for judgement in judgements] == [
        '{"judge":"j","model":"m","order":[]}',
        '{"judge": "\\ud83d", "model": "m", "order": []}',
    ]


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_json(float("nan"))


@given(MOMENTS)
def test_moments_come_back_to_the_microsecond(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_a_moment_is_the_same_in_every_zone() -> None:
    there = datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert to_micros(there) == to_micros(datetime(2026, 1, 1, tzinfo=UTC))


def test_only_what_a_column_could_hold_is_looked_for() -> None:
    assert filter_storable(["b", "a\x00", "\ud83d", "a", "b", "ü\U0001f9d9"]) == ["b", "a", "ü\U0001f9d9"]


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ([], ""),
        ([("user", None)], ""),
        ([("user", "first"), ("assistant", "no"), ("user", " last\n\tline ")], "last line"),
        ([("system", "rules")], ""),
        ([("user", "x" * TITLE_LENGTH)], "x" * TITLE_LENGTH),
        ([("user", "x" * 1_000_000)], "x" * (TITLE_LENGTH - 1) + "…"),
    ],
)
def test_a_title_is_the_last_thing_the_user_says(said: list[tuple[str, str | None]], title: str) -> None:
    messages = [Message.model_validate({"role": role, "content": content}) for role, content in said]
    assert build_title(messages) == title


KEPT = Table(
    "kept",
    MetaData(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("whole", Integer),
    Column("share", Float),
    Column("said", Text),
    Column("packed", LargeBinary),
)
WHOLES = some.none() | some.integers(-(2**63), 2**63 - 1)
SHARES = some.none() | some.floats() | some.integers(-(2**53), 2**53) | some.sampled_from([-0.0, 5e-324, 0.1, 1e308])
SAID = some.none() | some.text(some.characters(codec="utf-8"), max_size=20) | some.just("a\x00b")
ROWS = some.lists(some.tuples(WHOLES, SHARES, SAID, some.none() | some.binary(max_size=20)), max_size=170)


@contextmanager
def keeping() -> Iterator[Connection]:
    """A transaction with the empty table."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        KEPT.create(connection)
        yield connection
    engine.dispose()


def read_exactly(connection: Connection) -> list[tuple[object, ...]]:
    """As SQLite has them: its types, the bits of numbers, all of a text."""
    parts = "number, typeof(whole), whole, typeof(share), share, typeof(said), hex(said), typeof(packed), packed"
    found = connection.exec_driver_sql(f"SELECT {parts} FROM kept ORDER BY number")  # noqa: S608  # names of this file
    return [tuple(struct.pack("d", one) if isinstance(one, float) else one for one in row) for row in found]


@given(ROWS)
def test_rows_are_the_same_however_many_a_statement_writes(values: list[tuple[Any, ...]]) -> None:
    names = [column.name for column in KEPT.columns]
    rows = [dict(zip(names, (number, *one), strict=True)) for number, one in enumerate(values)]
    with keeping() as together, keeping() as singly, keeping() as anew:
        insert_rows(together, KEPT, rows)
        insert_new_rows(together, KEPT, [{**row, "said": "another"} for row in rows])
        upsert_rows(anew, KEPT, "share", [{**row, "share": 0.5} for row in rows])
        upsert_rows(anew, KEPT, "share", rows)
        for row in rows:
            singly.execute(insert(KEPT), row)
        assert read_exactly(together) == read_exactly(anew) == read_exactly(singly)
