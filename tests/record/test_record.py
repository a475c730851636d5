"""The parts of the record that take seconds. `make record` compares all of them."""

from collections.abc import Mapping, Sequence

import pytest
from pydantic import JsonValue

from tests.record.keeping import differences
from tests.record.parts import PARTS
from tests.record.rows import Part, digest_of, kept

QUICK = ("digests", "openapi", "routes", "schema", "metrics", "commands", "settings")


@pytest.mark.parametrize("name", QUICK)
def test_it_is_as_it_was(name: str) -> None:
    assert differences(PARTS[name], PARTS[name].made()) == []


def test_a_change_is_noticed() -> None:
    part = PARTS["settings"]
    made = part.made()
    first, *others = made["settings"]
    changed: dict[str, Sequence[JsonValue]] = {**made, "settings": [["`other`"], *others]}
    assert differences(part, changed) == [f'-"settings": {_line(first)}', '+"settings": ["`other`"]']


def test_a_digest_is_of_every_row_in_its_order() -> None:
    rows: list[JsonValue] = [{"a": 1, "b": 2}, "c"]
    assert digest_of(rows) == digest_of([{"b": 2, "a": 1}, "c"])
    assert len({digest_of(each) for each in (rows, rows[::-1], rows[:1], [])}) == 4


@pytest.mark.parametrize(("bulky", "name"), [(True, "any"), (False, "~any")])
def test_of_what_is_bulky_a_digest_is_kept(bulky: bool, name: str) -> None:
    made: Mapping[str, list[JsonValue]] = {name: ["a", "b"]}
    assert kept(Part("part", lambda: made, bulky), made) == {name: f"2 {digest_of(made[name])}"}


def _line(row: JsonValue) -> str:
    assert isinstance(row, list)
    return "[" + ", ".join(f'"{cell}"' for cell in row) + "]"
