"""Prices of judge calls, and upper estimates before a call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.budgets import Amount

_BYTES_PER_TOKEN: Final = 2
"""Fewer than in any language's tokens, so estimates err on the safe side."""
_TOKENS_PER_MESSAGE: Final = 16


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens."""

    input_per_million: float | None = None
    output_per_million: float | None = None

    @property
    def known(self) -> bool:
        return self.input_per_million is not None or self.output_per_million is not None

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        return ((self.input_per_million or 0.0) * input_tokens + (self.output_per_million or 0.0) * output_tokens) / 1e6

    def amount(self, input_tokens: int, output_tokens: int) -> Amount:
        return Amount(input_tokens + output_tokens, self.cost(input_tokens, output_tokens))


NO_PRICES: Final = Prices()


def estimated_tokens(texts: Sequence[str], *, bytes_per_token: int = _BYTES_PER_TOKEN) -> int:
    """With the default, at least as many tokens as a model counts."""
    size = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts)
    return -(-size // bytes_per_token) + _TOKENS_PER_MESSAGE * len(texts)
