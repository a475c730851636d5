"""Every family of coding tasks: its words fit its function, its gold is right, and its tests see what is wrong."""

import inspect
import json
import re
from collections.abc import Callable
from copy import deepcopy

import pytest
from pydantic import JsonValue

from app.envs.code_exec.exercises import (
    TESTS,
    CodeExercise,
    Family,
    ReferenceCase,
    choose_examples,
    choose_hidden_tests,
    is_same_json,
    read_all_families,
)
from app.toolkit.seeded import SeededRandom

every_family = pytest.mark.parametrize("family", read_all_families().values(), ids=list(read_all_families()))


def exercises(family: Family, count: int = 4) -> list[CodeExercise]:
    made = [(family.choose(SeededRandom(f"{family.name} {seed}")), seed) for seed in range(count)]
    return [CodeExercise(family=family.name, chosen=chosen, seed=seed) for chosen, seed in made]


def run(source: str, name: str) -> Callable[..., JsonValue]:
    """A function of ours, as its text defines it: without anything that is not in the text."""
    found: dict[str, Callable[..., JsonValue]] = {}
    exec(compile(source, name, "exec", dont_inherit=True), found)  # noqa: S102  # nobody else wrote it
    return found[name]


def failing(program: Callable[..., JsonValue], tests: list[ReferenceCase]) -> int:
    return sum(not is_same_json(program(*deepcopy(test.arguments)), test.expected) for test in tests)


def test_there_are_many_of_each_level_and_thousands_of_tasks() -> None:
    levels = [family.spec.level for family in read_all_families().values()]
    assert [len(levels) > 80, *(levels.count(level) >= 18 for level in ("easy", "medium", "hard"))] == [True] * 4
    assert (
        sum(family.size for family in read_all_families().values()) > 10_000,
        min(f.size for f in read_all_families().values()) >= 20,
    ) == (
        True,
        True,
    )


@every_family
def test_its_arguments_and_parameters_are_those_of_the_function(family: Family) -> None:
    parameters = inspect.signature(family.function).parameters.values()
    asked = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    chosen = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    assert (asked, chosen) == (list(family.spec.inputs), list(family.spec.choices))
    assert {len(edge) for edge in family.spec.edges} <= {len(asked)}


@every_family
def test_each_combination_is_asked_for_in_words_of_its_own(family: Family) -> None:
    statements = {family.statement(chosen) for chosen in family.combinations()}
    assert len(statements) == family.size
    assert [text for text in statements if re.search(r"\{[a-z_]+\}|  |\.\.|\bTrue,|None\b.*\bNone\b", text)] == []


@every_family
def test_the_gold_gives_what_the_reference_gives(family: Family) -> None:
    wrong = {
        exercise.model_dump_json(): failures
        for exercise in exercises(family)
        if (failures := failing(run(family.solution(exercise.chosen), family.name), choose_hidden_tests(exercise)))
    }
    assert wrong == {}


@every_family
def test_values_are_json_without_fractions_and_arguments_stay_as_they_are(family: Family) -> None:
    for exercise in exercises(family):
        for case in choose_hidden_tests(exercise):
            before = deepcopy(case.arguments)
            again = family.compute_expected(case.arguments, exercise.chosen)
            written = json.dumps([case.arguments, case.expected])
            assert (case.arguments, again) == (before, case.expected)
            assert (json.loads(written), re.search(r"\d\.\d|NaN|Infinity", re.sub(r'"[^"]*"', "", written))) == (
                [case.arguments, case.expected],
                None,
            )


@every_family
def test_a_program_for_other_parameters_fails(family: Family) -> None:
    taken = [
        (exercise.chosen, other)
        for exercise in exercises(family, 6)
        for tests in [choose_hidden_tests(exercise)]
        for other in family.neighbours(exercise.chosen)
        if all(is_same_json(family.compute_expected(test.arguments, other), test.expected) for test in tests)
    ]
    assert taken == []


@every_family
def test_no_constant_and_no_argument_passes_or_nearly_so(family: Family) -> None:
    for exercise in exercises(family):
        tests = choose_hidden_tests(exercise)
        constants = [sum(is_same_json(test.expected, other.expected) for test in tests) for other in tests]
        echoes = [
            sum(is_same_json(test.arguments[place], test.expected) for test in tests)
            for place in range(len(family.spec.inputs))
        ]
        assert max(constants + echoes) <= 0.9 * len(tests), exercise


@every_family
def test_examples_are_no_hidden_tests_and_all_are_the_same_each_time(family: Family) -> None:
    for exercise in exercises(family):
        shown, tests = choose_examples(exercise), choose_hidden_tests(exercise)
        assert (choose_examples(exercise), choose_hidden_tests(exercise)) == (shown, tests)
        keys = [case.key for case in tests]
        assert (len(shown), {case.key for case in shown} & set(keys), len(set(keys))) == (2, set(), len(keys))
        assert TESTS - 6 <= len(keys) <= TESTS + 12


def test_the_seed_decides_about_the_tests() -> None:
    one, *_ = exercises(read_all_families()["keep_every"], 1)
    other = one.model_copy(update={"seed": 99})
    assert {case.key for case in choose_hidden_tests(one)[-20:]} & {
        case.key for case in choose_hidden_tests(other)[-20:]
    } == set()


def test_a_solution_is_the_function_with_its_parameters_written_into_it() -> None:
    family = read_all_families()["keep_every"]
    assert family.signature == "def keep_every(items: list[int]) -> list[int]"
    assert family.solution({"step": 4, "first": 2, "order": "kept"}) == "\n".join(
        [
            "def keep_every(items: list[int]) -> list[int]:",
            "    step = 4",
            "    first = 2",
            "    order = 'kept'",
            "    kept = items[first - 1::step]",
            "    return kept[::-1] if order == 'reversed' else kept",
        ]
    )


def test_texts_written_for_several_are_right_for_one() -> None:
    said = read_all_families()["pass_over"].statement({"passes": 1, "gap": 1, "down": False})
    assert re.findall(r"1 places?\b|Do this \S+|1 times", said) == ["1 place", "1 place", "Do this once"]
