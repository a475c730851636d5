"""Configuration of a judge behind an OpenAI-compatible URL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from pydantic import JsonValue, SecretStr

from app.domain.budgets import NO_BUDGET, BudgetConfig
from app.domain.judge_limits import CallLimits
from app.inference.credentials import NO_HEADERS, Credentials, KeyFile
from app.inference.endpoint import Endpoint
from app.judges.budget import NO_PRICES, TokenPrices
from app.ports.judges import DEFAULT_PACE, ReadingPace

JsonMode = Literal["schema", "object", "off"]
"""How the server is asked for JSON: with a schema, as any object, or by the prompt alone."""
VerdictForm = Literal["long", "short"]
"""`short`: scores by criterion, quotes for defects alone, and short notes. `long`: one entry per candidate, with quotes
that decided and a sentence."""
TokenParameter = Literal["max_tokens", "max_completion_tokens"]
"""The server's parameter for the longest answer."""

OWN_PARAMETERS: Final[Mapping[str, str]] = {
    "model": "model",
    "messages": "",
    "stream": "",
    "stream_options": "",
    "n": "",
    "temperature": "temperature",
    "seed": "seed",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "json_mode",
    "logprobs": "expected_scores",
    "top_logprobs": "expected_scores",
}
"""Fields of a request that `extra_body` must not hold, each with the setting that is there for it, if any."""


@dataclass(frozen=True)
class ChatJudgeConfig:
    name: str
    base_url: str
    model: str
    api_key: SecretStr | KeyFile | None = None
    extra_headers: Mapping[str, SecretStr] = field(default_factory=lambda: NO_HEADERS)
    api_version: str | None = None
    """Of Azure OpenAI; None for any other server."""
    deadline_seconds: float = 60.0
    """For one judgement of a group, including retries, pauses and the corrective retry, without time in the queue."""
    queue_seconds: float = 600.0
    """Longest wait for the limits below."""
    max_output_tokens: int = 4096
    token_parameter: TokenParameter | None = "max_tokens"  # noqa: S105
    """None sends no bound."""
    temperature: float | None = 0.0
    """None omits the parameter, which some models reject."""
    seed: int | None = None
    """Each further vote adds one, or all votes would be the same."""
    extra_body: Mapping[str, JsonValue] = field(default_factory=dict)
    """Further fields of each request."""
    prices: TokenPrices = NO_PRICES
    json_mode: JsonMode = "object"
    verdict_form: VerdictForm = "short"
    expected_scores: bool = False
    """Request token probabilities and use each score's expected value over the likely numbers."""
    pace: ReadingPace = DEFAULT_PACE
    max_concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: BudgetConfig = NO_BUDGET
    breaker_failures: int = 5
    breaker_seconds: float = 30.0

    @cached_property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.base_url, Credentials(self.api_key, self.extra_headers), self.api_version)

    @property
    def call_limits(self) -> CallLimits:
        return CallLimits(self.max_concurrency, self.requests_per_minute, self.tokens_per_minute, self.deadline_seconds)

    @property
    def asked_besides(self) -> dict[str, JsonValue]:
        """Of the newer settings those that change what is asked, where they are set. The values of headers are secrets,
        so only their names count."""
        headers: list[JsonValue] = [*sorted(name.casefold() for name in self.extra_headers)]
        named: dict[str, JsonValue] = {
            "seed": self.seed,
            "extra_body": dict(self.extra_body),
            "extra_headers": headers,
            "api_version": self.api_version,
            "unbounded": self.token_parameter is None,
        }
        return {name: value for name, value in named.items() if value not in (None, {}, []) and value is not False}
