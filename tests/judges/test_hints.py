"""Hints: judges are told, the score has the flag, and nothing else changes."""

import asyncio

import pytest

from app.domain.judging import Candidate, Case, GateFacts, JudgeRequest, Probes, Rubric, RubricCriterion, SpokenLine
from app.judges.chat_judge import ScriptedJudge, score_by_text
from app.judges.panel import JudgePanel
from app.judges.prompts import build_prompt
from tests.support.shown_prompts import read_prompt

RECITAL = "Only she would put it so, with her own salt and not a word that anybody else might use."
CRITERION = RubricCriterion(name="likeness", weight=1.0, description="", anchors={4: RECITAL})
RUBRIC = Rubric(name="test", version="1", instructions="", criteria=(CRITERION,))
FACTS = GateFacts(speaker="Mirela")
OFFER = "I'd be happy to help. The cellar is dry."
PLAIN = "Dry, as ever."
HINT = "offers help in words that assistants use and people too"


def test_a_hint_is_told_and_flagged_and_changes_no_reward() -> None:
    judge = ScriptedJudge(score_by_text({OFFER: 0.9, PLAIN: 0.5}))
    case = Case(key="k", rubric=RUBRIC, document={}, gates=FACTS, candidates=(OFFER, PLAIN))
    result = asyncio.run(JudgePanel([judge], 0.0).judge(case))
    told = {candidate.text: candidate.hints for candidate in judge.requests[0].candidates}
    assert ([(score.reward, score.flags) for score in result.scores], told) == (
        [(0.9, ("sounds_like_assistant",)), (0.5, ())],
        {OFFER: (HINT,), PLAIN: ()},
    )


def test_an_episode_is_hinted_at_by_its_lines() -> None:
    judge = ScriptedJudge(score_by_text({}, otherwise=0.5))
    lines = (SpokenLine(text=PLAIN, gates=FACTS), SpokenLine(text=OFFER, gates=FACTS))
    case = Case(key="k", rubric=RUBRIC, document={}, gates=FACTS, candidates=("the transcript",), lines=(lines,))
    result = asyncio.run(JudgePanel([judge], 0.5).judge(case))
    assert (result.scores[0].flags, judge.requests[0].candidates[0].hints) == (
        ("no_comparison", "sounds_like_assistant"),
        (HINT,),
    )


@pytest.mark.parametrize("gates", [FACTS, None], ids=["a character", "nobody"])
def test_who_recites_the_rubric_is_not_judged(gates: GateFacts | None) -> None:
    judge = ScriptedJudge(score_by_text({}, otherwise=1.0))
    case = Case(key="k", rubric=RUBRIC, document={}, gates=gates, candidates=(RECITAL, PLAIN))
    result = asyncio.run(JudgePanel([judge], 0.5).judge(case))
    assert [(score.gate, score.flags) for score in result.scores] == [
        (0.0, ("leaks_rubric",)),
        (1.0, ("no_comparison",)),
    ]


def test_prompts_show_hints_where_there_are_any() -> None:
    candidates = (Candidate(id="a", text=OFFER, hints=(HINT,)), Candidate(id="b", text=PLAIN))
    asked = build_prompt(JudgeRequest(rubric=RUBRIC, document={}, probes=Probes(), candidates=candidates))
    shown = read_prompt(asked.user)
    assert (shown.texts, shown.hints) == ({"A": OFFER, "B": PLAIN}, {"A": f' (hints: "{HINT}")'})
