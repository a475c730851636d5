"""Cost and time estimate of an evaluation. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.cli.prices import PolicyPrices
from app.domain.judging import Mode
from app.domain.token_estimate import estimate_tokens
from app.http.api.models import EnvironmentInfo, JudgeInfo
from app.inference.wire import Usage
from app.judges.listwise import count_parts, count_readings
from app.judges.ranks import list_pairings
from app.ports.judges import DEFAULT_PACE
from app.service.request_models import HandedOutTask

MEASURED: Final = 200
"""Prompts that are counted, evenly spaced; the total is extrapolated from them."""
SPEED: Final = 50.0
"""Assumed tokens per second of one request; 20 to 200 are common."""

Count = Callable[[HandedOutTask], int]
"""Counts the tokens of a task's prompt."""


@dataclass(frozen=True)
class JudgingEstimate:
    """Calls and cost of one judge for all groups."""

    name: str
    least: int
    most: int
    """Readings if all answers differ and none is gated; each may need one corrective retry."""
    usd_each: float | None
    """Average cost per reading so far; None without readings or prices."""

    @property
    def usd(self) -> float | None:
        return None if self.usd_each is None else self.most * self.usd_each


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
    judging: tuple[JudgingEstimate, ...]
    seconds: float
    """Maximum, at SPEED and without judging time."""

    @property
    def known_usd(self) -> float:
        return (self.usd or 0.0) + sum(judging.usd or 0.0 for judging in self.judging)


def estimate_prompt_tokens(task: HandedOutTask) -> int:
    """Estimate without a tokenizer: about four characters per token, plus a few tokens per message."""
    said = sum(estimate_tokens(message.content or "") + 4 for message in task.messages)
    return said + sum(estimate_tokens(json.dumps(tool.model_dump(mode="json"))) for tool in task.tools)


def estimate_cost(
    owed: Sequence[tuple[HandedOutTask, int]],
    max_tokens: int,
    concurrency: int,
    prices: PolicyPrices,
    judging: Sequence[JudgingEstimate],
    count: Count = estimate_prompt_tokens,
    counted: str = "at about four characters per token",
) -> CostEstimate:
    """`owed`: tasks with the number of attempts still to make."""
    spaced = owed[:: max(1, -(-len(owed) // MEASURED))]
    measured = [_estimate_usage(count(task), task.max_turns, attempts, max_tokens) for task, attempts in spaced]
    whole = len(owed) / max(1, len(spaced))
    usage = Usage(
        prompt_tokens=round(whole * sum(one.prompt_tokens for one in measured)),
        completion_tokens=max_tokens * sum(task.max_turns * attempts for task, attempts in owed),
    )
    calls = sum(task.max_turns * attempts for task, attempts in owed)
    return CostEstimate(
        tasks=len(owed),
        attempts=sum(attempts for _, attempts in owed),
        calls=calls,
        usage=usage,
        usd=prices.compute_cost(usage),
        counted=counted if len(spaced) == len(owed) else f"{counted}, on {len(spaced)} of the tasks",
        judging=tuple(judging),
        seconds=calls * max_tokens / SPEED / max(1, min(concurrency, sum(attempts for _, attempts in owed))),
    )


def _estimate_usage(prompt: int, turns: int, attempts: int, max_tokens: int) -> Usage:
    """Every turn's prompt includes the conversation so far."""
    each = turns * prompt + max_tokens * turns * (turns - 1) // 2
    return Usage(prompt_tokens=attempts * each, completion_tokens=attempts * turns * max_tokens)


def estimate_judging(
    environment: EnvironmentInfo, judges: Sequence[JudgeInfo], sizes: Sequence[int]
) -> tuple[JudgingEstimate, ...]:
    """Judging of groups of these sizes, by judge; empty where no model judges."""
    if environment.mode is None:
        return ()
    count = len(environment.judges)
    found = [estimate_readings(environment.mode, size, environment.votes or 1, count) for size in sizes]
    least, most = sum(low for low, _ in found), sum(high for _, high in found)
    asked = [judge for judge in judges if judge.name in environment.judges and judge.report is not None]
    return tuple(JudgingEstimate(judge.name, least, most, average_reading_usd(judge)) for judge in asked)


def average_reading_usd(judge: JudgeInfo) -> float | None:
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
    least, most = count_readings(max(1, judges))
    return chunks * (least // max(1, judges)), chunks * -(-most // max(1, judges))


def describe_estimate(estimate: CostEstimate) -> list[str]:
    """The estimate as text lines."""
    turns = "" if estimate.calls == estimate.attempts else f", at most {estimate.calls:,} requests over all turns"
    usage = estimate.usage
    lines = [
        f"{_format_count(estimate.tasks, 'task')}, {_format_count(estimate.attempts, 'answer')}{turns}",
        f"at most {usage.prompt_tokens:,} prompt tokens ({estimate.counted}) "
        f"and {usage.completion_tokens:,} completion tokens",
        "policy cost: "
        + ("unknown without prices" if estimate.usd is None else f"at most {_format_usd(estimate.usd)}"),
        *map(_describe_judging, estimate.judging),
        f"at most about {_format_duration(estimate.seconds)}, at {SPEED:.0f} tokens per second and request",
    ]
    return lines


def _describe_judging(judging: JudgingEstimate) -> str:
    readings = f"{judging.least:,}" if judging.least == judging.most else f"{judging.least:,} to {judging.most:,}"
    cost = (
        "unknown cost"
        if judging.usd is None
        else f"at most about {_format_usd(judging.usd)}, based on its average cost so far"
    )
    return f"judge {judging.name}: {readings} readings, {cost}"


def _format_count(number: int, of: str) -> str:
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def _format_usd(amount: float) -> str:
    return f"{amount:.2f} USD" if amount >= 0.1 or amount == 0 else f"{amount:.4f} USD"


def _format_duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{minutes:.0f} minutes" if minutes >= 1 else f"{seconds:.0f} seconds"
