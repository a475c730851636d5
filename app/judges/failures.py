"""Why a judge's answer is not there."""

from typing import Final

from app.domain.errors import JudgeFailed
from app.domain.judging import JudgeFailure

_GAVE_UP_WAITING: Final = frozenset((504, 524))
"""Statuses of a proxy that left a model alone with its answer."""


class ReadingFailed(JudgeFailed):
    """A reading that comes to nothing, and in which way."""

    def __init__(self, detail: str, failure: JudgeFailure) -> None:
        super().__init__(detail)
        self.failure = failure


def refusal(said: str) -> ReadingFailed:
    """For a judge that declines in these words."""
    return ReadingFailed(f"the judge refuses: {' '.join(said.split())[:200]}", "refused")


class CallFailed(Exception):
    """One call to a judge's server that brought no answer. `code` and `told` are what the server says of it,
    `retry_after` is in seconds, and without `reached` nothing was sent."""

    def __init__(
        self,
        words: str,
        *,
        status: int | None = None,
        code: str = "",
        told: str = "",
        retry_after: float = 0.0,
        reached: bool = True,
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.code = code
        self.told = told
        self.retry_after = retry_after
        self.reached = reached

    @property
    def perhaps_charged(self) -> bool:
        """The model may have answered, and the answer not have come: a server that says no has asked no model."""
        return self.reached and (self.status is None or self.status < 300 or self.status in _GAVE_UP_WAITING)
