"""What the settings name, made: judges, and what is asked for the passages of a prompt."""

from app.domain.budgets import BudgetConfig
from app.judges.budget import TokenPrices
from app.judges.configuration import ChatJudgeConfig
from app.judges.judge_factory import build_chat_judges
from app.judges.panels import ConfiguredPanels
from app.main.discovery import load_retriever
from app.ports.judges import JudgeCache, ReadingPace
from app.ports.retrieval import Retriever
from app.rag.remote.contract import AnswerBounds
from app.rag.remote.retriever import RemoteRetriever, RemoteRetrieverConfig
from app.settings import JudgeSettings, Settings


def build_judge_config(settings: Settings, name: str, judge: JudgeSettings) -> ChatJudgeConfig:
    """ValueError for a key that is not set, and for a budget without prices."""
    key = None if judge.api_key_env is None else settings.read_secret(judge.api_key_env)
    if judge.api_key_env is not None and key is None:
        raise ValueError(f"judges.{name}.api_key_env names {judge.api_key_env}, which is not set")
    prices = TokenPrices(
        judge.input_price_per_million, judge.output_price_per_million, judge.cached_input_price_per_million
    )
    if not prices.known and (judge.budget_usd is not None or judge.budget_usd_per_day is not None):
        raise ValueError(f"judges.{name} has a budget in US dollars and no prices")
    return ChatJudgeConfig(
        name=name,
        base_url=judge.base_url,
        model=judge.model,
        api_key=key,
        deadline_seconds=judge.deadline_seconds,
        queue_seconds=judge.queue_seconds,
        temperature=judge.temperature,
        max_output_tokens=judge.max_output_tokens,
        token_parameter=judge.token_parameter,
        json_mode=judge.json_mode,
        expected_scores=judge.expected_scores,
        prices=prices,
        pace=ReadingPace(judge.largest_group, judge.warm_cache),
        max_concurrency=judge.max_concurrency,
        requests_per_minute=judge.requests_per_minute,
        tokens_per_minute=judge.tokens_per_minute,
        budget=BudgetConfig(judge.budget_usd, judge.budget_usd_per_day, judge.budget_tokens),
        breaker_failures=judge.breaker_failures,
        breaker_seconds=judge.breaker_seconds,
    )


def build_panels(settings: Settings, memory: JudgeCache | None = None) -> ConfiguredPanels:
    """The configured judges over the environments that name them; ValueError for a name that no judge has."""
    return ConfiguredPanels(
        build_chat_judges(
            [build_judge_config(settings, name, judge) for name, judge in settings.judges.items()],
            {name: judge.fallback for name, judge in settings.judges.items() if judge.fallback is not None},
            memory,
        ),
        {name: environment.options for name, environment in settings.environments.items()},
        self_judging=[name for name, judge in settings.judges.items() if judge.allow_self_judge],
        judging_seconds=settings.judging_seconds,
    )


def build_retriever(settings: Settings, worlds: Retriever) -> Retriever:
    """The one that the settings choose. ValueError for one that is not there, and for a URL that must not be asked."""
    if settings.rag.retriever == "worlds":
        return worlds
    if settings.rag.retriever != "remote":
        return load_retriever(settings.rag.retriever)
    return RemoteRetriever(_build_remote_config(settings))


def _build_remote_config(settings: Settings) -> RemoteRetrieverConfig:
    remote = settings.rag.remote
    key = None if remote.api_key_env is None else settings.read_secret(remote.api_key_env)
    if remote.api_key_env is not None and key is None:
        raise ValueError(f"rag.remote.api_key_env names {remote.api_key_env}, which is not set")
    return RemoteRetrieverConfig(
        url=remote.url,
        api_key=key,
        deadline_seconds=settings.rag.deadline_seconds,
        retries=remote.retries,
        max_bytes=remote.max_bytes,
        bounds=AnswerBounds(remote.max_passages, remote.max_characters),
        allow_hosts=remote.allow_hosts,
        allow_private=remote.allow_private,
        max_concurrency=remote.max_concurrency,
    )
