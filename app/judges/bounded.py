"""One deadline for everything a panel asks about a group: all orders, votes, retries, fallbacks and waits."""

import asyncio
from typing import Final

from app.domain.judging import Judgement, JudgeRequest
from app.ports.judges import Judge

JUDGING_SECONDS: Final = 900.0


class BoundedJudge:
    """Wraps a judge for one group. After the deadline every open judgement has failed and nothing more is asked. A
    judgement that arrives later only fills the cache."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self._judge = judge
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds

    async def judge(self, request: JudgeRequest) -> Judgement:
        if asyncio.get_running_loop().time() >= self._until:
            return self._late(request)
        timeout = asyncio.timeout_at(self._until)
        try:
            async with timeout:
                return await self._judge.judge(request)
        except TimeoutError:
            if not timeout.expired():
                raise
            return self._late(request)

    def _late(self, request: JudgeRequest) -> Judgement:
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in request.candidates),
            error=f"no verdict within the limit of {self._seconds:g} s per group",
            failure="unavailable",
        )
