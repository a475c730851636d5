"""Measures what strategies earn that do not do the task: learnt on one half of the tasks, paid on the other."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.domain.intervals import Z_99, Proportion
from app.ports.environment import Environment
from app.toolkit.conformance.attempts import (
    CONTROL,
    GUESSES,
    STRATEGIES,
    AttemptBuilder,
    AttemptName,
    TaughtTask,
    build_taught_task,
    list_groups,
)
from app.toolkit.conformance.findings import StrategyFigure
from app.toolkit.conformance.subject import CheckSubject
from app.toolkit.seeded import SeededRandom

MORE_PAID: Final = 0.5
"""A control that earns more shows that no answer was asked for."""
LUCK: Final = 0.02
"""What guesses may earn without a statement: even where every answer is another one, some are right by luck."""

_Rewards = Mapping[AttemptName, Mapping[str, Sequence[float]]]
"""By attempt and group."""


async def measure_strategies(subject: CheckSubject) -> tuple[StrategyFigure, ...]:
    """By strategy and group. Nothing for judged environments: `judges check` measures judges. Cached."""
    if subject.strategies is None:
        subject.strategies = (
            () if subject.is_judged else tuple([*_sum_up(subject.environment, *await _score_all(subject))])
        )
    return subject.strategies


def find_allowed_share(environment: Environment, strategy: str) -> float | None:
    """What the environment states for a strategy; None where there is nothing to measure."""
    shares = {stated.strategy: stated.share for stated in environment.free_rewards}
    luck = max(environment.chance, LUCK) if strategy in GUESSES else 0.0
    return shares.get(strategy, luck)


async def _score_all(subject: CheckSubject) -> tuple[_Rewards, _Rewards]:
    tasks = [build_taught_task(subject.environment, one) for one in subject.make_tasks("train")]
    halves: tuple[list[TaughtTask], list[TaughtTask]] = ([], [])
    for task in tasks:
        halves[SeededRandom(f"half of {task.one}").below(2)].append(task)
    taught, paid = halves
    builder = AttemptBuilder(subject.environment, taught)
    count = subject.depth.guessed_programs if subject.environment.runs_programs else subject.depth.guessed
    return await _score_attempts(subject, builder, taught[:count]), await _score_attempts(
        subject, builder, paid[:count]
    )


async def _score_attempts(subject: CheckSubject, builder: AttemptBuilder, tasks: Sequence[TaughtTask]) -> _Rewards:
    rewards: dict[AttemptName, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        made = {name: one for name, one in builder.build(task).items() if _is_measured(subject.environment, name[0])}
        scores = await subject.score(task.one, [*made.values()])
        earned = {name: score.reward for name, score in zip(made, scores, strict=True) if score.reward is not None}
        asked_nothing = earned.get(CONTROL, 0.0) > MORE_PAID
        for name, reward in earned.items():
            if name[0] in GUESSES or not asked_nothing:
                for group in list_groups(subject.environment, task.one):
                    rewards[name][group].append(reward)
    return rewards


def _is_measured(environment: Environment, strategy: str) -> bool:
    return find_allowed_share(environment, strategy) is not None


def _sum_up(environment: Environment, learnt: _Rewards, paid: _Rewards) -> Iterator[StrategyFigure]:
    groups = dict.fromkeys(group for by_group in paid.values() for group in by_group)
    for strategy in STRATEGIES:
        for group in groups:
            best = _choose_variant(strategy, group, learnt)
            rewards = paid.get(best, {}).get(group, []) if best else []
            share = Proportion(sum(rewards), len(rewards))
            if best and (value := share.value) is not None and (interval := share.compute_interval(Z_99)):
                low, high = interval
                yield StrategyFigure(
                    strategy=strategy,
                    variant=best[1],
                    group=group,
                    tasks=share.trials,
                    paid=value,
                    low=low,
                    high=high,
                    allowed=find_allowed_share(environment, strategy) or 0.0,
                )


def _choose_variant(strategy: str, group: str, learnt: _Rewards) -> AttemptName | None:
    """The one that surely earns most, by the lower end of its interval, then by its mean."""
    found = {
        name: Proportion(sum(by_group[group]), len(by_group[group]))
        for name, by_group in learnt.items()
        if name[0] == strategy and group in by_group
    }
    return max(found, key=lambda name: ((found[name].interval or (0.0,))[0], found[name].value or 0.0), default=None)
