"""A null observer."""

from collections.abc import Sequence

from app.domain.judging import Judgement
from app.domain.scores import Score


class SilentObserver:
    """Does nothing. For tests, and for commands without metrics."""

    def handed_out(self, environment: str, tasks: int) -> None:
        pass

    def scored(self, environment: str, scores: Sequence[Score], seconds: float) -> None:
        pass

    def judged(self, judgements: Sequence[Judgement]) -> None:
        pass

    def refused(self, environment: str, code: str) -> None:
        pass

    def gathered(self, environment: str, flags: Sequence[str]) -> None:
        pass

    def retrieved(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        pass
