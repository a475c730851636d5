"""Reads the token counts of a chat completion, in the forms in which servers send them."""

from dataclasses import dataclass
from typing import Final

_MOST_TOKENS: Final = 10**9


@dataclass(frozen=True)
class TokenUsage:
    """Counts of one answer. `input_tokens` and `output_tokens` are None where the server does not count."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int = 0
    """Of the input, what the provider had in its prefix cache."""
    reasoning_tokens: int = 0
    """Of the output, what the model thought and did not say."""


NOT_COUNTED: Final = TokenUsage()


def parse_usage(usage: object) -> TokenUsage:
    """OpenAI and vLLM name cached tokens in `prompt_tokens_details`, DeepSeek `prompt_cache_hit_tokens`, Anthropic's
    proxies `cache_read_input_tokens`; SGLang counts `reasoning_tokens` outside of the details. Where the total exceeds
    the sum of its parts, thoughts are charged beside the answer and count as output."""
    sent, written = _parse_count(_get(usage, "prompt_tokens")), _parse_count(_get(usage, "completion_tokens"))
    cached = (
        _get(_get(usage, "prompt_tokens_details"), "cached_tokens"),
        _get(usage, "prompt_cache_hit_tokens"),
        _get(usage, "cache_read_input_tokens"),
    )
    details = _get(usage, "completion_tokens_details")
    thought = _parse_count(_get(details, "reasoning_tokens")) or _parse_count(_get(usage, "reasoning_tokens")) or 0
    beside = (_parse_count(_get(usage, "total_tokens")) or 0) - (sent or 0) - (written or 0)
    if sent is not None and written is not None and beside > 0:
        written, thought = written + beside, max(thought, beside)
    return TokenUsage(
        input_tokens=sent,
        output_tokens=written,
        cached_input_tokens=min(sent or 0, max(_parse_count(each) or 0 for each in cached)),
        reasoning_tokens=min(written or 0, thought),
    )


def _get(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _parse_count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return None
    return min(value, _MOST_TOKENS)
