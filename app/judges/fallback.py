"""A judge with another behind it, which is asked where the first one gives no answer of use."""

from typing import Final

from app.domain.digests import digest
from app.domain.judging import JudgeFailure, Judgement, JudgeReport, JudgeRequest
from app.judges.remembered import RememberingJudge
from app.ports.judges import Judge

PASSED_ON: Final[frozenset[JudgeFailure | None]] = frozenset(("refused", "unusable"))
"""Failures of the model itself: of a server that is away, a budget or a language another judge is no remedy."""


class JudgeWithFallback:
    """A judgement of the second names it as its judge and holds what the first one said. Any failure but those of
    PASSED_ON stands as it is."""

    def __init__(self, first: RememberingJudge, second: Judge) -> None:
        self.name = first.name
        self.model = first.model
        self.digest = digest([first.digest, sorted(map(str, PASSED_ON)), second.digest])
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
        if judgement.failure not in PASSED_ON:
            return judgement
        instead = await self.fallback.judge(request)
        return instead.model_copy(update={"instead_of": (judgement,)})
