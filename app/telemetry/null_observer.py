"""A null observer."""

from collections.abc import Mapping, Sequence

from app.domain.judging import Judgement
from app.ports.runtime import ScoredGroup


class NullObserver:
    """Does nothing. For tests, and for commands without metrics."""

    def record_hand_out(self, environment: str, tasks: int) -> None:
        pass

    def record_scores(self, environment: str, groups: Sequence[ScoredGroup]) -> None:
        pass

    def record_judgements(self, judgements: Sequence[Judgement]) -> None:
        pass

    def record_refusal(self, environment: str, code: str) -> None:
        pass

    def record_closed_group(self, environment: str, flags: Sequence[str]) -> None:
        pass

    def record_retrieval(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        pass

    def record_alarms(self, standing: Mapping[str, int]) -> None:
        pass
