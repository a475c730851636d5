"""A task: a family, its parameters, and a seed for its examples and hidden tests."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from pydantic import JsonValue

from app.domain.digests import canonical_json
from app.domain.programs import CallResult
from app.domain.values import FiniteJson, Frozen
from app.envs.code_exec.tasks.families import Family
from app.envs.code_exec.tasks.family_registry import read_all_families
from app.envs.code_exec.tasks.shapes import Chosen
from app.toolkit.seeded import SeededRandom

EXAMPLES = 2
CANDIDATES = 24
"""Cases from which the examples are chosen."""
TESTS = 36
"""Fewer only if there are not enough different arguments."""
MOST_DRAWN = 180
MOST_DRAWN_ON = 600
MOST_ALIKE = 8
"""Tests with the same result, before other results are preferred."""


class CodeExercise(Frozen):
    family: str
    chosen: dict[str, FiniteJson]
    seed: int

    @property
    def definition(self) -> Family:
        return read_all_families()[self.family]


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    arguments: list[JsonValue]
    expected: JsonValue

    @property
    def key(self) -> str:
        return canonical_json(self.arguments)

    def is_right(self, value: JsonValue) -> bool:
        return is_same_json(value, self.expected)


def choose_examples(exercise: CodeExercise) -> list[ReferenceCase]:
    """The examples of the prompt, with different and informative results where possible."""
    drawn = list(islice(_draw_cases(exercise, "examples"), CANDIDATES))
    telling = [case for case in drawn if case.expected and case.expected not in case.arguments] or drawn
    others = [case for case in telling[1:] if not is_same_json(case.expected, telling[0].expected)]
    return [telling[0], *[*others, *drawn][: EXAMPLES - 1]]


def choose_hidden_tests(exercise: CodeExercise) -> list[ReferenceCase]:
    """Tests with different arguments, none of them an example's. Rare results are preferred, so that a constant answer
    passes few tests. Cases are added that a program for other parameters gets wrong."""
    shown = {case.key for case in choose_examples(exercise)}
    found, spare = dict[str, ReferenceCase](), list[ReferenceCase]()
    results = Counter[str]()
    for number, case in enumerate(islice(_iterate_tests(exercise), MOST_DRAWN)):
        always = number < len(exercise.definition.spec.edges)
        if case.key in shown or case.key in found or (len(found) >= TESTS and not always):
            continue
        results[canonical_json(case.expected)] += 1
        if always or results[canonical_json(case.expected)] <= MOST_ALIKE:
            found[case.key] = case
        else:
            spare.append(case)
    for case in spare[: max(0, TESTS - len(found))]:
        found.setdefault(case.key, case)
    return [*found.values(), *_find_telling_cases(exercise, list(found.values()), shown)]


def _find_telling_cases(
    exercise: CodeExercise, tests: Sequence[ReferenceCase], shown: Collection[str]
) -> list[ReferenceCase]:
    """Extra cases that tell the task from those with another parameter value that the tests alone do not tell apart."""
    family, added = exercise.definition, list[ReferenceCase]()
    same = [
        other
        for other in family.neighbours(exercise.chosen)
        if not any(_has_other_result(family, one, other) for one in tests)
    ]
    for case in islice(_draw_cases(exercise, "more tests"), MOST_DRAWN_ON if same else 0):
        told = [other for other in same if _has_other_result(family, case, other)]
        if told and case.key not in shown:
            added.append(case)
            same = [other for other in same if other not in told]
        if not same:
            break
    return added


def _has_other_result(family: Family, case: ReferenceCase, chosen: Chosen) -> bool:
    return not is_same_json(family.compute_expected(case.arguments, chosen), case.expected)


class Test(Protocol):
    def is_right(self, value: JsonValue) -> bool: ...


def check_results(tests: Sequence[Test], returned: Sequence[CallResult]) -> list[bool]:
    """For each test whether the result is right. A missing result is wrong."""
    found = [not one.fault and test.is_right(one.value) for test, one in zip(tests, returned, strict=False)]
    return [*found, *[False] * (len(tests) - len(found))]


def is_same_json(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are the same JSON: neither `true` nor `1.0` is 1. A number too long to be written equals nothing."""
    try:
        return canonical_json(one) == canonical_json(other)
    except ValueError:
        return False


def _iterate_tests(exercise: CodeExercise) -> Iterator[ReferenceCase]:
    """The fixed edge cases, then drawn ones without end."""
    family = exercise.definition
    for edge in family.spec.edges:
        yield ReferenceCase(list(edge), family.compute_expected(list(edge), exercise.chosen))
    yield from _draw_cases(exercise, "tests")


def _draw_cases(exercise: CodeExercise, purpose: str) -> Iterator[ReferenceCase]:
    family, draws = exercise.definition, SeededRandom(f"{exercise.model_dump_json()} {purpose}")
    while True:
        arguments = family.arguments(draws, exercise.chosen)
        yield ReferenceCase(arguments, family.compute_expected(arguments, exercise.chosen))
