"""When two results are the same."""

import pytest

from app.envs.text_to_sql.exercises import ResultRows, is_same_result


@pytest.mark.parametrize(
    ("right", "result", "in_order", "expected"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], False, True),
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True, False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),
        ([(1,), (1,)], [(1,)], False, False),
        ([(1, 2)], [(2, 1)], False, False),
        ([(1,)], [(1, 1)], False, False),
        ([(1,)], [(1.0,)], False, True),
        ([(2023, 4)], [("2023", 4)], False, True),
        ([("007",)], [("7",)], False, True),
        ([(0.1 + 0.2,), (0.3,)], [(0.3,), (0.3,)], False, True),
        ([(0.1 + 0.2, "b"), (0.3, "a")], [(0.3, "b"), (0.1 + 0.2, "a")], False, True),
        ([(12.35,)], [(12.347826,)], False, False),
        ([(0.0,)], [(1e-12,)], False, True),
        ([(1e9,)], [(1e9 + 2,)], False, False),
        ([(float("inf"),)], [(9.0,)], False, False),
        ([(None,)], [(None,)], False, True),
        ([(None,)], [(0,)], False, False),
        ([(None,)], [("",)], False, False),
        ([("None",)], [(None,)], False, False),
        ([("Lyon",)], [("lyon",)], False, False),
        ([("Lyon",)], [("Lyon ",)], False, False),
        ([("1e3",)], [(1000,)], False, False),
        ([(None, 1), ("a", None)], [("a", None), (None, 1)], False, True),
    ],
)
def test_results_are_the_same_by_value(right: ResultRows, result: ResultRows, in_order: bool, expected: bool) -> None:
    assert is_same_result(right, result, in_order) == expected
