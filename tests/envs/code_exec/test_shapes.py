"""Arguments of coding tasks, drawn by shapes."""

from collections.abc import Callable

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from app.envs.code_exec.exercises import Shape
from app.toolkit.seeded import SeededRandom
from tests.support.tables import read_table

TABLE = read_table(__file__, "shapes.yaml", tuple[tuple[object, list[JsonValue]], ...])

SHAPE: TypeAdapter[Shape] = TypeAdapter(Shape)
CHOSEN: dict[str, JsonValue] = {"sign": "=", "limit": 40, "coins": [5, 20]}


def drawn(shape: object) -> list[JsonValue]:
    return [SHAPE.validate_python(shape).draw(SeededRandom(str(number)), CHOSEN) for number in range(300)]


SMALL = {"whole": [1, 3]}


@pytest.mark.parametrize(("shape", "every"), TABLE)
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
