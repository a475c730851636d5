"""Episodes that read the same to a player and were written otherwise: the order of the request decides nothing."""

import asyncio
import json
from itertools import permutations

from app.domain.judging import Case, DefectRule, GateFacts, Judgement, JudgeRequest, SpokenLine
from app.domain.scores import Score
from app.judges.chat_judge import ScriptedJudge, score_by_text
from app.judges.panel import JudgePanel
from app.judges.verdicts import JudgeAnswer, name_places, parse_answer
from tests.judges.scripted import build_rubric

RUBRIC = build_rubric("likeness", defects=(DefectRule(code="dull", description="", cap=0.3),))
FACTS = GateFacts(speaker="Mirela")
SAME, OTHER = "player: Well?\nMirela: Dry, as ever.", "player: Well?\nMirela: Go and look."
PLAIN = ("Dry, as ever.",)
OFFERING = ("I'd be happy to help.", "Dry, as ever.")
DECLINING = ("I'm sorry, but I can't do that.", "Dry, as ever.")
DISCLOSING = ("As an AI language model I cannot say.", "Dry, as ever.")
EPISODES = ((SAME, PLAIN), (SAME, OFFERING), (SAME, DECLINING), (SAME, DISCLOSING), (OTHER, ("Go and look.",)))
HINTS = (
    "declines in words that services use and people too",
    "offers help in words that assistants use and people too",
)


class Quoting(ScriptedJudge):
    """Blames the first episode's candidates with a quote that only one of its versions holds, read as an answer is."""

    async def judge(self, request: JudgeRequest) -> Judgement:
        judgement = await super().judge(request)
        letters = name_places(len(request.candidates))
        verdicts = [
            {
                "candidate": letter,
                "scores": {"likeness": 4},
                "defects": [{"code": "dull", "quote": "happy to help"}] if each.text == SAME else [],
            }
            for letter, each in zip(letters, request.candidates, strict=True)
        ]
        answer = parse_answer(json.dumps({"verdicts": verdicts, "ranking": [letters]}), request)
        assert isinstance(answer, JudgeAnswer)
        return judgement.model_copy(update={"verdicts": answer.verdicts})


def test_what_any_of_them_holds_counts_for_all() -> None:
    judge, scores = played(EPISODES)
    shown = {each.text: (each.hints, each.own) for request in judge.requests for each in request.candidates}
    assert shown == {SAME: (HINTS, "\n".join((*PLAIN, *OFFERING, *DECLINING))), OTHER: ((), "Go and look.")}
    assert [(score.gate, score.flags) for score in scores] == [
        *[(1.0, ("dull", "may_refuse", "sounds_like_assistant"))] * 3,
        (0.0, ("breaks_character",)),
        (1.0, ()),
    ]


def test_permuting_them_permutes_the_scores() -> None:
    expected = dict(zip(EPISODES, played(EPISODES)[1], strict=True))
    for order in permutations(EPISODES):
        judge, scores = played(order)
        assert dict(zip(order, scores, strict=True)) == expected
        assert judge.requests == played(EPISODES)[0].requests


def played(episodes: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[ScriptedJudge, tuple[Score, ...]]:
    judge = Quoting(score_by_text({OTHER: 1.0}))
    case = Case(
        key="k",
        rubric=RUBRIC,
        document={},
        gates=FACTS,
        candidates=tuple(text for text, _ in episodes),
        lines=tuple(tuple(SpokenLine(text=said, gates=FACTS) for said in lines) for _, lines in episodes),
    )
    return judge, asyncio.run(JudgePanel([judge], 0.5).judge(case)).scores
