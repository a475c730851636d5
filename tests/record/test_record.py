"""The parts of the record that take seconds. `make record` compares all of them."""

from pathlib import Path

import pytest

from tests.record.parts import PARTS
from tests.record.rows import Part

pytestmark = pytest.mark.xdist_group("generated")

QUICK = ("digests", "routes")


@pytest.mark.parametrize("name", QUICK)
def test_it_is_as_it_was(name: str) -> None:
    assert PARTS[name].compare(PARTS[name].made()) == []


def test_a_change_is_noticed_also_in_what_is_bulky(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Part, "file", tmp_path / "part.txt")
    part = Part("part", dict)
    part.keep({"a": [{"b": 2, "a": 1}], "~c": [1, 2], "d": []})
    assert part.compare({"d": [], "~c": [1, 2], "a": [{"a": 1, "b": 2}]}) == []
    changed = part.compare({"a": [{"a": 1}], "~c": [2, 1], "d": []})
    assert [line[:7] for line in changed] == ['-"a": {', '+"a": {', '-"~c": ', '+"~c": ']
