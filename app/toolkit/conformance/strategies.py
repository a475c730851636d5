"""What a policy earns without doing the task, and which right answers are refused; both compared with what is stated.

Guesses are chosen on one half of the tasks and paid on the other, so that what they earn is no luck. What begins with a
right answer learns nothing, so all tasks count. A right answer in another spelling or layout has to earn 1.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.values import Z_95, Z_99, Proportion
from app.ports.environment import Environment, FreeReward, RefusedSpelling
from app.toolkit.conformance.attempts import (
    ALL_TASKS,
    BY_LUCK,
    CONTROL,
    GUESSES,
    STRATEGIES,
    AttemptBuilder,
    AttemptName,
    TaughtTask,
    build_taught_task,
    list_groups,
)
from app.toolkit.conformance.probes import HONEST, Expected
from app.toolkit.conformance.subject import (
    CheckSubject,
    ConformanceFinding,
    MeasuredRewards,
    NumberedTask,
    RefusalFigure,
    StrategyFigure,
)
from app.toolkit.seeded import SeededRandom

# Scoring the attempts: by attempt and group, what each task paid or, of honest ones, whether it refused

_MORE_PAID: Final = 0.5
"""A control that earns more shows that no answer was asked for."""

_Rewards = Mapping[AttemptName, Mapping[str, Sequence[float]]]
"""By attempt and group. Of honest attempts 1 is a refusal, of those that must earn less 1 is full payment."""


@dataclass(frozen=True)
class ScoredAttempts:
    learnt: _Rewards
    """On the tasks from which guesses learn."""
    paid: _Rewards

    def get_all(self, name: AttemptName, group: str = ALL_TASKS) -> Sequence[float]:
        return [reward for half in (self.learnt, self.paid) for reward in half.get(name, {}).get(group, ())]

    @property
    def names(self) -> Sequence[AttemptName]:
        return [*dict.fromkeys([*self.learnt, *self.paid])]

    def count(self, strategy: str) -> Proportion:
        """Of all texts of a strategy: those that were paid, or refused if they are honest."""
        rewards = [reward for name in self.names if name[0] == strategy for reward in self.get_all(name)]
        return Proportion(sum(reward > 0 for reward in rewards), len(rewards))


async def measure_rewards(subject: CheckSubject) -> MeasuredRewards:
    """Nothing for judged environments: `judges check` measures judges. Cached."""
    if subject.measured is None:
        subject.measured = (
            MeasuredRewards()
            if subject.is_judged
            else _sum_up(subject.environment, await score_attempts(subject, subject.make_tasks("train")))
        )
    return subject.measured


async def score_attempts(subject: CheckSubject, tasks: Sequence[NumberedTask]) -> ScoredAttempts:
    """The attempts at as many of the tasks as the depth of the subject says."""
    halves: tuple[list[TaughtTask], list[TaughtTask]] = ([], [])
    for task in (build_taught_task(subject.environment, one) for one in tasks):
        halves[SeededRandom(f"half of {task.one}").below(2)].append(task)
    taught, paid = halves
    builder = AttemptBuilder(subject.environment, taught)
    count = subject.depth.guessed_programs if subject.environment.runs_programs else subject.depth.guessed
    return ScoredAttempts(
        learnt=await _score_half(subject, builder, taught[:count]),
        paid=await _score_half(subject, builder, paid[:count]),
    )


async def _score_half(subject: CheckSubject, builder: AttemptBuilder, tasks: Sequence[TaughtTask]) -> _Rewards:
    rewards: dict[AttemptName, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        made = {name: one for name, one in builder.build(task).items() if is_measured(subject.environment, name[0])}
        scores = await subject.score(task.one, [one.completion for one in made.values()])
        earned = {
            name: reward
            for (name, attempt), score in zip(made.items(), scores, strict=True)
            if (reward := _read_reward(attempt.expected, score.reward)) is not None
        }
        # Where a reply without what was asked for is paid, a changed right answer proves nothing.
        asked_nothing = earned.get(CONTROL, 0.0) > _MORE_PAID
        for name, reward in earned.items():
            if name[0] in GUESSES or not asked_nothing:
                for group in list_groups(subject.environment, task.one):
                    rewards[name][group].append(reward)
    return rewards


def _read_reward(expected: Expected, reward: float | None) -> float | None:
    if expected == "full":
        return float(reward is None or reward < 1)
    if reward is None or expected == "nothing":
        return reward
    return float(reward >= 1)


# What strategies earn

_LUCK: Final = 0.02
"""What guesses may earn without a statement: even where every answer is another one, some are right by luck."""


def is_measured(environment: Environment, strategy: str) -> bool:
    return find_allowed_share(environment, strategy) is not None


def find_allowed_share(environment: Environment, strategy: str) -> float | None:
    """What the environment states for a strategy; None where there is nothing to measure."""
    shares = {stated.strategy: stated.share for stated in environment.free_rewards}
    luck = max(environment.chance, _LUCK) if strategy in BY_LUCK else 0.0
    return shares.get(strategy, luck)


def _sum_up(environment: Environment, scored: ScoredAttempts) -> MeasuredRewards:
    sent = {strategy for strategy, _ in scored.names}
    return MeasuredRewards(
        strategies=tuple(_iterate_figures(environment, scored)),
        refusals=tuple(_iterate_refusals(environment, scored)),
        not_applied=tuple(name for name in STRATEGIES if name not in sent and is_measured(environment, name)),
    )


def _iterate_figures(environment: Environment, scored: ScoredAttempts) -> Iterator[StrategyFigure]:
    groups = dict.fromkeys(group for by_group in scored.paid.values() for group in by_group)
    for strategy in STRATEGIES:
        for group in groups if strategy not in HONEST else ():
            best = _choose_variant(strategy, group, scored)
            if best is None:
                continue
            rewards = scored.paid.get(best, {}).get(group, ()) if strategy in GUESSES else scored.get_all(best, group)
            share = Proportion(sum(rewards), len(rewards))
            if (value := share.value) is not None and (interval := share.compute_interval(Z_99)):
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


def _choose_variant(strategy: str, group: str, scored: ScoredAttempts) -> AttemptName | None:
    """The one that surely earns most, by the lower end of its interval, then by its mean. Guesses are chosen by what
    they earned where they learnt."""

    def rate(name: AttemptName) -> tuple[float, float]:
        rewards = scored.learnt.get(name, {}).get(group, ()) if strategy in GUESSES else scored.get_all(name, group)
        share = Proportion(sum(rewards), len(rewards))
        return (share.interval or (0.0,))[0], share.value or 0.0

    names = scored.learnt if strategy in GUESSES else scored.names
    return max((name for name in names if name[0] == strategy and scored.get_all(name, group)), key=rate, default=None)


def _iterate_refusals(environment: Environment, scored: ScoredAttempts) -> Iterator[RefusalFigure]:
    reasons = {kind: stated.because for stated in environment.refused_spellings for kind in stated.kinds}
    for name in scored.names:
        refused = scored.get_all(name) if name[0] in HONEST else ()
        share = Proportion(sum(refused), len(refused))
        if (value := share.value) is not None and (interval := share.compute_interval(Z_95)):
            low, high = interval
            because = reasons.get(name[1]) or reasons.get(_name_value(name[1]), "")
            yield RefusalFigure(kind=name[1], tasks=share.trials, refused=value, low=low, high=high, because=because)


# Strategies earn what the environment states: neither more, nor much less

_STALE: Final = 2
"""A statement is stale when it is so many times the upper end of the interval over all tasks, and what is paid at any
level."""


async def strategies_earn_what_is_stated(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for finding in _find_unreadable_statements(subject.environment):
        yield finding
    figures = (await measure_rewards(subject)).strategies
    for figure in figures:
        if figure.allowed < min(figure.low, figure.paid):
            yield ConformanceFinding(
                task=f"{figure.group}: {figure.strategy}, {figure.variant}".rstrip(", "),
                expected=f"at most {figure.allowed:.1%} paid",
                came=f"{figure.paid:.1%} of {figure.tasks} tasks (99 %: {figure.low:.1%} to {figure.high:.1%})",
                mend="Find out what is paid, and pay it no more. What cannot be helped is stated in `free_rewards`, "
                "with the reason.",
            )
    for stated in subject.environment.free_rewards:
        for finding in _find_stale_statement(stated, figures):
            yield finding


def _find_unreadable_statements(environment: Environment) -> Iterator[ConformanceFinding]:
    names = [stated.strategy for stated in environment.free_rewards]
    for stated in environment.free_rewards:
        wrong = (
            f"there is no strategy {stated.strategy!r}"
            if stated.strategy not in STRATEGIES
            else f"{stated.strategy} is stated more than once"
            if names.count(stated.strategy) > 1
            else f"{stated.strategy} has no reason"
            if not stated.because.strip()
            else f"{stated.strategy} has no share, but sends answers that are not right"
            if stated.share is None and stated.strategy in GUESSES
            else f"{stated.strategy} sends right answers; what is refused belongs in `refused_spellings`"
            if stated.strategy in HONEST
            else ""
        )
        if wrong:
            yield ConformanceFinding(
                task="",
                expected="each of `free_rewards` once, with a reason",
                came=wrong,
                mend=f"The strategies are {', '.join(name for name in STRATEGIES if name not in HONEST)}.",
            )


def _find_stale_statement(stated: FreeReward, figures: Sequence[StrategyFigure]) -> Iterator[ConformanceFinding]:
    of_it = [figure for figure in figures if figure.strategy == stated.strategy]
    most = max((figure.high if figure.group == ALL_TASKS else figure.paid for figure in of_it), default=0.0)
    if stated.share is not None and stated.share > _STALE * most:
        yield ConformanceFinding(
            task="",
            expected=f"{stated.strategy} to earn about {stated.share:.1%} somewhere, as `free_rewards` says",
            came=f"at most {most:.1%}",
            mend="State what is measured now.",
        )


# Right answers are paid, however they are spelled

_REFUSED: Final = 0.01
"""Largest share of tasks that may refuse a spelling."""
_TELLING: Final = 20
"""Fewest tasks that can show that no refusal is left."""


async def right_answers_are_paid_in_any_spelling(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    figures = (await measure_rewards(subject)).refusals
    for figure in figures:
        if figure.refused > _REFUSED and not figure.because:
            yield ConformanceFinding(
                task=figure.kind,
                expected=f"at most {_REFUSED:.0%} refused of right answers in this spelling",
                came=f"{figure.refused:.1%} of {figure.tasks} tasks (95 %: {figure.low:.1%} to {figure.high:.1%})",
                mend="Read the spelling, or say in the prompt that it does not count and state it in "
                "`refused_spellings`, with the reason.",
            )
    for stated in subject.environment.refused_spellings:
        for finding in _find_wrong_refusal(stated, figures):
            yield finding


def _find_wrong_refusal(stated: RefusedSpelling, figures: Sequence[RefusalFigure]) -> Iterator[ConformanceFinding]:
    if not stated.because.strip():
        yield ConformanceFinding(
            task="",
            expected="a reason for each of `refused_spellings`",
            came=f"none for {', '.join(stated.kinds)}",
            mend="Say in one sentence why a right answer in this spelling is no right answer here.",
        )
    for kind in stated.kinds:
        of_it = [figure for figure in figures if kind in (figure.kind, _name_value(figure.kind))]
        tasks = sum(figure.tasks for figure in of_it)
        if tasks >= _TELLING and not any(figure.refused for figure in of_it):
            yield ConformanceFinding(
                task=kind,
                expected="refusals, as `refused_spellings` says",
                came=f"none of {tasks} tasks",
                mend="Remove the statement.",
            )


def _name_value(kind: str) -> str:
    """What a kind of spelling begins with: the kind of value."""
    return kind.partition(":")[0]
