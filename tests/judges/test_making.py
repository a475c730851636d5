"""What is written down of a group gives its stored scores exactly, whoever judged it and however."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.judging import (
    Candidate,
    Case,
    Defect,
    DefectRule,
    GateFacts,
    Judgement,
    JudgeRequest,
    PanelResult,
    Verdict,
)
from app.domain.making import NEUTRAL, GroupMaking, ScoreParts
from app.domain.tasks import Message
from app.judges.explanation import GroupExplanation, explain_group
from app.judges.panel import JudgePanel
from app.ports.judges import Judge
from app.store.statements import decode, encode
from tests.support.judged_groups import MODES, RUBRIC, MoodyJudge, make_judged_group
from tests.support.tables import read_table

WITHHOLDING = RUBRIC.model_copy(
    update={
        "defects": (
            *RUBRIC.defects,
            DefectRule(code="knows", description="", cap=0.3, confirms="may_know_withheld"),
        )
    }
)
FACTS = GateFacts(speaker="Hob", withheld_terms=("silver key",), prompt="You are Hob.", player_said="Who came?")
TEXTS = read_table(__file__, "making.yaml", tuple[str, ...])


@dataclass
class Talebearer(MoodyJudge):
    """Says now and then that a reply tells what is withheld."""

    def _read(self, one: Candidate, place: int, request: JudgeRequest, luck: Random) -> Verdict:
        made = super()._read(one, place, request, luck)
        if made.reward is not None or "silver key" not in one.text or luck.random() < 0.3:
            return made
        return made.model_copy(update={"defects": (*made.defects, Defect(code="knows", quote="silver key"))})


@st.composite
def draw_judges(draw: st.DrawFn) -> list[Judge]:
    rewarding = draw(st.sampled_from([0, 0, 0, 1, 2]))
    grading = draw(st.integers(0 if rewarding else 1, 3))
    noise, failing = st.sampled_from([0.0, 0.05, 0.4, 2.0]), st.sampled_from([0.0, 0.0, 0.15])
    seeds = st.integers(0, 10_000)
    judges: list[Judge] = [
        Talebearer(f"judge-{number}", draw(seeds), draw(noise), draw(failing)) for number in range(grading)
    ]
    return [
        *judges,
        *(Talebearer(f"reward-{number}", draw(seeds), 0.1, gives_rewards=True) for number in range(rewarding)),
    ]


@st.composite
def draw_result(draw: st.DrawFn) -> PanelResult:
    panel = JudgePanel(
        draw(draw_judges()),
        draw(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)),
        draw(st.sampled_from(MODES)),
        draw(st.integers(1, 2)),
        readings=draw(st.sampled_from([None, 1, 2, 6])),
    )
    case = Case(
        key=f"case {draw(st.integers(0, 999))}",
        rubric=WITHHOLDING,
        document={"seed": draw(st.integers(0, 9))},
        candidates=tuple(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=9))),
        conversation=(Message(role="user", content="Who came?"),),
        gates=FACTS,
    )
    return asyncio.run(panel.judge(case))


@settings(max_examples=150)
@given(draw_result())
def test_what_is_recorded_gives_the_score(result: PanelResult) -> None:
    judged = {score.candidate: score for score in result.scores if score.judges and score.outcome == "scored"}
    assert (result.making is None) == (not judged)
    if result.making is None:
        return
    making = decode(GroupMaking, encode(result.making))
    made = dict(zip([each.candidate for each in making.candidates], making.compute_parts(), strict=True))
    stored = {
        name: ScoreParts(
            score.reward,  # type: ignore[arg-type]  # what is scored has all parts
            score.gate,  # type: ignore[arg-type]
            score.absolute,  # type: ignore[arg-type]
            score.relative,  # type: ignore[arg-type]
            score.relative_weight,  # type: ignore[arg-type]
            1.0 if score.cap is None else score.cap,
        )
        for name, score in judged.items()
    }
    weights = {name: {each.name: each.weight for each in score.criteria} for name, score in judged.items()}
    assert (making, made, weights) == (result.making, stored, {name: dict(making.criteria) for name in judged})


@settings(max_examples=50)
@given(draw_result())
def test_each_reading_counts_or_has_a_reason_why_not(result: PanelResult) -> None:
    if (making := result.making) is None:
        return
    failed = [place for place, made in enumerate(result.judgements) if made.error is not None]
    counted = [place for share in making.shares for place in share.readings]
    assert sorted([*failed, *counted, *making.left_out]) == list(range(len(result.judgements)))


def explain(seed: int) -> tuple[GroupExplanation, Mapping[str, float]]:
    """And the relative parts of the scores."""
    detail = make_judged_group(seed)
    assert detail.making is not None
    relatives = {score.candidate: score.relative or 0.0 for score in detail.group.scores}
    return explain_group(detail.making, detail.judgements), relatives


def test_an_explanation_has_the_standings_before_and_after_they_are_shrunk() -> None:
    found, relatives = explain(1)
    (share,) = found.shares
    shrunk = {name: NEUTRAL + share.reliability * (one - NEUTRAL) for name, one in share.standings.items()}
    # The mean over one judge multiplies and divides by its reliability.
    assert (share.relatives, {name: round(one, 12) for name, one in shrunk.items()}) == (
        shrunk,
        {name: round(one, 12) for name, one in relatives.items()},
    )


def test_an_explanation_quotes_those_who_report_a_defect() -> None:
    detail = make_judged_group(0)
    found, _ = explain(0)
    told = {
        (name, report.code, report.reported, quote)
        for name, reports in found.defects.items()
        for report in reports
        for quote in report.quotes
    }
    said = {
        (verdict.candidate, defect.code, defect.quote)
        for made in detail.judgements
        for verdict in made.verdicts
        for defect in verdict.defects
    }
    assert told
    assert {(name, code, quote) for name, code, _, quote in told} == said


class OneOrderFails(MoodyJudge):
    """Fails whenever it is shown what it was shown first."""

    first: tuple[str, ...] = ()

    async def judge(self, request: JudgeRequest) -> Judgement:
        made = await super().judge(request)
        self.first = self.first or made.order
        return made.model_copy(update={"error": "no", "verdicts": ()}) if made.order == self.first else made


def test_a_reading_whose_mirror_failed_is_left_out() -> None:
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=("alpha one", "beta two", "gamma three"))
    judge = OneOrderFails("a", 1, 0.0)
    result = asyncio.run(JudgePanel((judge,), 0.5, "pairwise").judge(case))
    alone = [place for place, made in enumerate(result.judgements) if made.order == judge.first[::-1]]
    assert result.making is not None
    kept = {place: why for place, why in result.making.left_out.items() if why != "decides_defects"}
    assert kept == dict.fromkeys(alone, "lacks_its_mirror")
