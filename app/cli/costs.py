"""What a command says that it will take, before it spends anything: calls, tokens, dollars, time.

Three ways lead there. Prompts that this process can build are built and counted (`estimate_judging_cost`,
`estimate_questions`). Of stored groups the gateway knows what scoring them takes, and is asked for some of them
(`estimate_rescoring`). Of groups that are not there yet the numbers of readings are known, and what a reading has cost
on average (`estimate_evaluation_judging`). What a policy is asked is counted by its tasks' prompts
(`estimate_sampling`). Corrections and retries come on top of all of them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.cli.policies import GATEWAY, PolicyPrices
from app.domain.errors import Gone, InvalidRequest, NotFound, RequestRefused, UserError
from app.domain.judging import JudgeRequest, Mode
from app.domain.runs import ScoringOptions
from app.domain.values import FiniteNumber, Frozen, bound_tokens, digest_of_text, take_evenly
from app.http.api.models import EnvironmentInfo, JudgeInfo
from app.inference.wire import Usage
from app.judges.aggregation import list_pairings
from app.judges.chat_judge import Script, ScriptedJudge, score_by_position
from app.judges.configuration import BYTES_PER_TOKEN, TokenPrices, estimate_tokens
from app.judges.modes import count_parts, count_readings
from app.judges.offline import NAME as OFFLINE
from app.judges.panel import ConfiguredPanels
from app.judges.prompts import build_prompt
from app.ports.judges import DEFAULT_PACE, Judge, Panels
from app.service.requests import HandedOutTask
from app.service.rescoring import RescoreEstimate, RescoreRequest
from app.settings import Settings
from app.terminal.client import GatewayClient, Retrier

Range = tuple[FiniteNumber, FiniteNumber]
"""From where readings agree to where they contradict each other."""


class JudgingCost(Frozen):
    """What one judge takes, or all of them. Corrections, retries and answers from the cache are not included."""

    judge: str
    calls: Range
    input_tokens: Range | None
    """Null where nobody has counted them, as below."""
    output_tokens: Range | None
    usd: Range | None
    """Null without prices."""

    @property
    def most_usd(self) -> float | None:
        return None if self.usd is None else self.usd[1]

    def scale(self, factor: float) -> "JudgingCost":
        def scale(ends: Range | None) -> Range | None:
            return None if ends is None else (factor * ends[0], factor * ends[1])

        names = ("calls", "input_tokens", "output_tokens", "usd")
        return self.model_copy(update={name: scale(getattr(self, name)) for name in names})

    def describe(self, *, at_most: bool = False) -> str:
        """`at_most`: it is a bound."""
        about = "" if at_most else "about "
        words = f"{'at most ' if at_most else ''}{format_range(self.calls)} calls"
        words += f" to {self.judge}" if self.judge else ""
        if self.input_tokens is not None:
            words += f", {about}{format_range(self.input_tokens)} prompt tokens"
        if self.output_tokens is not None and self.output_tokens[1]:
            words += f" and {format_range(self.output_tokens)} completion tokens"
        return f"{words}, " + ("an unknown price" if self.usd is None else f"{about}{format_usd(*self.usd)}")


def format_range(ends: Range | None, digits: int = 0) -> str:
    if ends is None:
        return "not counted"
    low, high = (f"{end:,.{digits}f}" for end in ends)
    return low if low == high else f"{low} to {high}"


def format_usd(least: float, most: float | None = None) -> str:
    """Of small amounts more digits."""
    highest = least if most is None else most
    return f"{format_range((least, highest), 2 if highest >= 0.1 or highest == 0 else 4)} US dollars"


# By the prompts that judges would get.

ANSWER_TOKENS: Final = 65
"""Completion tokens for each reply that a judge reads: an eighth of the medians in `docs/judge_reference.md`, *What a
reading takes*."""

JudgeGroup = Callable[[Panels], Awaitable[object]]
"""Has one group judged by these panels."""


@dataclass(frozen=True)
class _Volume:
    calls: float
    input_tokens: float
    output_tokens: float


async def estimate_judging_cost(
    judges: Sequence[str], groups: Sequence[JudgeGroup], settings: Settings, reply_tokens: float | None = None
) -> tuple[JudgingCost, ...]:
    """Per judge, from the prompts that it would get, with replies of so many tokens where that is said. The offline
    judge costs nothing and is left out. UserError for a reward model, which gets no prompts."""
    for name in judges:
        if is_reward_model(name, settings):
            raise UserError(f"judge {name!r} is a reward model: it reads each reply once, and is not estimated")
    defaults = {name: environment.options for name, environment in settings.environments.items()}
    priced = [name for name in judges if name != OFFLINE]
    least = await _measure_volumes(priced, groups, defaults, _prefer_by_digest, reply_tokens)
    most = await _measure_volumes(priced, groups, defaults, score_by_position, reply_tokens)
    return tuple(_build_cost(name, least[name], most[name], find_prices(name, settings)) for name in priced)


def count_text_tokens(texts: Iterable[str]) -> float:
    """As prompts are counted, without what a message takes."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) / BYTES_PER_TOKEN


def is_reward_model(judge: str, settings: Settings) -> bool:
    return judge in settings.judges and settings.judges[judge].kind == "reward_model"


def find_prices(judge: str, settings: Settings) -> TokenPrices:
    config = settings.judges.get(judge)
    if config is None:
        return TokenPrices()
    return TokenPrices(
        config.input_price_per_million, config.output_price_per_million, config.cached_input_price_per_million
    )


async def _measure_volumes(
    names: Sequence[str],
    groups: Sequence[JudgeGroup],
    defaults: Mapping[str, ScoringOptions],
    script: Script,
    reply_tokens: float | None,
) -> dict[str, _Volume]:
    judges = {name: ScriptedJudge(script, name) for name in names}
    # Panels refuse defaults that name judges which they do not have.
    served = {name: options for name, options in defaults.items() if set(options.judges) <= {*judges, OFFLINE}}
    panels = ConfiguredPanels(dict[str, Judge](judges), served)
    await asyncio.gather(*(judge_group(panels) for judge_group in groups))
    return {name: _measure_volume(judge.requests, len(groups), reply_tokens) for name, judge in judges.items()}


def _measure_volume(requests: Sequence[JudgeRequest], groups: int, reply_tokens: float | None) -> _Volume:
    prompts = [build_prompt(request) for request in requests]
    read = [candidate.own or candidate.text for request in requests for candidate in request.candidates]
    replies = len(read)
    tokens: float = sum(estimate_tokens((prompt.system, prompt.user)) for prompt in prompts)
    if reply_tokens is not None:
        tokens += replies * reply_tokens - count_text_tokens(read)
    return _Volume(len(requests) / groups, tokens / groups, replies * ANSWER_TOKENS / groups)


def _build_cost(name: str, least: _Volume, most: _Volume, prices: TokenPrices) -> JudgingCost:
    usd = [prices.compute_cost(round(one.input_tokens), round(one.output_tokens)) for one in (least, most)]
    return JudgingCost(
        judge=name,
        calls=(least.calls, most.calls),
        input_tokens=(least.input_tokens, most.input_tokens),
        output_tokens=(least.output_tokens, most.output_tokens),
        usd=(usd[0], usd[1]) if prices.are_known else None,
    )


def estimate_questions(judge: str, requests: Sequence[JudgeRequest], settings: Settings) -> JudgingCost:
    """Of just these requests. A reward model reads the conversation once for each reply."""
    if is_reward_model(judge, settings):
        texts = [
            "".join(message.content or "" for message in request.conversation) + candidate.text
            for request in requests
            for candidate in request.candidates
        ]
        volume = _Volume(len(texts), estimate_tokens(texts), 0)
    else:
        volume = _measure_volume(requests, 1, None)
    return _build_cost(judge, volume, volume, find_prices(judge, settings))


def add_up_costs(costs: Sequence[JudgingCost]) -> JudgingCost:
    """Of all judges. What is not known of one is not known of all."""

    def add(ranges: Sequence[Range | None]) -> Range | None:
        pairs = [one for one in ranges if one is not None]
        known = sum(least for least, _ in pairs), sum(most for _, most in pairs)
        return known if len(pairs) == len(ranges) else None

    return JudgingCost(
        judge="",
        calls=(sum(cost.calls[0] for cost in costs), sum(cost.calls[1] for cost in costs)),
        input_tokens=add([cost.input_tokens for cost in costs]),
        output_tokens=add([cost.output_tokens for cost in costs]),
        usd=add([cost.usd for cost in costs]),
    )


def _prefer_by_digest(request: JudgeRequest, number: int) -> dict[str, float]:
    """The same order of the same texts however they are presented."""
    return {one.id: int(digest_of_text(one.text)[:8], 16) / 16**8 for one in request.candidates}


# By what the gateway says of stored groups.


@dataclass(frozen=True)
class RescoringSample:
    """Of some groups, spread over all."""

    groups: int
    missing: int
    """Groups that do not have this scoring."""
    cost: JudgingCost
    refused: RequestRefused | None
    """Why the gateway said nothing of some other group."""


async def estimate_rescoring(
    gateway: GatewayClient, patience: Retrier, group_ids: Sequence[str], request: RescoreRequest, most: int
) -> RescoringSample:
    """Of so many of the groups that still can be scored."""
    some: list[RescoreEstimate] = []
    refused: RequestRefused | None = None
    for group_id in take_evenly(group_ids, most):
        try:
            ask = partial(gateway.estimate_rescore, group_id, request)
            some.append(await patience.retry_until_answered(GATEWAY, ask))
        except (NotFound, Gone, InvalidRequest) as error:  # it is gone, or its text is not kept: others say enough
            refused = refused or error
    calls, tokens = (float(sum(getattr(one, name) for one in some)) for name in ("calls", "input_tokens"))
    prices = [one.cost_usd for one in some if one.cost_usd is not None]
    usd = sum(prices) if len(prices) == len(some) else None
    cost = JudgingCost(
        judge="",
        calls=(calls, calls),
        input_tokens=(tokens, tokens),
        output_tokens=None,
        usd=None if usd is None else (usd, usd),
    )
    return RescoringSample(len(some), sum(not one.stored for one in some), cost, refused)


# By what an evaluation asks.

_MEASURED: Final = 200
"""Prompts that are counted, evenly spaced; the total is extrapolated from them."""
_TOKENS_PER_SECOND: Final = 50.0
"""Assumed tokens per second of one request; 20 to 200 are common."""

_CountTokens = Callable[[HandedOutTask], int]
"""Counts the tokens of a task's prompt."""


@dataclass(frozen=True)
class CostEstimate:
    tasks: int
    attempts: int
    calls: int
    """Maximum policy requests: episodes may end early."""
    usage: Usage
    """Maximum tokens, without observations between turns."""
    usd: float | None
    counted: str
    """How prompt tokens were counted."""
    judging: tuple[JudgingCost, ...]
    seconds: float
    """Maximum, at `_TOKENS_PER_SECOND` and without judging time."""

    @property
    def most_usd(self) -> float | None:
        """None where a price is not known."""
        parts = [self.usd if self.calls else 0.0, *(judging.most_usd for judging in self.judging)]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def bound_prompt_tokens(task: HandedOutTask) -> int:
    """Without a tokenizer: no known one makes more tokens of the task."""
    spoken = sum(bound_tokens(message.model_dump_json()) for message in task.messages)
    return spoken + sum(bound_tokens(json.dumps(tool.model_dump(mode="json"))) for tool in task.tools)


def estimate_sampling(
    owed: Sequence[tuple[HandedOutTask, int]],
    max_tokens: int,
    concurrency: int,
    prices: PolicyPrices,
    judging: Sequence[JudgingCost],
    count: _CountTokens = bound_prompt_tokens,
    counted: str = "without a tokenizer",
) -> CostEstimate:
    """`owed`: tasks with the number of attempts still to make."""
    spaced = owed[:: max(1, -(-len(owed) // _MEASURED))]
    measured = [_estimate_usage(count(task), task.max_turns, attempts, max_tokens) for task, attempts in spaced]
    whole = len(owed) / max(1, len(spaced))
    calls = sum(task.max_turns * attempts for task, attempts in owed)
    attempts = sum(attempts for _, attempts in owed)
    usage = Usage(
        prompt_tokens=round(whole * sum(one.prompt_tokens for one in measured)),
        completion_tokens=max_tokens * calls,
    )
    return CostEstimate(
        tasks=len(owed),
        attempts=attempts,
        calls=calls,
        usage=usage,
        usd=prices.compute_cost(usage),
        counted=counted if len(spaced) == len(owed) else f"{counted}, on {len(spaced)} of the tasks",
        judging=tuple(judging),
        seconds=calls * max_tokens / _TOKENS_PER_SECOND / max(1, min(concurrency, attempts)),
    )


def _estimate_usage(prompt: int, turns: int, attempts: int, max_tokens: int) -> Usage:
    """Every turn's prompt includes the conversation so far."""
    each = turns * prompt + max_tokens * turns * (turns - 1) // 2
    return Usage(prompt_tokens=attempts * each, completion_tokens=attempts * turns * max_tokens)


def estimate_evaluation_judging(
    environment: EnvironmentInfo, judges: Sequence[JudgeInfo], sizes: Sequence[int]
) -> tuple[JudgingCost, ...]:
    """Judging of groups of these sizes, by judge; empty where no model judges."""
    if environment.mode is None:
        return ()
    count = len(environment.judges)
    readings = [estimate_readings(environment.mode, size, environment.votes or 1, count) for size in sizes]
    least, most = sum(low for low, _ in readings), sum(high for _, high in readings)
    asked = [judge for judge in judges if judge.name in environment.judges and judge.report is not None]
    return tuple(_multiply_reading(judge, least, most) for judge in asked)


def _multiply_reading(judge: JudgeInfo, least: int, most: int) -> JudgingCost:
    """As if each reading took what one of this judge has taken on average."""
    each = _average_reading_usd(judge)
    usd = None if each is None else (most * each, most * each)
    return JudgingCost(judge=judge.name, calls=(least, most), input_tokens=None, output_tokens=None, usd=usd)


def _average_reading_usd(judge: JudgeInfo) -> float | None:
    """None without readings or prices."""
    spent = None if judge.report is None else judge.report.spent
    return None if spent is None or not spent.readings or not spent.cost_usd else spent.cost_usd / spent.readings


def estimate_readings(mode: Mode, size: int, votes: int, judges: int) -> tuple[int, int]:
    """Minimum and maximum readings of a group of `size` distinct answers by one of `judges`."""
    if size <= 1:
        alone = size * (votes if mode == "pointwise" else 1)
        return alone, alone
    if mode == "pointwise":
        return size * votes, size * votes
    if mode == "pairwise":
        pairs = 2 * votes * len(list_pairings(size))
        return pairs, pairs
    largest = DEFAULT_PACE.largest_group
    chunks = 1 if size <= largest else len(list_pairings(count_parts(size, largest)))
    # Readings of a panel are dealt out among its judges.
    least, most = count_readings(max(1, judges))
    return chunks * (least // max(1, judges)), chunks * -(-most // max(1, judges))


def describe_estimate(estimate: CostEstimate) -> list[str]:
    """The estimate as text lines."""
    turns = "" if estimate.calls == estimate.attempts else f", at most {estimate.calls:,} requests over all turns"
    usage = estimate.usage
    return [
        f"{_format_count(estimate.tasks, 'task')}, {_format_count(estimate.attempts, 'answer')}{turns}",
        f"at most {usage.prompt_tokens:,} prompt tokens ({estimate.counted}) "
        f"and {usage.completion_tokens:,} completion tokens",
        "policy cost: " + ("unknown without prices" if estimate.usd is None else f"at most {format_usd(estimate.usd)}"),
        *map(_describe_judging, estimate.judging),
        f"at most about {format_duration(estimate.seconds)}, at {_TOKENS_PER_SECOND:.0f} tokens per second and request",
    ]


def _describe_judging(judging: JudgingCost) -> str:
    if judging.most_usd is None:
        return f"judge {judging.judge}: {format_range(judging.calls)} readings, an unknown price"
    price = f"at most about {format_usd(judging.most_usd)}, based on its average cost so far"
    return f"judge {judging.judge}: {format_range(judging.calls)} readings, {price}"


def _format_count(number: int, of: str) -> str:
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def format_duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 1:
        return f"{hours:.1f} hours"
    return _format_count(round(minutes), "minute") if minutes >= 1 else _format_count(round(seconds), "second")
