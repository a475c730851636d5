"""Measurements of an environment: speed, sizes and variety of tasks."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.domain.tasks import Completion
from app.domain.token_estimate import tokens
from app.toolkit.conformance.findings import Figures, Spread
from app.toolkit.conformance.subject import Numbered, Subject, prompt_of
from app.toolkit.conformance.texts import junk

TIMED: Final = 300
"""Number of tasks and completions timed for a rate."""


@dataclass(frozen=True)
class Times:
    """Seconds per item, as processor time and wall time."""

    processor: tuple[float, ...]
    clock: tuple[float, ...]

    @property
    def rate(self) -> float:
        return len(self.processor) / max(sum(self.processor), 1e-9)


async def measured(subject: Subject) -> Figures:
    environment = subject.environment
    params = environment.Params()
    train = subject.tasks("train")
    golds = [(one, gold) for one in train if (gold := environment.gold(one.task)) is not None]
    timed = await _scored(subject, golds[:TIMED])
    rubbish = await _scored(subject, _rubbish(subject, train))
    prompts = [prompt_of(one.task) for one in train]
    right = Counter(gold.model_dump_json() for _, gold in golds)
    met = [] if subject.judged else await subject.strangers()
    return Figures(
        tasks_per_second=_making(subject).rate,
        gold_scores_per_second=timed.rate if golds else None,
        junk_scores_per_second=rubbish.rate,
        score_p99_ms=_p99((*timed.processor, *rubbish.processor)),
        score_p99_ms_by_the_clock=_p99((*timed.clock, *rubbish.clock)),
        train_size=environment.size("train", params),
        test_size=environment.size("test", params),
        looked_at=len(train),
        distinct_prompts=len(set(prompts)),
        prompt_characters=_spread([len(prompt) for prompt in prompts]),
        prompt_tokens=_spread([tokens(prompt) for prompt in prompts]),
        commonest_gold=max(right.values()) / len(golds) if golds else None,
        strangers_paid=sum(one.reward != 0.0 for one in met) / len(met) if met else None,
        chance=environment.chance,
    )


def _making(subject: Subject) -> Times:
    """Times tasks beyond the checked ones where possible, to avoid caches."""
    params = subject.environment.Params()
    size = subject.environment.size("train", params)
    first = subject.depth.tasks if size is None else max(0, size - TIMED)
    spent: list[float] = []
    for index in range(first, first + TIMED if size is None else size):
        began = time.process_time()
        subject.environment.task("train", index, params)
        spent.append(time.process_time() - began)
    return Times(tuple(spent), ())


def _rubbish(subject: Subject, train: Sequence[Numbered]) -> list[tuple[Numbered, Completion]]:
    """Junk replies of each kind in turn."""
    found: list[tuple[Numbered, Completion]] = []
    for place, one in enumerate(train[: subject.depth.sample if subject.judged else TIMED]):
        texts = list(junk(one.task, subject.environment.gold(one.task)).values())
        found.append((one, Completion(text=texts[place % len(texts)])))
    return found


async def _scored(subject: Subject, replies: Sequence[tuple[Numbered, Completion]]) -> Times:
    processor: list[float] = []
    clock: list[float] = []
    for one, reply in replies:
        spent, began = time.process_time(), time.perf_counter()
        await subject.score(one, [reply])
        processor.append(time.process_time() - spent)
        clock.append(time.perf_counter() - began)
    return Times(tuple(processor), tuple(clock))


def _p99(seconds: Sequence[float]) -> float:
    """99th percentile in milliseconds; 0 without values."""
    ordered = sorted(seconds) or [0.0]
    return 1_000 * ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]


def _spread(numbers: Sequence[int]) -> Spread:
    return Spread(least=min(numbers), median=round(median(numbers)), most=max(numbers))
