"""A judge with a fallback, which is asked when the first one refuses or gives no valid answer."""

from typing import Final

from app.domain.digests import digest
from app.domain.judging import JudgeFailure, Judgement, JudgeReport, JudgeRequest
from app.judges.caching_judge import CachingJudge
from app.ports.judges import Judge, ReadingPace

PASSED_ON: Final[frozenset[JudgeFailure | None]] = frozenset(("refused", "unusable"))
"""Failures of the model itself. A fallback does not help with an unavailable server, a budget or a language."""


class JudgeWithFallback:
    """A judgement of the fallback names the fallback as its judge and keeps the first judgement. Failures other than
    PASSED_ON do not use the fallback."""

    def __init__(self, first: CachingJudge, second: Judge) -> None:
        self.name = first.name
        self.model = first.model
        self.digest = digest([first.digest, sorted(map(str, PASSED_ON)), second.digest])
        self._first = first
        self.fallback = second

    @property
    def pace(self) -> ReadingPace:
        return self._first.pace

    @property
    def repeats_itself(self) -> bool:
        return self._first.repeats_itself

    @property
    def writes(self) -> bool:
        return self._first.writes

    def compute_most(self, input_tokens: int) -> float | None:
        return self._first.compute_most(input_tokens)

    async def open(self) -> None:
        await self._first.open()

    async def close(self) -> None:
        await self._first.close()

    def report(self) -> JudgeReport:
        return self._first.report()

    async def judge(self, request: JudgeRequest) -> Judgement:
        judgement = await self._first.judge(request)
        if judgement.failure not in PASSED_ON:
            return judgement
        instead = await self.fallback.judge(request)
        return instead.model_copy(update={"instead_of": (judgement,)})
