"""Configuration of a judge behind an OpenAI-compatible URL."""

from dataclasses import dataclass
from typing import Literal

from pydantic import SecretStr

from app.domain.budgets import NO_BUDGET, BudgetConfig
from app.judges.budget import NO_PRICES, TokenPrices
from app.ports.judges import DEFAULT_PACE, ReadingPace

JsonMode = Literal["schema", "object", "off"]
"""How the server is asked for JSON: with a schema, as any object, or by the prompt alone."""
TokenParameter = Literal["max_tokens", "max_completion_tokens"]
"""The server's parameter for the longest answer."""


@dataclass(frozen=True)
class ChatJudgeConfig:
    name: str
    base_url: str
    model: str
    api_key: SecretStr | None = None
    deadline_seconds: float = 60.0
    """For one judgement of a group, including retries, pauses and the corrective retry, without time in the queue."""
    queue_seconds: float = 600.0
    """Longest wait for the limits below."""
    max_output_tokens: int = 4096
    token_parameter: TokenParameter = "max_tokens"  # noqa: S105
    temperature: float | None = 0.0
    """None omits the parameter, which some models reject."""
    prices: TokenPrices = NO_PRICES
    json_mode: JsonMode = "object"
    expected_scores: bool = False
    """Request token probabilities and use each score's expected value over the likely numbers."""
    pace: ReadingPace = DEFAULT_PACE
    max_concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: BudgetConfig = NO_BUDGET
    breaker_failures: int = 5
    breaker_seconds: float = 30.0
