"""The ground that every model stands on: finite numbers, encodable text, whole numbers that are whole."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.domain.values import (
    MAX_JSON_DEPTH,
    FiniteJson,
    FiniteNumber,
    Frozen,
    Name,
    Unit,
    WholeNumber,
    digest,
    digest_in_pieces,
    digest_of_list,
    take_evenly,
)

JSON = TypeAdapter[JsonValue](FiniteJson)
WHOLE = TypeAdapter[int](WholeNumber)
NAME = TypeAdapter[str](Name)

TEXT = st.text(st.characters(codec="utf-8"), max_size=10)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))
BAD = st.sampled_from([math.nan, math.inf, -math.inf, "\ud800", "a\udfffb", "\udc00\ud800"])


def nested(levels: int, inside: JsonValue = 0) -> JsonValue:
    value = inside
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


@given(value=VALUES)
def test_what_json_can_say_is_taken_as_it_is(value: JsonValue) -> None:
    taken = JSON.validate_python(value)
    assert taken == value
    assert json.loads(json.dumps(taken, allow_nan=False).encode("utf-8")) == value


@given(bad=BAD, around=st.lists(st.sampled_from(["list", "value", "neighbour"]), max_size=6))
def test_what_json_cannot_say_is_refused_wherever_it_is(bad: float | str, around: list[str]) -> None:
    value: JsonValue = bad
    for shape in around:
        value = [value] if shape == "list" else {"k": value} if shape == "value" else [1, {"a": None}, value, "z"]
    with pytest.raises(ValidationError, match=r"not a finite number|a lone surrogate is not text"):
        JSON.validate_python(value)


def test_a_key_is_text_too() -> None:
    with pytest.raises(ValidationError, match="a lone surrogate is not text"):
        JSON.validate_python({"a": {"\ud800": 1}})


@pytest.mark.parametrize(
    ("value", "place"), [(math.nan, "the root"), ([1, math.inf], r"\[1\]"), ({"a": [{"b": math.nan}]}, r"\.a\[0\]\.b")]
)
def test_the_place_is_named(value: JsonValue, place: str) -> None:
    with pytest.raises(ValidationError, match=f"not a finite number at {place}"):
        JSON.validate_python(value)


def test_pairs_of_surrogates_are_text_once_they_are_read_as_one_character() -> None:
    assert JSON.validate_python(json.loads('"\\ud83d\\ude00"')) == "😀"


@pytest.mark.parametrize("inside", [0, [], {}, "x"])
def test_nesting_ends_at_its_limit(inside: JsonValue) -> None:
    assert JSON.validate_python(nested(MAX_JSON_DEPTH, inside)) == nested(MAX_JSON_DEPTH, inside)
    with pytest.raises(ValidationError, match=f"deeper than {MAX_JSON_DEPTH} levels"):
        JSON.validate_python(nested(MAX_JSON_DEPTH + 1, inside))


@pytest.mark.parametrize("levels", [200, 100_000])
def test_absurd_nesting_is_refused_and_not_followed(levels: int) -> None:
    with pytest.raises(ValidationError):
        JSON.validate_python(nested(levels))


@pytest.mark.parametrize("value", [True, False, 1.0, 1.5, "1", None, [1]])
def test_only_an_integer_is_whole(value: object) -> None:
    with pytest.raises(ValidationError):
        WHOLE.validate_python(value)
    with pytest.raises(ValidationError):
        WHOLE.validate_json(json.dumps(value))


@given(number=st.integers(-(2**70), 2**70))
def test_any_integer_is_whole(number: int) -> None:
    assert WHOLE.validate_json(str(number)) == number


class Bounded(Frozen):
    share: Unit
    number: FiniteNumber = 0.0


@pytest.mark.parametrize("share", [0, 0.0, 1, 1.0, 0.5, 5e-324])
def test_a_share_is_between_nothing_and_all(share: float) -> None:
    assert Bounded(share=share).share == share


@pytest.mark.parametrize("share", [-1e-9, 1.0000001, math.nan, math.inf, -math.inf, None, "x"])
def test_no_share_is_outside(share: object) -> None:
    with pytest.raises(ValidationError):
        Bounded.model_validate({"share": share})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, "nan", "inf"])
def test_numbers_are_finite(number: object) -> None:
    with pytest.raises(ValidationError):
        Bounded.model_validate({"share": 0, "number": number})


@pytest.mark.parametrize("name", ["a", "0", "my-run_2", "a" * 64])
def test_a_name_is_safe_everywhere(name: str) -> None:
    assert NAME.validate_python(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "-a", "_a", "a b", "a/b", "..", "a.b", "a%2f", "a\n", "ä", "a" * 65, "run\x00"]
)
def test_what_is_not_a_name(name: str) -> None:
    with pytest.raises(ValidationError):
        NAME.validate_python(name)


def test_nothing_unknown_is_accepted_and_nothing_changes() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Bounded.model_validate({"share": 0, "shares": 0})
    bounded: BaseModel = Bounded(share=0)
    with pytest.raises(ValidationError, match="frozen"):
        bounded.share = 1  # type: ignore[attr-defined]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_a_digest_in_pieces_is_the_digest(value: JsonValue) -> None:
    long = ["旅人\ud83d" * 100_000, value]
    assert (digest_in_pieces(value), digest_in_pieces(list(long))) == (digest(value), digest(long))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(max_codepoint=127)) | st.text(),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=8,
    )
)
@example("".join(map(chr, range(128))))
@example("\ud800")
def test_a_digest_of_a_list_is_the_digest(value: JsonValue) -> None:
    assert digest_of_list([value]) == digest([value])


def test_a_sample_is_even_and_never_more_than_there_is() -> None:
    cases = [(range(10), 4), (range(3), 4), (range(3), 0), ((), 4), ("abcdef", 3)]
    assert [take_evenly(items, most) for items, most in cases] == [(0, 2, 5, 7), (0, 1, 2), (), (), ("a", "c", "e")]
