"""Running statistics for the progress bar: rewards, rates, tokens, cost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.cli.prices import PolicyPrices
from app.inference.wire import Usage


@dataclass
class ProcessMeter:
    """Statistics since the start of the command."""

    prices: PolicyPrices = field(default_factory=PolicyPrices)
    began: float = field(default_factory=time.monotonic)
    usage: Usage = field(default_factory=Usage)
    groups: int = 0
    rewards: int = 0
    reward_sum: float = 0.0

    def add_usage(self, usage: Usage, seconds: float = 0.0) -> None:
        self.usage += usage

    def add_group(self, rewards: Sequence[float]) -> None:
        self.groups += 1
        self.rewards += len(rewards)
        self.reward_sum += sum(rewards)

    @property
    def mean(self) -> float | None:
        return self.reward_sum / self.rewards if self.rewards else None

    @property
    def words(self) -> str:
        minutes = max(time.monotonic() - self.began, 1e-9) / 60
        mean, cost = self.mean, self.prices.compute_cost(self.usage)
        parts = [] if mean is None else [f"mean reward {mean:.3f}"]
        parts += [f"{self.groups / minutes:.0f} groups/min"]
        parts += [f"{self.usage.prompt_tokens:,} + {self.usage.completion_tokens:,} tokens"]
        return ", ".join([*parts, *([] if cost is None else [f"{cost:.4f} USD"])])
