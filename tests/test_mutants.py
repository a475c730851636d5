"""Mutation testing: which mutants are tried, and what is told of them."""

from pathlib import Path

from mutmut.configuration import config

from tests.mutants import Mutant, format_table, is_in_share, list_mutants
from tests.support.mutants import order_tests

NAMES = [f"app.domain.judging.x_combine__mutmut_{number}" for number in range(1000)]


def test_a_larger_share_holds_every_smaller_one() -> None:
    small, large = ({name for name in NAMES if is_in_share(name, share)} for share in (0.1, 0.3))
    assert small < large
    assert 70 < len(small) < 130
    assert 250 < len(large) < 350
    assert all(is_in_share(name, 1.0) for name in NAMES)


def test_mutmut_mutates_ten_modules_that_are_there() -> None:
    modules = config().only_mutate
    assert (len(modules), [name for name in modules if not Path(name).is_file()]) == (10, [])
    folders = config().pytest_add_cli_args_test_selection
    assert [name for name in folders if not Path(name).is_dir()] == []


def test_mutants_are_listed_by_names_that_mutmut_takes() -> None:
    assert "app.toolkit.tool_calls.calls.x_match_calls__mutmut_1" in [
        *list_mutants(["app/toolkit/tool_calls/calls.py"])
    ]


def test_the_table_has_each_module_and_all() -> None:
    states = ("killed", "timeout", "survived", "no tests", "segfault")
    told = [Mutant("app/one.py", state) for state in states]
    assert [*format_table([*told, Mutant("app/two.py", "killed")])][2:] == [
        "| `app/one.py` | 5 | 1 | 1 | 1 | 1 | 1 | 40.0% |",
        "| `app/two.py` | 1 | 1 | 0 | 0 | 0 | 0 | 100.0% |",
        "| all 2 | 6 | 2 | 1 | 1 | 1 | 1 | 50.0% |",
    ]


def test_a_mutant_meets_one_of_each_test_function_in_turn_and_the_quickest_first() -> None:
    seconds = {"a[1]": 3.0, "a[2]": 1.0, "a[3]": 2.0, "b": 4.0, "c[1]": 0.5, "c[2]": 9.0}
    assert order_tests(seconds, seconds) == ["c[1]", "a[2]", "b", "a[3]", "c[2]", "a[1]"]
