"""Terms of what was withheld: a check of words notices them, judges decide, and nobody else does."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.judging import Case, Defect, DefectRule, GateFacts, Judgement, JudgeRequest
from app.domain.scores import Score
from app.judges.chat_judge import ScriptedJudge, fail_requests, score_by_text
from app.judges.panel import JudgePanel
from tests.judges.rubrics import build_rubric

RUBRIC = build_rubric(
    "likeness",
    defects=(
        DefectRule(code="knows_withheld", description="", cap=0.3, confirms="may_know_withheld"),
        DefectRule(code="future_knowledge", description="", cap=0.3),
    ),
)
FACTS = GateFacts(
    speaker="Hob",
    withheld_terms=("silver key", "muster book"),
    prompt="You are Hob. The muster book lies open.",
    player_said="Who has the silver keys?",
)
NOBODY_SAID = FACTS.model_copy(update={"player_said": "Who came?"})
TERM, NONE = "Aldous has the silver key's twin.", "Nobody came."


class Suspicious(ScriptedJudge):
    """Reports the same of every reply that says Aldous, in as many of its readings as it is told."""

    def __init__(self, defect: Defect, readings: int = 2) -> None:
        super().__init__(score_by_text({}, otherwise=0.8))
        self._defect = defect
        self._left = readings

    async def judge(self, request: JudgeRequest) -> Judgement:
        judgement = await super().judge(request)
        self._left -= 1
        if self._left < 0:
            return judgement
        texts = {candidate.id: candidate.text for candidate in request.candidates}
        verdicts = tuple(
            verdict.model_copy(update={"defects": (self._defect,) if "Aldous" in texts[verdict.candidate] else ()})
            for verdict in judgement.verdicts
        )
        return judgement.model_copy(update={"verdicts": verdicts})


def scored(judge: ScriptedJudge, facts: GateFacts, texts: Sequence[str] = (TERM, NONE)) -> tuple[Score, ...]:
    case = Case(key="k", rubric=RUBRIC, document={}, gates=facts, candidates=tuple(texts))
    return asyncio.run(JudgePanel((judge,), 0.0).judge(case)).scores


KNOWS = Defect(code="knows_withheld", quote="Aldous has the silver key")


@pytest.mark.parametrize(
    ("judge", "facts", "expected"),
    [
        (Suspicious(KNOWS), NOBODY_SAID, (0.0, 0.0, ("leaks_withheld", "knows_withheld", "may_know_withheld"))),
        (Suspicious(KNOWS, 1), NOBODY_SAID, (1.0, 0.8, ("may_know_withheld",))),
        (Suspicious(KNOWS, 0), NOBODY_SAID, (1.0, 0.8, ("may_know_withheld",))),
        (Suspicious(KNOWS), FACTS, (1.0, 0.3, ("knows_withheld",))),
        (Suspicious(Defect(code="knows_withheld")), NOBODY_SAID, (1.0, 0.8, ("may_know_withheld",))),
        (
            Suspicious(Defect(code="future_knowledge", quote="Aldous")),
            NOBODY_SAID,
            (1.0, 0.3, ("future_knowledge", "may_know_withheld")),
        ),
    ],
    ids=["confirmed", "by half", "not confirmed", "the player said it", "without a quote", "another defect"],
)
def test_a_term_costs_the_reward_only_where_judges_confirm_it(
    judge: ScriptedJudge, facts: GateFacts, expected: tuple[float, float, tuple[str, ...]]
) -> None:
    leak, plain = scored(judge, facts)
    shown = tuple(flag for flag in leak.flags if flag not in ("low_signal", "position_dominated"))
    assert ((leak.gate, leak.reward, shown), plain.gate) == (expected, 1.0)


def test_where_the_judge_fails_there_is_no_score_and_no_zero() -> None:
    leak, _ = scored(ScriptedJudge(fail_requests()), NOBODY_SAID)
    assert (leak.outcome, leak.reason, leak.reward, leak.flags) == (
        "unscored",
        "judge_failed",
        None,
        ("may_know_withheld",),
    )


def test_judges_are_told_of_which_reply_it_was_noticed() -> None:
    judge = ScriptedJudge(score_by_text({}, otherwise=0.5))
    scored(judge, NOBODY_SAID)
    told = {candidate.text: candidate.hints for candidate in judge.requests[0].candidates}
    assert told == {TERM: ("says a term of an event that the character cannot know of",), NONE: ()}
