"""References of coding tasks, compared with the standard library where it has the same, and with results by hand."""

import calendar
import csv
import datetime
import textwrap

import pytest
from pydantic import JsonValue

from app.envs.code_exec.exercises import CodeExercise, choose_hidden_tests
from app.envs.code_exec.references import dates, formats, lists, machines, numbers, ordering, searches, strings
from app.envs.code_exec.references import grids as maps
from app.toolkit.seeded import SeededRandom


def cases(name: str, chosen: dict[str, JsonValue]) -> list[list[JsonValue]]:
    return [case.arguments for case in choose_hidden_tests(CodeExercise(family=name, chosen=chosen, seed=1))]


@pytest.mark.parametrize("weekday", range(7))
def test_weekdays_are_those_of_the_calendar(weekday: int) -> None:
    for year, month in ((1, 1), (1900, 2), (2000, 2), (2023, 10), (2024, 2), (9999, 12)):
        days = [
            datetime.date(year, month, day)
            for day in range(1, calendar.monthrange(year, month)[1] + 1)
            if datetime.date(year, month, day).weekday() == weekday
        ]
        found = [dates.nth_weekday(year, month, weekday=weekday, rank=rank, side="first") for rank in range(1, 6)]
        last = dates.nth_weekday(year, month, weekday=weekday, rank=1, side="last")
        assert (found, last) == ([*map(str, days), *["none"] * (5 - len(days))], str(days[-1]))


def test_leap_years_are_those_of_the_calendar() -> None:
    pairs = [(1, 2000), (1899, 1901), (2000, 2000), (2001, 1999)]
    assert [dates.count_leap_years(*pair, each=4, but=25, unless=4) for pair in pairs] == [
        sum(map(calendar.isleap, range(first, last + 1))) for first, last in pairs
    ]


@pytest.mark.parametrize("base", [2, 7, 10])
def test_digits_are_read_back_as_the_number(base: int) -> None:
    written = [
        numbers.write_in_base(number, base=base, width=3, letters="0123456789", sign="-") for number in range(-99, 99)
    ]
    assert [int(text, base) for text in written] == list(range(-99, 99))


def test_groups_of_three_are_python_s_own() -> None:
    drawn = [SeededRandom(str(seed)).below(10**9) - 10**8 for seed in range(200)]
    assert [ordering.group_digits(number, size=3, between=",", negative="before", least=4) for number in drawn] == [
        f"{number:,}" for number in drawn
    ]


@pytest.mark.parametrize("width", [5, 8, 10])
def test_lines_break_where_those_of_the_library_break(width: int) -> None:
    chosen: dict[str, JsonValue] = {"width": width, "side": "left", "long": "short", "fill": " "}
    texts = [str(text) for (text,) in cases("wrap_text", chosen)]
    short = [" ".join(word[:width] for word in text.split()) for text in texts]
    assert [ordering.wrap_text(text, width=width, side="left", long="cut", fill="") for text in short] == [
        textwrap.wrap(text, width) for text in short
    ]


def test_quoted_fields_are_those_of_the_library() -> None:
    lines = ["a,b", '"a,b",c', '"a ""b""",', '""', "", "a b,'c'"]
    read = [formats.split_quoted(line, between=",", quote='"', blank="kept") for line in lines]
    assert read == [row or [""] for row in csv.reader(lines)]


@pytest.mark.parametrize(("rule", "added"), [("down", 0), ("up", 6), ("near", 3)])
def test_amounts_are_rounded_exactly(rule: str, added: int) -> None:
    amounts = [*range(-30, 30), 10**18 + 1]
    scaled = numbers.scale_amounts(amounts, times=3, parts=7, rounding=rule)
    assert scaled == [(3 * one + added) // 7 for one in amounts]


def test_results_by_hand() -> None:
    assert [
        strings.shift_letters("xyz Abc", shift=3, kinds="a", backwards=False),
        strings.longest_run("aAbbB", least=2, ties="last", case="ignored"),
        lists.running_total([4, 5, 1], limit=8, after="rest", start=0),
        lists.take_in_turns([1, 2, 3], [7, 8, 9, 10], from_one=2, from_other=1, rest="reversed"),
        lists.longest_streak([1, 2, 9, 8, 7], rule="near", bound=1, ties="first"),
        numbers.last_ones(5, step=2, left=1, more=0, start=1),
        numbers.last_ones(5, step=2, left=1, more=1, start=1),
        numbers.count_ways(4, steps=[1, 2], broken=9, order="any"),
        numbers.count_ways(4, steps=[1, 2], broken=9, order="sorted"),
        numbers.check_digits("18", weight=2, modulus=10, side="right", large="minus"),
        numbers.say_again("112", times=1, order="count", most=9),
    ] == ["abc Aef", ["b", 3], [4, 9, 2], [1, 2, 7, 3, 8, 10, 9], [2, 3], [3], [4], 5, 3, 2, "2112"]


def test_maps_by_hand() -> None:
    grid = [[1, 2, 3], [4, 5, 6]]
    assert [
        maps.read_spiral(grid, corner="top left", turn="clockwise", step=1),
        maps.read_spiral(grid, corner="top left", turn="counter-clockwise", step=1),
        maps.read_spiral(grid, corner="bottom right", turn="clockwise", step=1),
        maps.read_spiral(grid, corner="top right", turn="counter-clockwise", step=2),
        maps.live_on(["...", "###", "..."], born=[3], stays=[2, 3], times=1, outside="."),
        maps.let_fall(["o.", "a#", ".."], falling="o", way="down", solid="#"),
        maps.fewest_moves(["..", "~#", ".."], moves="sides", mud=3, edges="closed"),
        maps.fewest_moves(["..", "~#", ".."], moves="sides", mud=3, edges="joined"),
        maps.walk_robot("FRFF", size=2, wall="turn", facing="north", turn="left"),
        maps.best_descent([[1, 5], [9, 1]], reach=1, penalty=2, which="most"),
    ] == [
        *([1, 2, 3, 6, 5, 4], [1, 4, 5, 6, 3, 2], [6, 5, 4, 1, 2, 3], [3, 1, 5], [".#.", ".#.", ".#."]),
        *(["a.", ".#", "o."], 5, 2, [1, 1], 12),
    ]


def test_searches_and_machines_by_hand() -> None:
    roads = [[0, 1, 2], [1, 2, 2], [0, 2, 9]]
    assert [
        searches.cheapest_route(roads, 2, toll=0, most=2, way="one"),
        searches.cheapest_route(roads, 2, toll=0, most=1, way="one"),
        searches.cheapest_route(roads, 2, toll=3, most=2, way="one"),
        searches.edit_cost("kitten", "sitting", insert=1, delete=1, replace=1, vowels=1),
        searches.longest_rising([3, 1, 2, 9, 4], least=1, gap=4, what="sum"),
        searches.pack_bag([[5, 10], [4, 7]], capacity=10, most=2, again=True),
        searches.merge_spans([[4, 6], [0, 3], [9, 9]], gap=1, least=1, order="start"),
        searches.find_gaps([[5, 9]], opens=0, closes=20, least=4, pause=1),
        searches.order_tasks({"a": ["c"], "b": []}, first="first", stuck="rest", most=1),
        machines.serve_cache(list("abac"), size=2, rule="recent", what="held"),
        machines.serve_cache(list("abac"), size=2, rule="oldest", what="held"),
        machines.run_stack("3 5 sub dup", most=3, under="fail", minus="below"),
        formats.work_out("2 - 3 + 4 * 2", ranks="*-+", minus="less", right=False),
        formats.unpack_groups("2[a3[b]]", most=9, default=1, mirror=True),
        ordering.rank_scores([9, 7, 9, 3], best="high", ties="competition", step=1),
    ] == [
        4, 9, 13, 3, 12, 20, [[0, 6]], [[0, 4], [10, 20]], [["b"], ["c"], ["a"]],
        ["a", "c"], ["b", "c"], [-2, -2], -10, "abbbbbba", [1, 3, 1, 4],
    ]  # fmt: skip
