"""Arguments of coding tasks, drawn by shapes."""

from collections.abc import Callable

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from app.envs.code_exec.exercises import Shape
from app.toolkit.seeded import SeededRandom

SHAPE: TypeAdapter[Shape] = TypeAdapter(Shape)
CHOSEN: dict[str, JsonValue] = {"sign": "=", "limit": 40, "coins": [5, 20]}


def drawn(shape: object) -> list[JsonValue]:
    return [SHAPE.validate_python(shape).draw(SeededRandom(str(number)), CHOSEN) for number in range(300)]


SMALL = {"whole": [1, 3]}


@pytest.mark.parametrize(
    ("shape", "every"),
    [
        ({"whole": [-1, 1]}, [-1, 0, 1]),
        ({"near": "limit", "within": 1}, [39, 40, 41]),
        ({"parameter": "sign"}, ["="]),
        ({"parameter": "coins"}, [5, 20]),
        ({"one_of": ["a", 1, None]}, ["a", 1, None]),
        ({"numeral": [8, 10], "width": 2}, ["08", "09", "10"]),
        ({"text": "ab", "length": [0, 1]}, ["", "a", "b"]),
        ({"joined": SMALL, "by": "+", "length": [0, 1]}, ["", "1", "2", "3"]),
        ({"joined": {"one_of": ["a"]}, "by": {"parameter": "sign"}, "length": [1, 3]}, ["a", "a=a", "a=a=a"]),
        ({"parts": ["<", {"one_of": ["a", "b"]}, ">"]}, ["<a>", "<b>"]),
        ({"row": [{"one_of": [0]}, {"whole": [0, 1]}]}, [[0, 0], [0, 1]]),
        ({"span": [4, 4], "least": 1, "most": 2}, [[4, 5], [4, 6]]),
        ({"grid": {"one_of": ["x"]}, "rows": [1, 2], "columns": [1, 1]}, [[["x"]], [["x"], ["x"]]]),
        ({"lines": "#", "rows": [1, 1], "columns": [1, 2]}, [["#"], ["##"]]),
        ({"names": {"one_of": ["a"]}, "to": {"one_of": [1]}, "length": [0, 2]}, [{}, {"a": 1}]),
        ({"either": [{"one_of": [1]}, {"one_of": ["a"]}]}, [1, "a"]),
        ({"list": {"one_of": [7]}, "length": [0, 2]}, [[], [7], [7, 7]]),
    ],
)
def test_a_shape_gives_all_that_fits_and_nothing_else(shape: object, every: list[JsonValue]) -> None:
    found: list[JsonValue] = []
    for value in drawn(shape):
        if value not in found:
            found.append(value)
    assert sorted(map(repr, found)) == sorted(map(repr, every))


def lists(value: JsonValue) -> list[int]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, int)]


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ({"distinct": True}, lambda items: len(items) == len(set(items)) == 3),
        ({"ordered": True}, lambda items: items == sorted(items)),
    ],
)
def test_items_may_differ_or_come_in_order(more: dict[str, bool], holds: Callable[[list[int]], bool]) -> None:
    shape = {"list": {"whole": [-2, 12]}, "length": [3, 3], **more}
    assert [items for items in map(lists, drawn(shape)) if not holds(items)] == []


def test_rows_come_in_order_of_their_numbers() -> None:
    shape = {"list": {"row": [{"whole": [5, 15]}, SMALL]}, "length": [4, 4], "ordered": True}
    assert [rows for rows in drawn(shape) if isinstance(rows, list) and rows != sorted(rows, key=lists)] == []


@pytest.mark.parametrize("shape", [{"whole": [3, 1]}, {"text": "", "length": [0, 1]}, {"one_of": []}, {"hole": [0, 1]}])
def test_what_is_no_shape_is_refused(shape: object) -> None:
    with pytest.raises(ValidationError):
        SHAPE.validate_python(shape)


def test_only_numbers_have_neighbours() -> None:
    with pytest.raises(ValueError, match="sign is not a whole number"):
        drawn({"near": "sign", "within": 1})
