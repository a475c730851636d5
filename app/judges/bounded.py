"""One deadline for all that a panel asks about one group: every reading, doubt, fallback and wait."""

import asyncio
from typing import Final

from app.domain.judging import Judgement, JudgeRequest
from app.ports.judges import Judge

JUDGING_SECONDS: Final = 900.0


class BoundedJudge:
    """A judge for the length of one group. Whatever it has not said when the time is up is a failed judgement; nothing
    is asked after that. What a judge goes on with behind that is for its memory alone."""

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
            error=f"no verdict within the {self._seconds:g} s that there are for one group",
            failure="unavailable",
        )
