"""The worked example of docs/judging.md, computed by the panel itself."""

import asyncio
import re
from pathlib import Path

import pytest

from app.domain.judging import Case, Defect, GateFacts, Judgement, JudgeRequest, Verdict
from app.domain.rewards import compute_statistics
from app.envs.npc_arena.environment import NpcArena
from app.judges.panel import JudgePanel

PAGE = Path(__file__).parents[2] / "docs" / "judging.md"
RUBRIC = NpcArena.rubric
REPLIES = {"A": "Keys I have many.", "B": "What key?", "C": "Under the hearth.", "D": "As an AI language model, no."}
SCORES = {
    "A": ((4, 4, 4, None, 3, 4), (3, 4, 4, None, 3, 4)),
    "B": ((2, 3, 3, None, 3, 4), (2, 3, 3, None, 2, 4)),
    "C": ((3, 3, 0, None, 4, 3), (3, 3, 1, None, 4, 3)),
}
RANKINGS = ("ABC", "ACB")


class ExampleJudge:
    name = "example"
    model = "example-1"
    digest = ""

    def __init__(self) -> None:
        self.readings = 0

    async def judge(self, request: JudgeRequest) -> Judgement:
        reading, self.readings = self.readings, self.readings + 1
        letters = {text: letter for letter, text in REPLIES.items()}
        ids = {letters[candidate.text]: candidate.id for candidate in request.candidates}
        names = [criterion.name for criterion in request.rubric.criteria]
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(ids.values()),
            verdicts=tuple(
                Verdict(
                    candidate=name,
                    scores={
                        n: None if score is None else score / 4
                        for n, score in zip(names, SCORES[letter][reading % 2], strict=True)
                    },
                    defects=(Defect(code="secret_leak", quote="hearth"),)
                    if (letter, reading) in {("C", 0), ("C", 1), ("C", 2)}
                    else (),
                )
                for letter, name in ids.items()
            ),
            ranking=tuple((ids[letter],) for letter in RANKINGS[reading % 2] if letter in ids),
        )


def test_the_figures_of_the_page() -> None:
    assert RUBRIC is not None
    case = Case(key="k", rubric=RUBRIC, document={}, gates=GateFacts(speaker="Hob"), candidates=tuple(REPLIES.values()))
    judge = ExampleJudge()
    scores = asyncio.run(JudgePanel((judge,), 0.5).judge(case)).scores
    statistics = compute_statistics(scores)
    page = PAGE.read_text(encoding="utf-8")

    assert judge.readings == 4
    assert [score.flags for score in scores] == [(), (), ("secret_leak",), ("breaks_character",)]
    bold = [float(figure) for figure in re.findall(r"\*\*([0-9.]+)\*\*", page)]
    figures = [scores[0].absolute, scores[0].reward, scores[1].absolute, scores[1].reward, scores[2].absolute]
    assert bold == pytest.approx([*figures, scores[2].reward, scores[3].reward])
    advantages = ", ".join(f"{advantage or 0:.3f}".replace("-", "−") for advantage in statistics.advantages)
    line = f"mean {statistics.mean:.3f}, standard deviation {statistics.std:.3f} (n − 1), advantages {advantages}."
    assert line in page
