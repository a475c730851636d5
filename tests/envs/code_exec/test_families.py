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
from tests.support.tiers import examples

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


@pytest.mark.deep
@every_family
def test_its_tests_are_passed_by_the_gold_and_by_nothing_cheap(family: Family) -> None:
    """Neighbours are programs for other parameters; constants and echoes of an argument may not even nearly pass."""
    for exercise in exercises(family, examples(24, fewest=2)):
        shown, tests = choose_examples(exercise), choose_hidden_tests(exercise)
        keys, expected = [case.key for case in tests], [case.expected for case in tests]
        arguments = deepcopy([case.arguments for case in tests])
        again = [family.compute_expected(case.arguments, exercise.chosen) for case in tests]
        written = json.dumps([arguments, expected])
        cheap = [[value] * len(tests) for value in expected]
        cheap += [[case.arguments[place] for case in tests] for place in range(len(family.spec.inputs))]
        assert {
            "failed by the gold": failing(run(family.solution(exercise.chosen), family.name), tests),
            "passed by neighbours": [
                other
                for other in family.neighbours(exercise.chosen)
                if all(is_same_json(family.compute_expected(case.arguments, other), case.expected) for case in tests)
            ],
            "cheap": max(sum(map(is_same_json, values, expected)) for values in cheap) > 0.9 * len(tests),
            "stays": (again, [case.arguments for case in tests], json.loads(written)),
            "fractions": re.search(r"\d\.\d|NaN|Infinity", re.sub(r'"[^"]*"', "", written)),
            "drawn again": (choose_examples(exercise), choose_hidden_tests(exercise)),
            "numbers": (len(shown), len({*keys}), TESTS - 6 <= len(keys) <= TESTS + 12),
            "shown": {case.key for case in shown} & {*keys},
        } == {
            "failed by the gold": 0,
            "passed by neighbours": [],
            "cheap": False,
            "stays": (expected, arguments, [arguments, expected]),
            "fractions": None,
            "drawn again": (shown, tests),
            "numbers": (2, len(keys), True),
            "shown": set(),
        }


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
            *("def keep_every(items: list[int]) -> list[int]:", "    step = 4", "    first = 2"),
            "    order = 'kept'",
            "    kept = items[first - 1::step]",
            "    return kept[::-1] if order == 'reversed' else kept",
        ]
    )


def test_texts_written_for_several_are_right_for_one() -> None:
    said = read_all_families()["pass_over"].statement({"passes": 1, "gap": 1, "down": False})
    assert re.findall(r"1 places?\b|Do this \S+|1 times", said) == ["1 place", "1 place", "Do this once"]
