"""What judging groups will cost: the readings of the real panels, with judges that answer at once and are not asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.digests import digest_of_text
from app.domain.judging import JudgeRequest
from app.domain.runs import ScoringOptions
from app.domain.values import FiniteNumber, Frozen
from app.judges.budget import TokenPrices, estimate_tokens
from app.judges.configuration import VerdictForm
from app.judges.offline import NAME as OFFLINE
from app.judges.panels import ConfiguredPanels
from app.judges.prompt import build_prompt
from app.judges.scripted import Script, ScriptedJudge, score_by_position
from app.ports.judges import Judge, Panels
from app.settings import Settings

ANSWER_TOKENS: Final[Mapping[VerdictForm, int]] = {"long": 145, "short": 65}
"""Completion tokens for each reply that a judge reads: an eighth of the medians in `docs/judge_reference.md`, *What a
reading takes*."""
BYTES_PER_TOKEN: Final = 4

JudgeGroup = Callable[[Panels], Awaitable[object]]
"""Has one group judged by these panels."""


class JudgingCost(Frozen):
    """One judge's share of a group, on average. `least`: where its readings agree; `most`: where they contradict each
    other. Corrections, retries and answers from the cache are not included."""

    judge: str
    calls: tuple[FiniteNumber, FiniteNumber]
    input_tokens: tuple[FiniteNumber, FiniteNumber]
    output_tokens: tuple[FiniteNumber, FiniteNumber]
    usd: tuple[FiniteNumber, FiniteNumber] | None
    """Null without prices."""


@dataclass(frozen=True)
class _Volume:
    calls: float
    input_tokens: float
    output_tokens: float


async def estimate_judging_cost(
    judges: Sequence[str], groups: Sequence[JudgeGroup], settings: Settings
) -> tuple[JudgingCost, ...]:
    """Per judge, from the prompts that it would get. The offline judge costs nothing and is left out. ValueError for a
    reward model, which gets no prompts."""
    for name in judges:
        if is_reward_model(name, settings):
            raise ValueError(f"judge {name!r} is a reward model: it reads each reply once, and is not estimated")
    defaults = {name: environment.options for name, environment in settings.environments.items()}
    priced = [name for name in judges if name != OFFLINE]
    forms = {name: settings.judges[name].verdict_form for name in priced}
    least = await _measure_volumes(forms, groups, defaults, _prefer_by_digest)
    most = await _measure_volumes(forms, groups, defaults, score_by_position)
    return tuple(_build_cost(name, least[name], most[name], find_prices(name, settings)) for name in priced)


def is_reward_model(judge: str, settings: Settings) -> bool:
    return judge in settings.judges and settings.judges[judge].kind == "reward_model"


def find_prices(judge: str, settings: Settings) -> TokenPrices:
    found = settings.judges.get(judge)
    if found is None:
        return TokenPrices()
    return TokenPrices(
        found.input_price_per_million, found.output_price_per_million, found.cached_input_price_per_million
    )


async def _measure_volumes(
    forms: Mapping[str, VerdictForm],
    groups: Sequence[JudgeGroup],
    defaults: Mapping[str, ScoringOptions],
    script: Script,
) -> dict[str, _Volume]:
    judges = {name: ScriptedJudge(script, name) for name in forms}
    known: dict[str, Judge] = dict(judges)
    served = {where: given for where, given in defaults.items() if set(given.judges) <= {*known, OFFLINE}}
    panels = ConfiguredPanels(known, served)
    await asyncio.gather(*(judge_group(panels) for judge_group in groups))
    return {name: _measure_volume(judge.requests, len(groups), forms[name]) for name, judge in judges.items()}


def _measure_volume(requests: Sequence[JudgeRequest], groups: int, form: VerdictForm) -> _Volume:
    prompts = [build_prompt(request, form) for request in requests]
    read = sum(len(request.candidates) for request in requests)
    tokens = sum(estimate_tokens((prompt.system, prompt.user), bytes_per_token=BYTES_PER_TOKEN) for prompt in prompts)
    return _Volume(len(requests) / groups, tokens / groups, read * ANSWER_TOKENS[form] / groups)


def _build_cost(name: str, least: _Volume, most: _Volume, prices: TokenPrices) -> JudgingCost:
    usd = [prices.compute_cost(round(one.input_tokens), round(one.output_tokens)) for one in (least, most)]
    return JudgingCost(
        judge=name,
        calls=(least.calls, most.calls),
        input_tokens=(least.input_tokens, most.input_tokens),
        output_tokens=(least.output_tokens, most.output_tokens),
        usd=(usd[0], usd[1]) if prices.are_known else None,
    )


def _prefer_by_digest(request: JudgeRequest, number: int) -> dict[str, float]:
    """The same order of the same texts however they are presented."""
    return {one.id: int(digest_of_text(one.text)[:8], 16) / 16**8 for one in request.candidates}
