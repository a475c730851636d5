"""What the span of a judge's call says, by OpenTelemetry's conventions for generative AI.

No text that was read or written is among it."""

from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from app.inference.connection import CHAT_PATH
from app.judges.chat_response import ChatResponse
from app.judges.configuration import ChatJudgeConfig
from app.judges.failures import CallFailed
from app.judges.token_usage import TokenUsage
from app.ports.tracing import Attributes

_PORTS: Final = {"http": 80, "https": 443}


def name_call(config: ChatJudgeConfig, path: str) -> str:
    return f"{_name_operation(path)} {config.model}"


def describe_call(config: ChatJudgeConfig, path: str, most_tokens: int) -> Attributes:
    host, port = _locate_server(config.base_url)
    return {
        "gen_ai.operation.name": _name_operation(path),
        "gen_ai.provider.name": "azure.ai.openai" if config.api_version else "openai",
        "gen_ai.request.model": config.model,
        "gen_ai.request.max_tokens": most_tokens or None,
        "gen_ai.request.temperature": config.temperature,
        "server.address": host,
        "server.port": port,
        "atropos.judge": config.name,
    }


@lru_cache(maxsize=64)
def _locate_server(base_url: str) -> tuple[str | None, int | None]:
    server = urlsplit(base_url)
    return server.hostname, server.port or _PORTS.get(server.scheme)


def describe_reply(config: ChatJudgeConfig, reply: ChatResponse) -> Attributes:
    usage = reply.usage
    return {
        "gen_ai.response.model": reply.model or None,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens or None,
        "atropos.cost_usd": _compute_cost(config, usage),
    }


def name_failure(failed: CallFailed) -> str:
    return str(failed.status) if failed.status is not None else "no_reply"


def _name_operation(path: str) -> str:
    return "chat" if path == CHAT_PATH else path.strip("/").rpartition("/")[2]


def _compute_cost(config: ChatJudgeConfig, usage: TokenUsage) -> float | None:
    if usage.input_tokens is None or usage.output_tokens is None or not config.prices.are_known:
        return None
    return config.prices.compute_cost(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens)
