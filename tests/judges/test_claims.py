"""What replies say of events: quotes that are verified, and numbers that follow from them."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from app.domain.judging import (
    Bound,
    Candidate,
    Case,
    Claim,
    ClaimRule,
    Defect,
    DefectRule,
    JudgeRequest,
    Probes,
    Rubric,
    SourceEvent,
    Verdict,
    apply_bounds,
)
from app.judges.chat_judge import score_by_text
from app.judges.panel import JudgePanel
from app.judges.prompts import build_prompt
from app.judges.verdicts import JudgeAnswer, UnusableAnswer, build_response_format, name_places, parse_answer
from tests.judges.scripted import ChangedJudge, Update, build_rubric
from tests.support.tables import read_table

TABLE = read_table(__file__, "claims.yaml", tuple[tuple[object, float | None, str], ...])

SILENT = build_rubric(
    *("likeness", "grounding"),
    defects=(
        DefectRule(code="ignores", description="", omission=True, bounds=Bound(criterion="grounding", at_most=0.5)),
        DefectRule(code="invented", description="", bounds=Bound(criterion="grounding", at_most=0.25)),
    ),
)
RUBRIC = SILENT.model_copy(update={"claims": ClaimRule(criterion="grounding", unsupported="invented")})
SOURCES = (
    SourceEvent(id="barge", text="The levy barge “Fortune” sank\nat the landing."),
    SourceEvent(id="opening", text="A bell rings."),
)
TRUE, FALSE, MUTE = "The barge sank at the landing, aye.", "The king drowned with her.", "Fish."


def request(*texts: str, rubric: Rubric = RUBRIC) -> JudgeRequest:
    return JudgeRequest(
        rubric=rubric,
        document={},
        probes=Probes(),
        sources=SOURCES,
        candidates=tuple(
            Candidate(id=name, text=text) for name, text in zip(name_places(len(texts)), texts, strict=True)
        ),
    )


def read(text: str, claims: object, grounding: float | None = 4) -> JudgeAnswer | UnusableAnswer:
    """As a judge says them of one reply."""
    entry = {"candidate": "A", "claims": claims, "defects": [], "scores": {"likeness": 4, "grounding": grounding}}
    return parse_answer(json.dumps({"verdicts": [entry]}), request(text))


def claim(quote: object, source: object, source_quote: object = "") -> dict[str, object]:
    return {"quote": quote, "source": source, "source_quote": source_quote}


def test_a_claim_is_kept_with_its_source_and_one_without_is_a_defect() -> None:
    text = f"{TRUE} {FALSE}"
    found = read(text, [claim("the barge  SANK", "barge", 'barge "fortune" sank at'), claim("The king drowned", None)])
    assert isinstance(found, JudgeAnswer)
    assert (found.verdicts[0].claims, found.verdicts[0].defects) == (
        (
            Claim(quote="the barge  SANK", source="barge", source_quote='barge "fortune" sank at'),
            Claim(quote="The king drowned", source=None),
        ),
        (Defect(code="invented", quote="The king drowned"),),
    )


def test_who_leaves_claims_out_reports_none() -> None:
    entry = {"candidate": "A", "scores": {"likeness": 4, "grounding": 2}}
    found = parse_answer(json.dumps({"verdicts": [entry]}), request(FALSE))
    assert isinstance(found, JudgeAnswer)
    assert (found.verdicts[0].claims, found.verdicts[0].defects, found.verdicts[0].scores) == (
        (),
        (),
        {"likeness": 1.0, "grounding": 0.5},
    )


@pytest.mark.parametrize(
    ("claims", "grounding", "told"),
    [*TABLE, ([claim("barge sank", None)] * 41, 4, "candidate A has more than 40 claims")],
)
def test_what_does_not_hold_makes_the_answer_unusable(claims: object, grounding: float | None, told: str) -> None:
    assert read(TRUE, claims, grounding) == UnusableAnswer((told,))


@pytest.mark.parametrize(
    ("defects", "score", "expected"),
    read_table(__file__, "claim_levels.yaml", list[tuple[Sequence[str], float | None, float | None]]),
)
def test_inventing_costs_more_than_ignoring(
    defects: Sequence[str], score: float | None, expected: float | None
) -> None:
    verdict = Verdict(
        candidate="A",
        scores={"likeness": 1.0, "grounding": score},
        defects=tuple(Defect(code=code) for code in defects),
    )
    assert apply_bounds(RUBRIC, verdict) == {"likeness": 1.0, "grounding": expected}


def find_by_text(verdict: Verdict, text: str, number: int) -> Update:
    drowned = Claim(quote="The king drowned", source=None)
    claims = {TRUE: (Claim(quote="The barge sank", source="barge", source_quote="sank"),), FALSE: (drowned,)}
    defects = {FALSE: (Defect(code="invented", quote="The king drowned"),), MUTE: (Defect(code="ignores"),)}
    return {"claims": claims.get(text, ()), "defects": defects.get(text, ())}


def test_the_number_follows_from_the_claims_and_the_score_shows_them() -> None:
    case = Case(key="k", rubric=RUBRIC, document={}, sources=SOURCES, candidates=(TRUE, FALSE, MUTE))
    scores = asyncio.run(
        JudgePanel((ChangedJudge(score_by_text({}, otherwise=1.0), each=find_by_text),), 0.0).judge(case)
    ).scores
    grounding = [score.criteria[1] for score in scores]
    assert [
        (score.reward, score.flags, each.value, each.note) for score, each in zip(scores, grounding, strict=True)
    ] == [
        (1.0, (), 1.0, '"The barge sank": barge, "sank"'),
        (0.625, ("invented",), 0.25, '"The king drowned": no event; at most 0.25 by invented in 2 of 2 readings'),
        (0.75, ("ignores",), 0.5, "at most 0.5 by ignores in 2 of 2 readings"),
    ]


def asked_for_claims(rubric: Rubric) -> tuple[bool, bool]:
    """In words, and by the schema of the answer."""
    asked = request(TRUE, rubric=rubric)
    return '"claims"' in build_prompt(asked).system, '"claims"' in json.dumps(build_response_format("schema", asked))


def test_only_a_rubric_that_says_so_asks_for_claims() -> None:
    assert (asked_for_claims(RUBRIC), asked_for_claims(SILENT)) == ((True, True), (False, False))


def test_the_schema_is_the_same_whatever_happened() -> None:
    asked = request(TRUE)
    other = asked.model_copy(update={"sources": (SourceEvent(id="fair", text="The fair is over."),)})
    assert build_response_format("schema", asked) == build_response_format("schema", other)


@pytest.mark.parametrize(
    ("change", "words"), read_table(__file__, "unknown_criteria.yaml", list[tuple[dict[str, object], str]])
)
def test_a_rubric_names_only_what_it_has(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Rubric.model_validate({**RUBRIC.model_dump(mode="json"), **change})
