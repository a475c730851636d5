"""Checks that strategies earn what the environment states: neither more, nor much less."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from app.ports.environment import Environment, FreeReward
from app.toolkit.conformance.attempts import ALL_TASKS, GUESSES, STRATEGIES
from app.toolkit.conformance.findings import ConformanceFinding, StrategyFigure
from app.toolkit.conformance.strategies import measure_strategies
from app.toolkit.conformance.subject import CheckSubject

STALE: Final = 2
"""A statement is stale when it is so many times the upper end of the interval over all tasks, and what is paid at any
level."""


async def strategies_earn_what_is_stated(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for finding in _find_unreadable_statements(subject.environment):
        yield finding
    figures = await measure_strategies(subject)
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
            else ""
        )
        if wrong:
            yield ConformanceFinding(
                task="",
                expected="each of `free_rewards` once, with a reason",
                came=wrong,
                mend=f"The strategies are {', '.join(STRATEGIES)}.",
            )


def _find_stale_statement(stated: FreeReward, figures: Sequence[StrategyFigure]) -> Iterator[ConformanceFinding]:
    of_it = [figure for figure in figures if figure.strategy == stated.strategy]
    most = max((figure.high if figure.group == ALL_TASKS else figure.paid for figure in of_it), default=0.0)
    if stated.share is not None and stated.share > STALE * most:
        yield ConformanceFinding(
            task="",
            expected=f"{stated.strategy} to earn about {stated.share:.1%} somewhere, as `free_rewards` says",
            came=f"at most {most:.1%}",
            mend="State what is measured now.",
        )
