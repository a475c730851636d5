"""Chat judges from their configurations: each remembers what it said, some have another behind them."""

from collections.abc import Mapping, Sequence

from app.domain.values import utc_now
from app.judges.chat import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from app.judges.fallback import JudgeWithFallback
from app.judges.forgetful import Forgetful
from app.judges.remembered import RememberingJudge
from app.ports.judges import Judge, JudgementMemory


def chat_judges(
    configs: Sequence[ChatJudgeConfig], fallbacks: Mapping[str, str], memory: JudgementMemory | None
) -> dict[str, Judge]:
    """By name. `fallbacks` names, for some, the judge that is asked where they refuse or give nothing of use; its own
    fallback is not asked then. ValueError for one that is no other judge. Without a `memory` all is asked anew."""
    memory = Forgetful(utc_now) if memory is None else memory
    remembering = {
        config.name: RememberingJudge(ChatJudge(config, memory, has_fallback=config.name in fallbacks), memory)
        for config in configs
    }
    judges: dict[str, Judge] = dict(remembering)
    for name, fallback in fallbacks.items():
        if fallback not in remembering or fallback == name:
            raise ValueError(f"judges.{name}.fallback names {fallback}, which is no other judge")
        judges[name] = JudgeWithFallback(remembering[name], remembering[fallback])
    return judges
