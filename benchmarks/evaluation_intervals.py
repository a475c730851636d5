"""How often the intervals of an evaluation hold the true mean: simulated models whose mean is known."""

import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from app.evaluation.report import MeanEstimate, Resampler, compute_quantile
from benchmarks.results import read_arguments

EVALUATIONS: Final = 1_000
RESAMPLES: Final = 500
TASKS: Final = (10, 20, 50, 200)
ATTEMPTS: Final = 4

Rewards = Callable[[random.Random], list[float]]
"""Of the attempts at one task."""


def passing(alpha: float, beta: float, attempts: int = ATTEMPTS) -> Rewards:
    """0 or 1, with a pass rate of the task's own."""

    def draw(chance: random.Random) -> list[float]:
        rate = chance.betavariate(alpha, beta)
        return [float(chance.random() < rate) for _ in range(attempts)]

    return draw


def judged(chance: random.Random) -> list[float]:
    level = chance.gauss(0.6, 0.12)
    return [min(1.0, max(0.0, round((level + chance.gauss(0.0, 0.1)) * 32) / 32)) for _ in range(ATTEMPTS)]


MODELS: Final[dict[str, tuple[Rewards, float]]] = {
    "passes 9 of 10, one attempt": (passing(9, 1, attempts=1), 0.9),
    "passes 8 of 10": (passing(4, 1), 0.8),
    "right or hopeless": (passing(0.3, 0.1), 0.75),
    "judged": (judged, fmean(reward for seed in range(200_000) for reward in judged(random.Random(seed)))),
}


def held(estimates: Sequence[MeanEstimate], true: float) -> float:
    return fmean((each.low or 0.0) - 1e-9 <= true <= (each.high or 0.0) + 1e-9 for each in estimates)


def plain(resampler: Resampler, values: Sequence[float]) -> MeanEstimate:
    means = resampler.resample_means(values)
    return MeanEstimate(
        value=fmean(values), low=compute_quantile(means, 0.025), high=compute_quantile(means, 0.975), tasks=len(values)
    )


def main() -> None:
    """For each model and number of tasks: ours, plain percentiles, and ours with attempts taken for tasks."""
    print("| model | tasks | over tasks | plain percentiles | over attempts |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (rewards, true) in MODELS.items():
        for tasks in TASKS:
            chance = random.Random(f"{name} {tasks}")
            ours, percentiles, attempts = [], [], []
            for seed in range(EVALUATIONS):
                drawn = [rewards(chance) for _ in range(tasks)]
                resampler, means = Resampler(seed, RESAMPLES), [fmean(each) for each in drawn]
                ours.append(resampler.estimate(means))
                percentiles.append(plain(resampler, means))
                attempts.append(resampler.estimate([reward for each in drawn for reward in each]))
            shares = " | ".join(f"{100 * held(found, true):.1f} %" for found in (ours, percentiles, attempts))
            print(f"| {name} | {tasks} | {shares} |", flush=True)


if __name__ == "__main__":
    read_arguments()
    main()
