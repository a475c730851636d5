"""What the settings name, made: judges, what is asked for the passages of a prompt, and who may call."""

import importlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.domain.access import compute_key_digest, generate_key
from app.domain.budgets import BudgetConfig
from app.domain.model_names import find_same_model
from app.domain.runs import ScoringOptions
from app.http.web.api_keys import KeyRing
from app.http.web.browser_protection import is_loopback
from app.inference.chat_template import ChatTemplate
from app.judges.budget import TokenPrices
from app.judges.configuration import ChatJudgeConfig
from app.judges.judge_factory import build_chat_judges, build_reward_judges
from app.judges.panels import ConfiguredPanels
from app.judges.reward_models import RewardModelConfig
from app.judges.rubric_files import load_rubric
from app.main.discovery import load_retriever
from app.main.policies import read_server_key
from app.ports.health import AlarmSink
from app.ports.judges import JudgeCache, Panels, ReadingPace
from app.ports.retrieval import Retriever
from app.ports.tracing import Tracer
from app.rag.remote.contract import AnswerBounds
from app.rag.remote.retriever import RemoteRetriever, RemoteRetrieverConfig
from app.settings import EnvironmentSettings, JudgeSettings, Settings
from app.store.store import Store
from app.telemetry.alarm_webhook import AlarmWebhook

log = logging.getLogger(__name__)


def build_judge_config(settings: Settings, name: str, judge: JudgeSettings) -> ChatJudgeConfig:
    """ValueError for a key that cannot be had, a route of Azure that does not exist, and a budget without prices."""
    key = read_server_key(settings, f"judges.{name}", judge)
    prices = TokenPrices(
        judge.input_price_per_million, judge.output_price_per_million, judge.cached_input_price_per_million
    )
    if not prices.are_known and (judge.budget_usd is not None or judge.budget_usd_per_day is not None):
        raise ValueError(f"judges.{name} has a budget in US dollars and no prices")
    return ChatJudgeConfig(
        name=name,
        base_url=judge.base_url,
        model=judge.model,
        api_key=key,
        extra_headers=judge.extra_headers,
        api_version=judge.api_version,
        deadline_seconds=judge.deadline_seconds,
        queue_seconds=judge.queue_seconds,
        temperature=judge.temperature,
        seed=judge.seed,
        extra_body=judge.extra_body,
        max_output_tokens=judge.max_output_tokens,
        token_parameter=judge.token_parameter,
        json_mode=judge.json_mode,
        verdict_form=judge.verdict_form,
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


def build_any_config(settings: Settings, name: str, judge: JudgeSettings) -> ChatJudgeConfig | RewardModelConfig:
    """ValueError as for a chat judge, and for a chat template that cannot be read."""
    server = build_judge_config(settings, name, judge)
    if judge.kind == "chat" or judge.route is None:
        return server
    try:
        template = ChatTemplate.read(judge.chat_template) if isinstance(judge.chat_template, Path) else None
    except (ValueError, OSError) as error:
        raise ValueError(f"judges.{name}.chat_template: {error}") from None
    return RewardModelConfig(
        replace(server, max_output_tokens=0), judge.route, template, judge.reward_center, judge.reward_scale
    )


def build_panels(settings: Settings, memory: JudgeCache | None = None) -> ConfiguredPanels:
    """The configured judges over the environments that name them; ValueError for a name that no judge has, and for a
    rubric that cannot be used."""
    configs = [build_any_config(settings, name, judge) for name, judge in settings.judges.items()]
    fallbacks = {name: judge.fallback for name, judge in settings.judges.items() if judge.fallback is not None}
    chatting = build_chat_judges([one for one in configs if isinstance(one, ChatJudgeConfig)], fallbacks, memory)
    rewarding = build_reward_judges([one for one in configs if isinstance(one, RewardModelConfig)], memory)
    return ConfiguredPanels(
        {**chatting, **rewarding},
        {name: build_options(environment) for name, environment in settings.environments.items()},
        self_judging=[name for name, judge in settings.judges.items() if judge.allow_self_judge],
        judging_seconds=settings.judging_seconds,
    )


def build_options(environment: EnvironmentSettings) -> ScoringOptions:
    """With the rubric of its file. ValueError with file, line and key of the first error in it."""
    if environment.rubric is None:
        return environment.options
    return environment.options.model_copy(update={"rubric": load_rubric(environment.rubric)})


def find_shadow_judges(settings: Settings, panels: Panels) -> dict[str, str]:
    """By environment. ValueError for a judge that is not there, or that is of the model of one that scores there."""
    chosen = {name: given.shadow_judge for name, given in settings.environments.items() if given.shadow_judge}
    for name, shadow in chosen.items():
        where = f"environments.{name}.shadow_judge"
        if shadow not in panels.judges:
            raise ValueError(f"{where}: there is no judge {shadow!r}")
        training = panels.resolve_options(name, ScoringOptions()).judges
        models = {judge: panels.judges[judge].model for judge in training}
        if (judge := find_same_model(panels.judges[shadow].model, models)) is not None:
            raise ValueError(f"{where}: {shadow!r} is of the same model as {judge!r}, which scores there")
    return chosen


def build_alarm_sink(settings: Settings) -> AlarmSink | None:
    """ValueError for a secret that is not there."""
    health = settings.health
    if health.webhook is None:
        return None
    secret = None if health.webhook_secret_env is None else settings.read_secret(health.webhook_secret_env)
    if health.webhook_secret_env is not None and secret is None:
        raise ValueError(f"health.webhook_secret_env names {health.webhook_secret_env}, which is not set")
    return AlarmWebhook(health.webhook, secret, health.webhook_seconds)


def build_tracer(settings: Settings, version: str) -> Tracer | None:
    """Imported here alone: the SDK takes a fifth of a second, and most services have no collector."""
    if not settings.wants_traces:
        return None
    try:
        build = importlib.import_module("app.telemetry.open_telemetry").OpenTelemetryTracer
    except ModuleNotFoundError as error:
        log.warning("no traces are sent, since %s is not installed: it is of the extra `tracing`", error.name)
        return None
    tracer: Tracer = build(version, sends_traceparent=settings.tracing.send_traceparent)
    return tracer


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


def create_key_ring(settings: Settings, store: Store, announce: Callable[[str], None]) -> KeyRing:
    """Who may call. Named keys are in the store. On a host other than loopback there is a key unless the settings say
    `anonymous`; one that was made here is announced once, then only its digest is known."""
    known = store.keys.load_blocking()
    if settings.api_key is not None:
        digests = (compute_key_digest(settings.api_key.get_secret_value()),)
        return KeyRing(digests, False, store.keys, known=known)
    if settings.anonymous:
        return KeyRing([], anonymous=True)
    if is_loopback(settings.host):
        return KeyRing([], True, store.keys, known=known)
    if not known.generated and not known.named:
        key = generate_key()
        store.keys.add(compute_key_digest(key))
        announce(key)
        known = replace(known, generated=(compute_key_digest(key),))
    return KeyRing(known.generated, False, store.keys, known=known, owner="generated")
