"""Which reported defects count, and who is read once more."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from app.domain.judging import Case, Defect, DefectRule, Judgement, JudgeRequest, PanelResult
from app.judges.chat_judge import ScriptedJudge, score_by_text
from app.judges.panel import JudgePanel
from app.ports.judges import Judge
from tests.judges.rubrics import build_rubric

RUBRIC = build_rubric(
    "likeness",
    defects=(
        DefectRule(code="leak", description="", cap=0.3),
        DefectRule(code="gap", description="", cap=0.3, omission=True),
    ),
)
FIVE = ("alpha one", "beta two", "gamma three", "delta four", "epsilon five")
QUALITIES = dict(zip(FIVE, (1.0, 0.8, 0.6, 0.4, 0.2), strict=True))


def case(*candidates: str) -> Case:
    return Case(key="k", rubric=RUBRIC, document={}, candidates=candidates)


def judged(judge: Judge, asked: Case) -> PanelResult:
    return asyncio.run(JudgePanel((judge,), 0.5).judge(asked))


class DefectJudge(ScriptedJudge):
    """Reports defects, by text, in those of its requests that `when` names."""

    def __init__(self, defects: Mapping[str, tuple[Defect, ...]], when: Sequence[int]) -> None:
        super().__init__(score_by_text(QUALITIES), name="strict")
        self._defects = defects
        self._when = when

    async def judge(self, request: JudgeRequest) -> Judgement:
        number = len(self.requests)
        judgement = await super().judge(request)
        texts = {candidate.id: candidate.text for candidate in request.candidates}
        return judgement.model_copy(
            update={
                "verdicts": tuple(
                    verdict.model_copy(
                        update={
                            "defects": self._defects.get(texts[verdict.candidate], ()) if number in self._when else (),
                            "note": f"note {number}",
                        }
                    )
                    for verdict in judgement.verdicts
                )
            }
        )


@pytest.mark.parametrize(
    ("when", "asked", "reward", "flags"),
    [((), 2, 1.0, ()), ((0, 1), 2, 0.3, ("leak",)), ((0,), 3, 1.0, ()), ((1, 2), 3, 0.3, ("leak",))],
)
def test_more_than_half_of_the_readings_make_a_cap_and_a_third_decides_between_two(
    when: Sequence[int], asked: int, reward: float, flags: tuple[str, ...]
) -> None:
    judge = DefectJudge({"alpha one": (Defect(code="leak", quote="one"),)}, when)
    result = judged(judge, case(*FIVE))
    score = result.scores[0]
    assert (len(judge.requests), score.reward, score.flags, score.absolute) == (asked, reward, flags, 1.0)
    assert score.rationale == ('note 0 — leak: "one"' if flags else "note 0")
    assert len(result.judgements) == asked
    assert [[each.text for each in request.candidates] for request in judge.requests[2:]] == [["alpha one"]] * (
        asked - 2
    )


def test_divided_replies_are_read_together() -> None:
    leak = {text: (Defect(code="leak", quote=text),) for text in FIVE}

    def shown(texts: Sequence[str], size: int) -> list[list[str]]:
        judge = DefectJudge({text: leak[text] for text in texts}, (0,))
        judged(judge, case(*FIVE[:size]))
        return [sorted(each.text for each in request.candidates) for request in judge.requests[2:]]

    assert shown(FIVE[:2], 5) == [sorted(FIVE[:2])]
    assert shown(FIVE[:2], 2) == [sorted(FIVE[:2])]
    assert shown(FIVE[:3], 3) == [sorted(FIVE[:3])]


def test_a_divided_reading_that_fails_leaves_the_reply_without_the_cap() -> None:
    class Fading(DefectJudge):
        async def judge(self, request: JudgeRequest) -> Judgement:
            judgement = await super().judge(request)
            late = {"error": "out", "verdicts": (), "ranking": ()}
            return judgement if len(self.requests) < 3 else judgement.model_copy(update=late)

    score = judged(Fading({"alpha one": (Defect(code="leak", quote="one"),)}, (0,)), case(*FIVE)).scores[0]
    assert (score.reward, score.flags) == (1.0, ())


@pytest.mark.parametrize(
    ("defect", "counts"),
    [
        (Defect(code="leak", quote="Alpha  ONE"), True),
        (Defect(code="leak"), False),
        (Defect(code="leak", quote="what it never said"), False),
        (Defect(code="gap"), True),
        (Defect(code="unknown", quote="alpha one"), False),
    ],
)
def test_a_defect_needs_a_verbatim_quote_unless_it_is_an_omission(defect: Defect, counts: bool) -> None:
    score = judged(DefectJudge({"alpha one": (defect,)}, (0, 1)), case(*FIVE)).scores[0]
    assert (score.reward, score.flags) == ((0.3, (defect.code,)) if counts else (1.0, ()))


@pytest.mark.parametrize(("when", "flags"), [((3,), ()), ((0, 3), ()), ((0, 1, 3), ("leak",))])
def test_of_four_readings_three_make_a_cap(when: Sequence[int], flags: tuple[str, ...]) -> None:
    """Nobody is asked a fifth time."""

    class Wavering(DefectJudge):
        async def judge(self, request: JudgeRequest) -> Judgement:
            judgement = await super().judge(request)
            return (
                judgement
                if len(self.requests) != 2
                else judgement.model_copy(update={"ranking": judgement.ranking[::-1]})
            )

    judge = Wavering({"alpha one": (Defect(code="leak", quote="one"),)}, when)
    score = judged(judge, case(*FIVE)).scores[0]
    assert (len(judge.requests), score.flags, score.absolute) == (4, flags, 1.0)
