"""Regex match: what an expression is measured by, and that nothing that is a little wrong is paid."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from app.envs.regex_match.environment import (
    CLASSES,
    MARKS,
    SHOWN,
    ListPart,
    OptionalPart,
    PatternPart,
    RegexExercise,
    RegexMatch,
    RegexMatchParams,
    RunPart,
    WordsPart,
    list_hidden_strings,
)
from tests.envs.replies import explain
from tests.support.tables import read_table
from tests.support.tiers import examples

ENVIRONMENT = RegexMatch()
TASKS = examples(240, fewest=20)
EXERCISE = RegexExercise(
    parts=(RunPart(characters="digits", least=2, most=3), WordsPart(words=("oar", "rust"))),
    matching=("07oar",),
    others=("7oar",),
)


@cache
def drawn() -> list[RegexExercise]:
    tasks = [ENVIRONMENT.task("train", index, RegexMatchParams(parts=2 + index % 5)) for index in range(TASKS)]
    return [ENVIRONMENT.parse_reference(task) for task in tasks]


@pytest.mark.parametrize("answer", [r"[0-9]{2,3}(oar|rust)", r"^\d\d\d?(?:oar|rust)$", "`[0-9]{2,3}(rust|oar)`"])
def test_every_expression_of_the_form_is_right(answer: str) -> None:
    assert explain(ENVIRONMENT, EXERCISE, answer) == "correct"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *read_table(__file__, "measured.yaml", list[tuple[str, str]]),
        ("a" * 1_001, "a pattern has at most 1000 characters, this one 1001"),
        ("(a+)+$" * 100, r"it matches 0 of \d+ that fit, and 0 of \d+ that do not"),
    ],
)
def test_an_expression_is_measured_by_strings(answer: str, expected: str) -> None:
    said = explain(ENVIRONMENT, EXERCISE, answer)
    assert re.fullmatch(expected, said), said


def test_an_expression_that_would_take_long_over_all_strings_is_not_run() -> None:
    said = explain(ENVIRONMENT, drawn()[4], "((a|b|ab){1,30}){1,20}x")
    assert said.endswith("more than 20,000,000 steps over all strings")


def test_a_form_s_own_expression_says_the_same_in_python() -> None:
    """An oracle of another make: what RE2 sorted is sorted alike by the standard library."""
    sorted_alike = [
        (
            all(re.fullmatch(one.pattern, text) for text in list_hidden_strings(one).matching),
            any(re.fullmatch(one.pattern, text) for text in list_hidden_strings(one).others),
            len(one.matching) == len(one.others) == SHOWN,
        )
        for one in drawn()
    ]
    assert sorted_alike == [(True, False, True)] * TASKS


def test_a_list_of_what_is_shown_is_not_paid() -> None:
    shown = ["|".join(map(re.escape, one.matching)) for one in drawn()]
    assert "" not in [ENVIRONMENT.fault(answer, made) for made, answer in zip(drawn(), shown, strict=True)]


def bend(part: PatternPart) -> Iterator[str]:
    """Expressions of a part that are nearly right."""
    if isinstance(part, RunPart):
        signs, count = CLASSES[part.characters][1], part.pattern[len("[a-z]") :]
        narrow = (
            *("BCEFGHKT", "bcefgijk", f"{signs[0]}-{signs[-2]}", f"{signs[1]}-{signs[-1]}"),
            signs.replace(signs[4], ""),
        )
        yield from (f"[{chosen}]{count}" for chosen in narrow)
        yield from (f"{wide}{count}" for wide in (r"\w", ".", "[A-z]", "[a-zA-Z]", "[a-z0-9]", "[A-Z0-9]", r"[\pL\pN]"))
        first, last = part.least, part.most
        bounds = ((first - 1, last), (first + 1, last + 1), (first, last + 1), (first, ""))
        yield from (f"{CLASSES[part.characters][0]}{{{one},{other}}}" for one, other in bounds)
    elif isinstance(part, WordsPart):
        yield from (f"({'|'.join(part.words[1:])})", "[a-z]+")
        yield from (f"(?i:{part.pattern})", r"\w+", f"{part.pattern}+", f"{part.pattern}?")
    elif isinstance(part, OptionalPart):
        yield from (f"[{MARKS[part.mark]}]", f"[{MARKS[part.mark]}]*", ".?", "", r"\W?", f"[{MARKS[part.mark]}]{{0,2}}")
    elif isinstance(part, ListPart):
        more = f"([{MARKS[part.mark]}]{part.word})"
        yield from (f"{part.word}{more}*", f"{part.word}{more}{{0,{part.most}}}", part.word, f"(?i:{part.pattern})")
        yield from (f"{part.word}(.{part.word}){{0,{part.most - 1}}}", f"{part.pattern}[{MARKS[part.mark]}]?")
        yield f"{part.word}([{MARKS[part.mark]}]?{part.word}){{0,{part.most - 1}}}"


@pytest.mark.deep
def test_no_part_that_is_nearly_right_is_paid() -> None:
    """Strings of eight letters of each case paid `[BCEFGHKT]` always, and `[a-zA-Z]` for small letters in half."""
    paid = []
    for made in drawn():
        for place, part in enumerate(made.parts):
            for bent in bend(part):
                answer = "".join(bent if place == number else one.pattern for number, one in enumerate(made.parts))
                if ENVIRONMENT.fault(answer, made) == "":
                    paid.append((made.pattern, answer))
    assert paid == []
