"""Asks a judge many questions at the pace at which it answers them.

The first few questions are asked one at a time, which says how long an answer takes. Then twice as many are asked at
once, and twice as many again, for as long as this brings more answers in the same time: beyond that, questions only
wait for one another. Where no answer came while other questions were in flight, these may have kept the judge busy. So
half as many are asked at once, and the question is asked again at the end, alone. Only there a missing answer counts
against the judge. A question that cannot even be sent then ends the asking, and counts for nothing.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from app.domain.judging import Judgement, JudgeRequest
from app.domain.values import take_evenly
from app.judges.aggregation import mean
from app.ports.judges import Judge, RecallingJudge

FIRST: Final = 3
"""So many questions are asked one at a time. They are spread over all, since those of one scene resemble each other."""
_WORTH_DOUBLING: Final = 1.25
"""Twice as many at once must bring so many times the answers in the same time."""
_INSTANT: Final = 1e-9


class PacedAsking:
    """Questions, and the answers to them so far."""

    def __init__(
        self, judge: Judge, requests: Sequence[JudgeRequest], most_at_once: int, stored: Mapping[int, Judgement]
    ) -> None:
        """`stored`: earlier answers, by the number of their question. These questions are not asked."""
        self.answers: list[Judgement | None] = [stored.get(number) for number in range(len(requests))]
        self.uncounted: list[Judgement] = []
        """Failures that do not count against the judge. They may have cost something."""
        self.stopped: str | None = None
        """Why no more can be asked: a budget, or a judge that calls no longer reach."""
        self.at_once = 1
        self.most_at_once = max(1, most_at_once)
        self.measured = 0
        """Answers that came while this was asking."""
        self._judge = judge
        self._requests = requests
        left = [number for number, answer in enumerate(self.answers) if answer is None]
        first = take_evenly(left, min(FIRST, len(left)))
        self._waiting = deque([*first, *(number for number in left if number not in first)])
        self._again: deque[int] = deque()
        """Questions to be asked again, alone."""
        self._seconds: list[float] = []
        """Of the answers to questions that were asked with as many at once as now."""
        self._rate_before = 0.0
        """Answers a second, with half as many at once."""
        self._answer_seconds = 0.0
        self._has_pace = False
        """Whether `at_once` has been found."""
        self._is_saturated = False
        """Whether more at once bring no more answers."""

    @property
    def done(self) -> int:
        return len(self.answers) - self.remaining

    @property
    def remaining(self) -> int:
        return self.answers.count(None)

    @property
    def answer_seconds(self) -> float:
        """How long an answer takes, with as many at once as now."""
        return mean(self._seconds) if self._seconds else self._answer_seconds

    def estimate_seconds_left(self) -> float:
        return self.remaining * self.answer_seconds / self.at_once

    def count_in_time(self, deadline_seconds: float) -> int | None:
        """With how many calls at once answers come within a deadline. None where more calls bring more answers."""
        if not self._is_saturated:
            return None
        return max(1, math.floor(deadline_seconds * self.at_once / max(self.answer_seconds, _INSTANT)))

    async def ask_all(self, is_enough: Callable[[], bool]) -> None:
        """`is_enough` is called when answers have come. Questions in flight are waited for: they are paid for."""
        running: set[asyncio.Task[None]] = set()
        enough = False
        try:
            while True:
                while not enough and len(running) < self.at_once and (number := self._choose_next(running)) is not None:
                    running.add(asyncio.create_task(self._ask(number)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                enough = enough or self.stopped is not None or is_enough()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _choose_next(self, running: Collection[asyncio.Task[None]]) -> int | None:
        if not self._waiting and self._again and not running:
            self._waiting, self._again = self._again, deque()
            self._set_pace(1)
        return self._waiting.popleft() if self._waiting else None

    async def _ask(self, number: int) -> None:
        at_once, clock = self.at_once, asyncio.get_running_loop().time
        began = clock()
        answer = await self._judge.judge(self._requests[number])
        if answer.failure == "budget":
            self._stop(answer)
        elif answer.failure == "unavailable" and at_once > 1:
            self.uncounted.append(answer)
            self._again.append(number)
            # What fails at once, such as a request that the server refuses, did not wait for the others.
            if clock() - began >= self.answer_seconds:
                self._ask_fewer(at_once // 2)
        elif answer.failure == "unavailable" and not answer.calls:
            self._stop(answer)
        else:
            self.answers[number] = answer
            self.measured += 1
            self._measure(at_once, clock() - began)

    def _stop(self, answer: Judgement) -> None:
        self.uncounted.append(answer)
        self.stopped = self.stopped or answer.error

    def _measure(self, at_once: int, seconds: float) -> None:
        if at_once != self.at_once:
            return
        self._seconds.append(seconds)
        if self._has_pace or len(self._seconds) < max(FIRST, at_once):
            return
        rate = at_once / max(self.answer_seconds, _INSTANT)
        if rate < _WORTH_DOUBLING * self._rate_before:
            self._ask_fewer(at_once // 2)
            return
        self._rate_before, self._answer_seconds = rate, self.answer_seconds
        self._has_pace = 2 * at_once > self.most_at_once  # less than twice as many would bring too little to be seen
        if at_once < self.most_at_once:
            self.at_once, self._seconds = min(2 * at_once, self.most_at_once), []

    def _ask_fewer(self, most: int) -> None:
        """From now on, and never more again. Of several that fail together each was asked with as many at once."""
        self._is_saturated = True
        self._set_pace(most)

    def _set_pace(self, most: int) -> None:
        self._has_pace = True
        if most < self.at_once:
            if self._seconds:  # otherwise none has come since half as many were asked at once
                self._answer_seconds = self.answer_seconds * most / self.at_once
            self.at_once, self._seconds = most, []


async def recall_answers(judge: Judge, requests: Sequence[JudgeRequest]) -> dict[int, Judgement]:
    """The stored answers to these questions, by their number."""
    if not isinstance(judge, RecallingJudge):
        return {}
    found = await asyncio.gather(*map(judge.recall, requests))
    return {number: answer for number, answer in enumerate(found) if answer is not None}
