"""Explanations reproduce what is stored, from the judgements alone; where they cannot, there are none."""

from collections.abc import Sequence

import pytest

from app.domain.groups import GroupDetail
from app.domain.judging import build_criteria
from app.domain.scores import Score
from app.judges.aggregation import NEUTRAL
from app.judges.explanation import GroupExplanation, explain_group
from tests.support.judged_groups import RUBRIC, make_judged_group, read_texts


def explain(detail: GroupDetail, scores: Sequence[Score] | None = None) -> GroupExplanation | None:
    return explain_group(RUBRIC, detail.judgements, scores or detail.group.scores, read_texts(detail))


def has_scores(detail: GroupDetail) -> bool:
    return any(score.outcome == "scored" for score in detail.group.scores)


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_every_judged_mode_is_explained(start: int) -> None:
    for detail in filter(has_scores, map(make_judged_group, range(start, start + 50))):
        found = explain(detail)
        assert found is not None, detail.group.group_id
        for score in detail.group.scores:
            shares = [share for share in found.shares if share.standings]
            for share in shares:
                shrunk = NEUTRAL + share.reliability * (share.standings[score.candidate] - NEUTRAL)
                assert share.relatives[score.candidate] == pytest.approx(shrunk)
            total = sum(share.reliability for share in shares)
            if total:
                mixed = sum(share.reliability * share.relatives[score.candidate] for share in shares) / total
                assert mixed == pytest.approx(score.relative)
            if len(score.criteria) > 1:
                made = build_criteria(RUBRIC, found.values[score.candidate])
                assert [each.value for each in made] == pytest.approx([each.value for each in score.criteria])
                counted = [each.cap for each in found.defects[score.candidate] if each.counts and each.cap is not None]
                assert min(counted, default=None) == score.cap


def test_without_the_texts_quotes_stand_for_them() -> None:
    detail = make_judged_group(5)
    assert explain_group(RUBRIC, detail.judgements, detail.group.scores, {}) == explain(detail)


def test_what_was_made_otherwise_is_not_explained() -> None:
    detail = make_judged_group(1)
    first = detail.group.scores[0]
    moved = {"relative": (first.relative or 0.0) / 2 + 0.01}
    others = [one.model_copy(update=moved) if one == first else one for one in detail.group.scores]
    assert explain(detail) is not None
    assert explain(detail, others) is None


def test_another_rubric_explains_nothing() -> None:
    detail = make_judged_group(5)
    first, *rest = RUBRIC.criteria
    lighter = RUBRIC.model_copy(update={"criteria": (first.model_copy(update={"weight": 0.2}), *rest)})
    assert explain_group(lighter, detail.judgements, detail.group.scores, read_texts(detail)) is None


def test_a_cap_is_found_among_the_reports() -> None:
    detail = make_judged_group(0)
    found = explain(detail)
    assert found is not None
    for score in detail.group.scores:
        reported = [defect for defect in found.defects[score.candidate] if defect.counts]
        codes = {defect.code for defect in reported}
        caps = [rule for rule in RUBRIC.defects if rule.code in codes and rule.cap is not None]
        assert min((rule.cap or 0.0 for rule in caps), default=None) == score.cap
