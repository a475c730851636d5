"""What is written into columns can be written into either database and comes back as it was."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.domain.judging import Judgement, Verdict
from app.domain.tasks import Completion, Message
from app.store.rows import (
    decode,
    decode_json,
    encode,
    encode_completion,
    encode_json,
    filter_storable,
    from_micros,
    to_micros,
)
from app.store.task_store import TITLE_LENGTH, build_title

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
