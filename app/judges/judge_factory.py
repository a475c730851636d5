"""Builds judges from their configurations: chat judges with cache and fallback, reward models with a cache."""

from collections.abc import Mapping, Sequence

from app.domain.values import utc_now
from app.judges.caching_judge import CachingJudge
from app.judges.chat import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from app.judges.fallback import JudgeWithFallback
from app.judges.memory_cache import InProcessMemory
from app.judges.request_form import RequestForm
from app.judges.reward_models import RewardModelConfig, RewardModelJudge
from app.judges.server_traits import ServerTraits, build_request_form
from app.ports.judges import Judge, JudgeCache


def build_chat_judges(
    configs: Sequence[ChatJudgeConfig], fallbacks: Mapping[str, str], memory: JudgeCache | None
) -> dict[str, Judge]:
    """By name. `fallbacks` maps a judge to the one that is asked when it refuses or gives no valid answer; fallbacks do
    not chain. ValueError for a fallback that is not another judge. Without a `memory` nothing is cached."""
    memory = InProcessMemory(utc_now) if memory is None else memory
    traits: dict[tuple[str, str, RequestForm], ServerTraits] = {}
    remembering: dict[str, CachingJudge] = {}
    for config in configs:
        asked = (config.base_url, config.model, build_request_form(config))
        known = traits.setdefault(asked, ServerTraits(config))
        judge = ChatJudge(config, memory, has_fallback=config.name in fallbacks, traits=known)
        remembering[config.name] = CachingJudge(judge, memory)
    judges: dict[str, Judge] = dict(remembering)
    for name, fallback in fallbacks.items():
        if fallback not in remembering or fallback == name:
            raise ValueError(f"judges.{name}.fallback: {fallback!r} is not another configured judge")
        judges[name] = JudgeWithFallback(remembering[name], remembering[fallback])
    return judges


def build_reward_judges(configs: Sequence[RewardModelConfig], memory: JudgeCache | None) -> dict[str, Judge]:
    """By name. Without a `memory` nothing is cached."""
    memory = InProcessMemory(utc_now) if memory is None else memory
    return {config.server.name: CachingJudge(RewardModelJudge(config, memory), memory) for config in configs}
