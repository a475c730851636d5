"""Rubrics and judges for tests of what is made of scores."""

from collections.abc import Callable, Mapping

from app.domain.judging import DefectRule, Judgement, JudgeRequest, Rubric, RubricCriterion, Verdict
from app.judges.chat_judge import Script, ScriptedJudge

Update = Mapping[str, object]


def build_rubric(*names: str, defects: tuple[DefectRule, ...] = ()) -> Rubric:
    """Of criteria that weigh the same."""
    criteria = tuple(RubricCriterion(name=name, weight=1 / len(names), description="", anchors={}) for name in names)
    return Rubric(name="test", version="1", instructions="", criteria=criteria, defects=defects)


class ChangedJudge(ScriptedJudge):
    """Follows its script but for what `each` makes of a verdict on a text, and `whole` of a judgement, by the number of
    the request."""

    def __init__(
        self,
        script: Script,
        *,
        each: Callable[[Verdict, str, int], Update] = lambda verdict, text, number: {},
        whole: Callable[[Judgement, int], Update] = lambda made, number: {},
        name: str = "scripted",
    ) -> None:
        super().__init__(script, name)
        self._each, self._whole = each, whole

    async def judge(self, request: JudgeRequest) -> Judgement:
        number = len(self.requests)
        made = await super().judge(request)
        texts = {candidate.id: candidate.text for candidate in request.candidates}
        verdicts = tuple(one.model_copy(update=self._each(one, texts[one.candidate], number)) for one in made.verdicts)
        made = made.model_copy(update={"verdicts": verdicts})
        return made.model_copy(update=self._whole(made, number))
