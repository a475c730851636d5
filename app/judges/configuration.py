"""What there is to say of a judge behind an OpenAI-compatible URL."""

from dataclasses import dataclass
from typing import Literal

from pydantic import SecretStr

from app.domain.budgets import NO_BUDGET, BudgetConfig
from app.judges.budget import NO_PRICES, Prices

JsonMode = Literal["schema", "object", "off"]
"""How the server is asked for JSON: by the schema of the answer, as any object, or in words alone."""
TokenParameter = Literal["max_tokens", "max_completion_tokens"]
"""What the server calls the bound on an answer's length."""


@dataclass(frozen=True)
class ChatJudgeConfig:
    name: str
    base_url: str
    model: str
    api_key: SecretStr | None = None
    deadline_seconds: float = 60.0
    """For one reading of a group: every retry, pause and correction included, waiting for the limits below not."""
    queue_seconds: float = 600.0
    """For waiting for those."""
    max_output_tokens: int = 4096
    token_parameter: TokenParameter = "max_tokens"  # noqa: S105
    temperature: float | None = 0.0
    """None leaves it to the server: some models refuse the parameter."""
    prices: Prices = NO_PRICES
    json_mode: JsonMode = "object"
    expected_scores: bool = False
    """Ask for token probabilities and take each score's mean over the numbers that the judge might have said."""
    max_concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: BudgetConfig = NO_BUDGET
    breaker_failures: int = 5
    breaker_seconds: float = 30.0
