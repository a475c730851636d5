"""Measurements of an environment: speed, sizes and variety of tasks."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.domain.tasks import Completion
from app.domain.token_estimate import estimate_tokens
from app.toolkit.conformance.findings import ConformanceFigures, Spread
from app.toolkit.conformance.hostile_texts import build_junk
from app.toolkit.conformance.strategies import measure_strategies
from app.toolkit.conformance.subject import CheckSubject, NumberedTask, format_prompt

TIMED: Final = 300
"""Number of tasks and completions timed for a rate."""


@dataclass(frozen=True)
class Timings:
    """Seconds per item, as processor time and wall time."""

    processor: tuple[float, ...]
    clock: tuple[float, ...]

    @property
    def rate(self) -> float:
        return len(self.processor) / max(sum(self.processor), 1e-9)


async def measure_environment(subject: CheckSubject) -> ConformanceFigures:
    environment = subject.environment
    params = environment.Params()
    train = subject.make_tasks("train")
    golds = [(one, gold) for one in train if (gold := environment.gold(one.task)) is not None]
    timed = await _time_scores(subject, golds[:TIMED])
    rubbish = await _time_scores(subject, _collect_junk(subject, train))
    prompts = [format_prompt(one.task) for one in train]
    right = Counter(gold.model_dump_json() for _, gold in golds)
    met = [] if subject.is_judged else await subject.score_foreign_answers()
    return ConformanceFigures(
        tasks_per_second=_time_tasks(subject).rate,
        gold_scores_per_second=timed.rate if golds else None,
        junk_scores_per_second=rubbish.rate,
        score_p99_ms=_compute_p99_ms((*timed.processor, *rubbish.processor)),
        score_p99_ms_by_the_clock=_compute_p99_ms((*timed.clock, *rubbish.clock)),
        train_size=environment.size("train", params),
        test_size=environment.size("test", params),
        looked_at=len(train),
        distinct_prompts=len(set(prompts)),
        prompt_characters=_compute_spread([len(prompt) for prompt in prompts]),
        prompt_tokens=_compute_spread([estimate_tokens(prompt) for prompt in prompts]),
        commonest_gold=max(right.values()) / len(golds) if golds else None,
        strangers_paid=sum(one.reward != 0.0 for one in met) / len(met) if met else None,
        chance=environment.chance,
        strategies=await measure_strategies(subject),
    )


def _time_tasks(subject: CheckSubject) -> Timings:
    """Times tasks beyond the checked ones where possible, to avoid caches."""
    params = subject.environment.Params()
    size = subject.environment.size("train", params)
    first = subject.depth.tasks if size is None else max(0, size - TIMED)
    spent: list[float] = []
    for index in range(first, first + TIMED if size is None else size):
        began = time.process_time()
        subject.environment.task("train", index, params)
        spent.append(time.process_time() - began)
    return Timings(tuple(spent), ())


def _collect_junk(subject: CheckSubject, train: Sequence[NumberedTask]) -> list[tuple[NumberedTask, Completion]]:
    """Junk replies of each kind in turn."""
    found: list[tuple[NumberedTask, Completion]] = []
    for place, one in enumerate(train[: subject.depth.sample if subject.is_judged else TIMED]):
        texts = list(build_junk(one.task, subject.environment.gold(one.task)).values())
        found.append((one, Completion(text=texts[place % len(texts)])))
    return found


async def _time_scores(subject: CheckSubject, replies: Sequence[tuple[NumberedTask, Completion]]) -> Timings:
    processor: list[float] = []
    clock: list[float] = []
    for one, reply in replies:
        spent, began = time.process_time(), time.perf_counter()
        await subject.score(one, [reply])
        processor.append(time.process_time() - spent)
        clock.append(time.perf_counter() - began)
    return Timings(tuple(processor), tuple(clock))


def _compute_p99_ms(seconds: Sequence[float]) -> float:
    """99th percentile in milliseconds; 0 without values."""
    ordered = sorted(seconds) or [0.0]
    return 1_000 * ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]


def _compute_spread(numbers: Sequence[int]) -> Spread:
    return Spread(least=min(numbers), median=round(median(numbers)), most=max(numbers))
