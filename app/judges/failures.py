"""Why a judge's answer is not there."""

from app.domain.judging import JudgeFailure
from app.errors import JudgeFailed


class ReadingFailed(JudgeFailed):
    """A reading that comes to nothing, and in which way."""

    def __init__(self, detail: str, failure: JudgeFailure) -> None:
        super().__init__(detail)
        self.failure = failure


class CallFailed(Exception):
    """One call to a judge's server that brought no answer. `code` and `told` are what the server says of it,
    `retry_after` is in seconds."""

    def __init__(
        self, words: str, *, status: int | None = None, code: str = "", told: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.code = code
        self.told = told
        self.retry_after = retry_after
