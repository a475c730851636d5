"""Token prices of a policy."""

from dataclasses import dataclass

from app.inference.wire import Usage


@dataclass(frozen=True)
class PolicyPrices:
    """US dollars per million tokens; None where unknown."""

    input: float | None = None
    output: float | None = None

    def compute_cost(self, usage: Usage) -> float | None:
        if self.input is None or self.output is None:
            return None
        return (usage.prompt_tokens * self.input + usage.completion_tokens * self.output) / 1e6
