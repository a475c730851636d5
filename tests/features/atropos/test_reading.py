"""What is kept of a posted group says what was posted, however it came."""

import json
import zlib

import pytest

from app.features.atropos.wire import read_group, read_groups, unpack_group
from app.http.web.problems import RefusedBody
from tests.support.atropos import FIELDS, JSON, group

ABSENT: JSON = dict.fromkeys(FIELDS) | {"inference_logprobs": []}
NUMBER = b'{"tokens":[[1]],"masks":[[1]],"scores":[1]}'


def told(content: str) -> JSON:
    return group(1, messages=[[{"role": "user", "content": content}]] * 8)


TOLD = told("Olá")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b" " + NUMBER + b"\n", {}),
        (NUMBER[:-1] + b',"env_id":3 }', {"env_id": 3}),
        (NUMBER[:-1] + b',"inference_logprobs":null,"unknown":1}', {}),
        (NUMBER.replace(b"[[1]]", b'[["1"]]', 1), {}),
        (NUMBER[:-1] + b',"images":1e999,"images":"a"}', {"images": "a"}),
        (json.dumps(TOLD).encode(), TOLD),
        (json.dumps(TOLD).encode().replace(b"Ol\\u00e1", b"Ol\\ud83d"), told("Ol\ufffd")),
    ],
)  # fmt: skip
def test_a_group_is_kept_with_all_its_keys(text: bytes, says: JSON) -> None:
    whole = ABSENT | {"tokens": [[1]], "masks": [[1]], "scores": [1.0]} | says
    alone, listed = read_group(text), read_groups(b"[" + text + b"]")
    found = json.loads(unpack_group(alone[0].body)), alone[0].size, alone[0].env_id
    assert found == (whole, len(whole["tokens"]), whole["env_id"])
    assert (listed, b"1e999" in unpack_group(alone[0].body)) == (alone, False)


def test_half_a_character_outside_of_messages_is_refused_by_name() -> None:
    with pytest.raises(RefusedBody) as refused:
        read_group(NUMBER[:-1] + b',"group_overrides":{"a":"\\ud83d"}}')
    assert [(fault.field, refused.value.status_code) for fault in refused.value.errors] == [
        ("body.group_overrides.a", 422)
    ]


def test_lists_keep_their_order_and_may_be_empty() -> None:
    other = NUMBER.replace(b"[[1]]", b'[["2"]]', 1)
    listed = read_groups(b"[" + NUMBER + b"," + other + b"," + NUMBER + b"]")
    found = [json.loads(unpack_group(one.body))["tokens"] for one in listed], read_groups(b"[]")
    assert found == ([[[1]], [[2]], [[1]]], ())


def test_bodies_that_an_earlier_version_packed_are_read() -> None:
    assert unpack_group(zlib.compress(NUMBER)) == NUMBER
