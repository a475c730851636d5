"""Errors of judge calls and judgements."""

from typing import Final

from app.domain.errors import JudgeFailed
from app.domain.judging import JudgeFailure
from app.inference.endpoint import NoReply

_PROXY_TIMEOUT_STATUSES: Final = frozenset((504, 524))
"""Statuses of a proxy that stopped waiting for the model."""


class ReadingFailed(JudgeFailed):
    """A judgement that failed. `failure` is the kind."""

    def __init__(self, detail: str, failure: JudgeFailure) -> None:
        super().__init__(detail)
        self.failure = failure


def build_refusal_error(said: str) -> ReadingFailed:
    """For a judge whose answer is a refusal."""
    return ReadingFailed(f"the judge refuses: {' '.join(said.split())[:200]}", "refused")


class CallFailed(Exception):
    """One call to a judge's server that failed. `code` and `told` are the server's error code and message,
    `retry_after` is in seconds, and `reached` is false when nothing was sent."""

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
        """Whether the model may have run although no answer arrived. A server that rejects a call runs no model."""
        return self.reached and (self.status is None or self.status < 300 or self.status in _PROXY_TIMEOUT_STATUSES)


def build_call_failure(error: NoReply) -> CallFailed:
    if error.kind == "unreachable":
        return CallFailed("the judge's server could not be reached", reached=False)
    if error.kind == "too_large":
        return CallFailed(f"the judge's server sent {error.reason}", status=200)
    return CallFailed(f"the connection to the judge's server failed: {error.reason}")
