"""What a way of judging makes of many groups before one simulated judge."""

from dataclasses import dataclass
from typing import Final

from benchmarks.judging_tokens import Form, measure_tokens

BUDGETS: Final = (3000, 8000, 16000)
"""Tokens of a group, prompts and answers together."""


@dataclass(frozen=True)
class Cell:
    """What one way of judging makes of many groups."""

    judge: str
    idea: str
    size: int
    groups: int
    r: float
    error: float
    """Standard error of `r`."""
    calls: float
    most_calls: int
    form: Form
    shown: float
    """How many replies all calls for a group show together."""

    @property
    def tokens(self) -> float:
        return measure_tokens()[self.form].count(self.calls, self.shown)

    @property
    def interval(self) -> tuple[float, float]:
        return self.r - 1.96 * self.error, self.r + 1.96 * self.error

    @property
    def place(self) -> tuple[str, str, int]:
        return self.judge, self.idea, self.size

    @property
    def is_ours(self) -> bool:
        return self.idea.startswith("ours")
