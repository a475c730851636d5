"""Answers as they are asked for: what is read, with words for the judge where one does not hold."""

import json

import pytest

from app.domain.judging import ClaimRule, DefectRule, JudgeRequest, SourceEvent
from app.domain.values import Frozen
from app.judges.verdicts import JudgeAnswer, UnusableAnswer, parse_answer
from tests.support.judge_cases import REQUEST, RUBRIC
from tests.support.tables import read_table

TABLE = read_table(__file__, "wrong_answers.yaml", tuple[tuple[dict[str, object], str], ...])

Json = dict[str, object]
ASKED = REQUEST.model_copy(
    update={
        "rubric": RUBRIC.model_copy(
            update={
                "defects": (*RUBRIC.defects, DefectRule(code="invented", description="")),
                "claims": ClaimRule(criterion="charm", unsupported="invented"),
            }
        ),
        "sources": (SourceEvent(id="ferry", text="The ferry went down."),),
    }
)


class Told(Frozen):
    """good_answer.yaml."""

    answer: Json
    read: JudgeAnswer


TOLD = read_table(__file__, "good_answer.yaml", Told)
GOOD, READ = TOLD.answer, TOLD.read
BY_CANDIDATE = {
    name: {"likeness": likeness, "charm": charm}
    for name, likeness, charm in zip("ABC", (4, 0, 1), (2, 2, 0), strict=True)
}


def read(*changes: Json, request: JudgeRequest = ASKED) -> JudgeAnswer | UnusableAnswer:
    answer = dict(GOOD)
    for change in changes:
        answer |= change
    return parse_answer(json.dumps(answer), request)


@pytest.mark.parametrize("changes", [{}, {"scores": BY_CANDIDATE}], ids=["as asked", "scores by candidate"])
def test_an_answer_is_read(changes: Json) -> None:
    assert read(changes) == READ


def test_null_in_place_of_the_letters_is_null_for_all() -> None:
    found = read({"claims": [], "scores": {"likeness": {"A": 4, "B": 0, "C": 1}, "charm": None}})
    assert isinstance(found, JudgeAnswer)
    assert [verdict.scores["charm"] for verdict in found.verdicts] == [None, None, None]


def test_an_entry_for_each_candidate_is_read_too() -> None:
    verdicts = [{"candidate": name, "claims": [], "scores": scores} for name, scores in BY_CANDIDATE.items()]
    found = parse_answer(json.dumps({"verdicts": verdicts, "ranking": GOOD["ranking"]}), ASKED)
    assert isinstance(found, JudgeAnswer)


@pytest.mark.parametrize(("change", "words"), TABLE)
def test_what_is_wrong_is_said_in_words(change: Json, words: str) -> None:
    found = read(change)
    assert isinstance(found, UnusableAnswer)
    assert words in "\n".join(found.problems)


@pytest.mark.parametrize("part", ['"A": 4', '"likeness": null', '"A": "Dry and sure."'])
def test_what_is_said_twice_is_not_used(part: str) -> None:
    """Of two values for one thing none is known to be meant."""
    whole = json.dumps(GOOD).replace(
        '"likeness": {', '"likeness": null, "likeness": {' if "null" in part else '"likeness": {'
    )
    found = parse_answer(whole.replace(part, f"{part}, {part}", 1) if "null" not in part else whole, ASKED)
    assert isinstance(found, UnusableAnswer)
    assert "more than once" in "\n".join(found.problems)


def test_a_part_of_an_answer_with_entries_is_no_answer() -> None:
    broken = json.dumps({"verdicts": [{"candidate": "A", "scores": {"likeness": 4, "charm": 1}}], "ranking": [["A"]]})
    found = parse_answer(broken, ASKED)
    assert isinstance(found, UnusableAnswer)
    assert 'candidate B is missing from "verdicts"' in found.problems
