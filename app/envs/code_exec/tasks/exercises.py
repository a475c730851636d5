"""A task: a family, its parameters, and a seed for its examples and hidden tests."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from pydantic import JsonValue

from app.domain.digests import canonical_json
from app.domain.programs import Returned
from app.domain.values import FiniteJson, Frozen
from app.envs.code_exec.tasks.families import Family
from app.envs.code_exec.tasks.registry import FAMILIES
from app.envs.code_exec.tasks.shapes import Chosen
from app.toolkit.seeded import Draws

EXAMPLES = 2
CANDIDATES = 24
"""Cases from which the examples are chosen."""
TESTS = 36
"""Fewer only if there are not enough different arguments."""
MOST_DRAWN = 180
MOST_DRAWN_ON = 600
MOST_ALIKE = 8
"""Tests with the same result, before other results are preferred."""


class Exercise(Frozen):
    family: str
    chosen: dict[str, FiniteJson]
    seed: int

    @property
    def of(self) -> Family:
        return FAMILIES[self.family]


@dataclass(frozen=True, slots=True)
class Case:
    arguments: list[JsonValue]
    expected: JsonValue

    @property
    def key(self) -> str:
        return canonical_json(self.arguments)


def examples(exercise: Exercise) -> list[Case]:
    """The examples of the prompt, with different and informative results where possible."""
    drawn = list(islice(_drawn(exercise, "examples"), CANDIDATES))
    telling = [case for case in drawn if case.expected and case.expected not in case.arguments] or drawn
    others = [case for case in telling[1:] if not alike(case.expected, telling[0].expected)]
    return [telling[0], *[*others, *drawn][: EXAMPLES - 1]]


def hidden_tests(exercise: Exercise) -> list[Case]:
    """Tests with different arguments, none of them an example's. Rare results are preferred, so that a constant answer
    passes few tests. Cases are added that a program for other parameters gets wrong."""
    shown = {case.key for case in examples(exercise)}
    found, spare = dict[str, Case](), list[Case]()
    results = Counter[str]()
    for number, case in enumerate(islice(_tried(exercise), MOST_DRAWN)):
        always = number < len(exercise.of.spec.edges)
        if case.key in shown or case.key in found or (len(found) >= TESTS and not always):
            continue
        results[canonical_json(case.expected)] += 1
        if always or results[canonical_json(case.expected)] <= MOST_ALIKE:
            found[case.key] = case
        else:
            spare.append(case)
    for case in spare[: max(0, TESTS - len(found))]:
        found.setdefault(case.key, case)
    return [*found.values(), *_telling_apart(exercise, list(found.values()), shown)]


def _telling_apart(exercise: Exercise, tests: Sequence[Case], shown: Collection[str]) -> list[Case]:
    """Extra cases that tell the task from those with another parameter value that the tests alone do not tell apart."""
    family, added = exercise.of, list[Case]()
    same = [
        other for other in family.neighbours(exercise.chosen) if not any(_differs(family, one, other) for one in tests)
    ]
    for case in islice(_drawn(exercise, "more tests"), MOST_DRAWN_ON if same else 0):
        told = [other for other in same if _differs(family, case, other)]
        if told and case.key not in shown:
            added.append(case)
            same = [other for other in same if other not in told]
        if not same:
            break
    return added


def _differs(family: Family, case: Case, chosen: Chosen) -> bool:
    return not alike(family.expected(case.arguments, chosen), case.expected)


def passed(tests: Sequence[Case], returned: Sequence[Returned]) -> list[bool]:
    """For each test whether the result is right. A missing result is wrong."""
    pairs = zip_longest(tests, returned[: len(tests)], fillvalue=None)
    return [bool(case and one and not one.fault and alike(one.value, case.expected)) for case, one in pairs]


def alike(one: JsonValue, other: JsonValue) -> bool:
    """Whether both are the same JSON: neither `true` nor `1.0` is 1. A number too long to be written equals nothing."""
    try:
        return canonical_json(one) == canonical_json(other)
    except ValueError:
        return False


def _tried(exercise: Exercise) -> Iterator[Case]:
    """The fixed edge cases, then drawn ones without end."""
    family = exercise.of
    for edge in family.spec.edges:
        yield Case(list(edge), family.expected(list(edge), exercise.chosen))
    yield from _drawn(exercise, "tests")


def _drawn(exercise: Exercise, purpose: str) -> Iterator[Case]:
    family, draws = exercise.of, Draws(f"{exercise.model_dump_json()} {purpose}")
    while True:
        arguments = family.arguments(draws, exercise.chosen)
        yield Case(arguments, family.expected(arguments, exercise.chosen))
