"""A judge with another behind it, which is asked where the first one refuses."""

from app.domain.judging import Judgement, JudgeReport, JudgeRequest
from app.judges.remembered import RememberingJudge
from app.ports import Judge
from app.prompts import digest


class JudgeWithFallback:
    """A judgement of the second names it as its judge and holds the refusal. Any other failure stands as it is."""

    def __init__(self, first: RememberingJudge, second: Judge) -> None:
        self.name = first.name
        self.model = first.model
        self.digest = digest([first.digest, "where it refuses", second.digest])
        self._first = first
        self.fallback = second

    async def open(self) -> None:
        await self._first.open()

    async def close(self) -> None:
        await self._first.close()

    def report(self) -> JudgeReport:
        return self._first.report()

    async def judge(self, request: JudgeRequest) -> Judgement:
        judgement = await self._first.judge(request)
        if judgement.failure != "refused":
            return judgement
        instead = await self.fallback.judge(request)
        return instead.model_copy(update={"instead_of": (judgement,)})
