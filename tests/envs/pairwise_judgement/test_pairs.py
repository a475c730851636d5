"""Pairs of answers: the better one is right by rules of the tests' own, the other one is not."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.envs.pairwise_judgement.pairs import KINDS, SCENES, AnswerPair, Kind
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom
from tests.support.tables import read_table

LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
EACH = 100


def pairs(kind: Kind) -> Iterator[AnswerPair]:
    for level in LEVELS:
        for seed in range(EACH):
            yield KINDS[kind](SeededRandom(f"{kind} {level} {seed}"), level)


@pytest.mark.parametrize("kind", [*KINDS])
def test_answers_differ(kind: Kind) -> None:
    assert [pair for pair in pairs(kind) if pair.right == pair.wrong or pair.kind != kind] == []


def test_a_scene_tells_both_values_of_each_fact_in_either_order() -> None:
    """Otherwise the value that comes first, or that is there at all, would be the right one."""
    told = [text for scene in SCENES for fact in scene.facts for text in fact.tells]
    claims = [text for scene in SCENES for fact in scene.facts for text in fact.claims]
    first = [text.index("{a}") < text.index("{b}") for text in told]
    assert (sum(first), [text.count("{v}") for text in claims]) == (len(told) // 2, [1] * len(claims))


@pytest.mark.parametrize("kind", ["grounded", "character", "attribution", "tool_call"])
def test_the_wrong_one_has_one_word_that_belongs_elsewhere(kind: Kind) -> None:
    for pair in pairs(kind):
        right, wrong = (set(re.findall(r"[\w:]+", text)) for text in (pair.right, pair.wrong))
        known = set(re.findall(r"[\w:]+", pair.context))
        assert len((wrong - right) & known) >= 1
        assert len((right - wrong) & known) >= 1


SIGNS = {"×": lambda one, other: one * other, "+": lambda one, other: one + other, "−": lambda one, other: one - other}


def _worked_out(told: str) -> int:
    boxes, each = map(int, re.findall(r"in (\d+) boxes of (\d+)", told)[0])
    steps = re.findall(r"Then (\d+) are (brought|taken away)", told)
    return boxes * each + sum(int(number) * (1 if how == "brought" else -1) for number, how in steps)


def _holds(working: str) -> bool:
    sums = re.findall(r"(\d+) ([×+−]) (\d+) = (\d+)", working)
    return all(SIGNS[sign](int(one), int(other)) == int(value) for one, sign, other, value in sums)


def _numbers(text: str) -> list[str]:
    """What was told to be added and taken away, in its order."""
    return re.findall(r"[+−] \d+(?= =)", text)


def test_sums_are_right_in_every_step_and_wrong_in_one() -> None:
    lucky = 0
    for pair in pairs("arithmetic"):
        steps = re.findall(r"Then (\d+) are (brought|taken away)", pair.context)
        asked = [f"{'+' if how == 'brought' else '−'} {number}" for number, how in steps]
        result, others = (re.findall(r"\d+", answer)[-1] for answer in (pair.right, pair.wrong))
        assert (int(result), _holds(pair.right), _numbers(pair.right)) == (_worked_out(pair.context), True, asked)
        assert not _holds(pair.wrong) or _numbers(pair.wrong) != asked
        lucky += others == result
    assert 0 < lucky < EACH


def test_programs_print_what_the_better_answer_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for pair in pairs("code"):
        program = tmp_path / "program.py"
        program.write_text(pair.context.removeprefix("```python\n").removesuffix("\n```"), encoding="utf-8")
        runpy.run_path(str(program))
        printed = capsys.readouterr().out.strip()
        ends = [answer.removesuffix(".").split(" ")[-1] for answer in (pair.right, pair.wrong)]
        assert (ends[0], ends[1] == printed) == (printed, False)


UNITS = read_table(__file__, "units.yaml", dict[str, str])


def _failing(context: str) -> list[str]:
    rules, case = context.split("A customer: ")
    given = {unit: int(number) for number, unit in re.findall(r"(\d+) (\w+)", case)}
    return [
        UNITS[unit]
        for how, number, unit in re.findall(r"at (most|least) (\d+) (\w+)", rules)
        if (given[unit] > int(number)) == (how == "most")
    ]


def test_rules_are_applied_as_they_stand() -> None:
    for pair in pairs("policy"):
        failing = _failing(pair.context)
        refuses = [re.search(r"not|n't|refuse", answer) is not None for answer in (pair.right, pair.wrong)]
        if "about" in pair.right:
            named = [answer.split("about ")[1].split()[0].strip(",") for answer in (pair.right, pair.wrong)]
            assert (named[0], len(failing), named[1] in failing) == (failing[0], 1, False)
        else:
            assert refuses == [bool(failing), not failing]


def _followed(rule: str, notice: str) -> bool:
    greeting, body, signature = notice.removeprefix("---\n").removesuffix("\n---").split("\n")
    quoted, number = re.search(r"“(.+?)”", rule), re.search(r"exactly (\d+)", rule)
    if quoted:
        return quoted[1] == (signature if "signed" in rule else greeting.removesuffix(","))
    if number:
        return int(number[1]) == len(re.findall(r"[.?]", body))
    if "before the signature" in rule:
        return body.endswith("?") == ("a question" in rule)
    if order := re.search(r"names (\w+) before (\w+)", rule):
        return body.index(f" {order[1]}") < body.index(f" {order[2]}")
    if "hour" in rule:
        return bool(re.search(r"\d", body)) == ("digits" in rule)
    return bool(re.search(r"\b[A-Z]{3}", body)) == ("capitals" in rule)


def test_one_notice_follows_every_rule_and_the_other_breaks_one() -> None:
    for pair in pairs("instructions"):
        rules = pair.context.split("\n- ")[1:]
        broken = [[rule for rule in rules if not _followed(rule, notice)] for notice in (pair.right, pair.wrong)]
        assert (broken[0], len(broken[1])) == ([], 1)
