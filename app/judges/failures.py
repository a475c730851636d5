"""Errors of judge calls and judgements."""

from typing import Final

from app.domain.errors import JudgeFailed
from app.domain.judging import JudgeFailure
from app.inference.endpoint import NoReply
from app.inference.server_errors import NO_ERROR, ServerError
from app.judges.text_normalisation import replace_surrogates

MOST_STRANGE_REPLIES: Final = 3
"""After this many responses with status 200 that are not chat completions the URL is considered wrong."""

_FILTER_CODES: Final = frozenset(
    ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed")
)
"""Error codes of requests that the server's content filter blocked."""
_LONGEST_ERROR_MESSAGE: Final = 200
_RETRYABLE_STATUSES: Final = frozenset((408, 409, 425, 429))
"""Statuses below 500 that are worth a retry."""
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
    """One call to a judge's server that failed. `error` is what the server says of it, `retry_after` is in seconds.
    `reached` is false when nothing was sent, and `ran` is true when the model ran."""

    def __init__(
        self,
        words: str,
        *,
        status: int | None = None,
        error: ServerError = NO_ERROR,
        retry_after: float = 0.0,
        reached: bool = True,
        ran: bool = False,
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.error = error
        self.retry_after = retry_after
        self.reached = reached
        self.ran = ran

    @property
    def server_message(self) -> str:
        """The server's message. Empty for errors about keys, since such messages may quote the key."""
        if self.status in (401, 403) or not self.error.message:
            return ""
        return replace_surrogates(f": {self.error.message[:_LONGEST_ERROR_MESSAGE]}")

    @property
    def is_refusal(self) -> bool:
        """Whether a content filter stopped the request."""
        return self.error.filtered or not _FILTER_CODES.isdisjoint(self.error.codes)

    @property
    def is_failed_generation(self) -> bool:
        """Whether the server says that the model wrote no JSON, which it may do next time."""
        return "json_validate_failed" in self.error.codes

    @property
    def perhaps_charged(self) -> bool:
        """Whether the model may have run although no answer arrived. A server that rejects a call runs no model."""
        if self.ran:
            return True
        return self.reached and (self.status is None or self.status < 300 or self.status in _PROXY_TIMEOUT_STATUSES)


def build_call_failure(error: NoReply) -> CallFailed:
    if error.kind == "unreachable":
        return CallFailed("the judge's server could not be reached", reached=False)
    if error.kind == "too_large":
        return CallFailed(f"the judge's server sent {error.reason}", status=200)
    return CallFailed(f"the connection to the judge's server failed: {error.reason}")


def require_retryable(failed: CallFailed, strange: int) -> None:
    """Raises ReadingFailed when a retry would fail again."""
    status = failed.status
    if failed.is_refusal:
        raise ReadingFailed(f"the judge's server refuses{failed.server_message}", "refused") from None
    if failed.error.lacks_money or status == 402:
        raise ReadingFailed(
            f"the judge's server wants to be paid first{failed.server_message}", "unavailable"
        ) from None
    if strange == MOST_STRANGE_REPLIES:
        raise ReadingFailed(failed.words + failed.server_message, "unavailable") from None
    if failed.is_failed_generation:
        return
    if status is not None and 300 <= status < 500 and status not in _RETRYABLE_STATUSES:
        raise ReadingFailed(failed.words + failed.server_message, "unavailable") from None
