"""What is read as plain is what the model says strictly, and nothing that it does not say is let through."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.features.atropos.wire import PlainGroup, ScoredData, parse_plain_group, split_array
from tests.support.atropos import FIELDS, JSON, group, large_group
from tests.support.tables import read_table
from tests.support.tiers import examples

MODEL = TypeAdapter(ScoredData)

FULL: JSON = group(
    1,
    2,
    advantages=[[0.5] * 3] * 2,
    ref_logprobs=[[-1.0] * 3] * 2,
    inference_logprobs=[[1, -0.25, -3.5e-05]] * 2,
    messages=[[{"role": "user", "content": 'Olá " \\ \u0000 😀'}]] * 2,
    generation_params={"temperature": 0.7, "stop": ['"']},
    overrides=[{"set_advantage_to_zero": True}] * 2,
    group_overrides={"group_size": 4},
    images=["x", None],
    env_id=2**60,
    distill_token_ids=[[[1, 2]] * 3] * 2,
    distill_logprobs=[[[-0.5, -1.5]] * 3] * 2,
)


def strictly(text: bytes) -> PlainGroup | None:
    """What the model makes of it; None for what it refuses, and for other keys."""
    try:
        found = MODEL.validate_json(text, strict=True)
    except ValidationError:
        return None
    given = frozenset(found.model_fields_set)
    return None if found.model_extra else PlainGroup(env_id=found.env_id, size=len(found.tokens), given=given)


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "whole", [FULL, large_group(1), group(1), dict.fromkeys(FIELDS) | group(1, inference_logprobs=[])]
)
def test_what_environments_send_is_plain(whole: JSON, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode()
    known = PlainGroup(env_id=whole.get("env_id"), size=len(whole["tokens"]), given=frozenset(whole))
    assert parse_plain_group(text) == strictly(text) == known


REST = '"masks":[[1]],"scores":[1]'


LONG = (
    '{"tokens":[[1]],%s,"images":' + "[" * 40 + "]" * 40 + "}",
    '{"tokens":[[1]],%s,"images":' + "[" * 9000 + "]" * 9000 + "}",
    '{"tokens":[[1' + "0" * 5000 + "]],%s}",
    '{"tokens":[[1]],%s,"env_id":1' + "0" * 70 + "}",
)


@pytest.mark.parametrize("text", [*read_table(__file__, "not_plain.yaml", list[str]), *LONG])
def test_what_is_not_plain_is_left_to_the_model(text: str) -> None:
    assert parse_plain_group(text.replace("%s", REST).encode()) is None


@pytest.mark.parametrize("first", [b"1e999", b'"\xff"', b'{"a":"\\ud800"}', b"null", b"[" * 500 + b"]" * 500])
@pytest.mark.parametrize("key", [b'"images"', b'"\\u0069mages"'])
def test_no_value_hides_behind_another_of_the_same_key(first: bytes, key: bytes) -> None:
    """The text would go to trainers as it came."""
    twice = b'{"tokens":[[1]],"masks":[[1]],"scores":[1],%s:%s,"images":%s}'
    assert [parse_plain_group(twice % (key, first, last)) for last in (b"null", b'"a"', b'["\\""]')] == [None] * 3


numbers = st.one_of(st.integers(), st.floats(), st.integers(min_value=2**62), st.booleans(), st.none(), st.text())
rows = st.lists(st.lists(numbers, max_size=3), max_size=3)
anything = st.recursive(numbers, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
groups = st.fixed_dictionaries(
    {name: st.one_of(rows, st.just([[1, 2]])) for name in ("tokens", "masks")} | {"scores": st.lists(numbers)},
    optional={
        name: st.one_of(st.none(), rows, anything) for name in FIELDS if name not in ("tokens", "masks", "scores")
    },
)


@settings(max_examples=examples(300), deadline=None)
@given(groups, st.sampled_from(sorted(FULL)), st.booleans())
def test_nothing_is_plain_that_the_model_would_refuse(made: dict[str, Any], from_full: str, ascii_only: bool) -> None:
    """A whole group with one part of it made up, and a group made up altogether."""
    for mixed in (made, FULL | {from_full: made.get(from_full)}):
        text = json.dumps(mixed, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        found = parse_plain_group(text)
        assert found in (None, strictly(text))


def test_the_texts_of_a_list_are_its_items() -> None:
    assert [
        split_array(text) for text in (b' [ {"a": [1.50, "}\\\\\\"]"]} , {} ] ', b"[]", b"{}", b"[1", b"[" * 9000)
    ] == [[b'{"a": [1.50, "}\\\\\\"]"]}', b"{}"], [], None, None, None]
