"""All checks in order of execution."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.ports.environment import Environment
from app.toolkit.conformance.episode_checks import episodes_end, what_is_forged_is_refused
from app.toolkit.conformance.findings import CheckResult, ConformanceFinding
from app.toolkit.conformance.score_checks import (
    a_list_of_answers_earns_nothing,
    gold_earns_one,
    junk_earns_nothing,
    no_text_breaks_it,
    scores_come_in_order,
    scoring_twice_says_the_same,
    strangers_earn_nothing,
)
from app.toolkit.conformance.strategy_checks import strategies_earn_what_is_stated
from app.toolkit.conformance.subject import CheckSubject, EnvironmentBroke
from app.toolkit.conformance.task_checks import (
    labels_agree,
    says_what_it_is,
    splits_stay_apart,
    tasks_differ,
    the_answer_is_hidden,
    the_same_bytes,
)

MOST_FINDINGS: Final = 20
"""Maximum findings per check."""


def _applies_always(kind: type[Environment]) -> bool:
    return True


def _has_turns(kind: type[Environment]) -> bool:
    return kind.multi_turn


def _is_verified(kind: type[Environment]) -> bool:
    return kind.rubric is None


@dataclass(frozen=True)
class Check:
    asks: str
    """The guarantee that it checks, in one sentence."""
    run: Callable[[CheckSubject], AsyncIterator[ConformanceFinding]]
    applies: Callable[[type[Environment]], bool] = _applies_always

    @property
    def name(self) -> str:
        return self.run.__name__


CHECKS: Final[Sequence[Check]] = (
    Check("It has a name, a version, a description and tasks.", says_what_it_is),
    Check("The same index gives the same task, byte for byte.", the_same_bytes),
    Check("No prompt is in both splits.", splits_stay_apart),
    Check("Prompts differ.", tasks_differ),
    Check("Nothing public reveals the answer.", the_answer_is_hidden),
    Check("Labels match the metadata.", labels_agree),
    Check("The right answer earns 1.", gold_earns_one),
    Check("Another task's right answer earns nothing.", strangers_earn_nothing, _is_verified),
    Check("Junk earns nothing.", junk_earns_nothing),
    Check("A list of answers earns nothing.", a_list_of_answers_earns_nothing, _is_verified),
    Check(
        "Strategies that do not do the task earn what is stated, and no more.",
        strategies_earn_what_is_stated,
        _is_verified,
    ),
    Check("No text breaks scoring or earns a reward by accident.", no_text_breaks_it),
    Check("A group gets one score per completion, in order.", scores_come_in_order),
    Check("Scoring twice gives the same scores.", scoring_twice_says_the_same),
    Check("Episodes end, and replay identically.", episodes_end, _has_turns),
    Check("Forged observations are refused.", what_is_forged_is_refused, _has_turns),
)


async def apply_check(subject: CheckSubject, check: Check) -> CheckResult:
    """Runs a check. Never raises: exceptions of the environment become findings."""
    applied = check.applies(type(subject.environment))
    findings: list[ConformanceFinding] = []
    if applied:
        try:
            async for finding in check.run(subject):
                findings.append(finding)
                if len(findings) == MOST_FINDINGS:
                    break
        except EnvironmentBroke as broke:
            findings.append(_build_exception_finding(broke.where, broke.said, f"nothing raised while {broke.doing}"))
        except Exception as error:  # whatever an environment may raise
            findings.append(_build_exception_finding("", f"{type(error).__name__}: {error}", "nothing raised"))
    return CheckResult(name=check.name, asks=check.asks, applied=applied, findings=tuple(findings))


def _build_exception_finding(task: str, came: str, expected: str) -> ConformanceFinding:
    mend = "Text from a model must never raise: unreadable text earns 0." if "scoring" in expected else ""
    return ConformanceFinding(
        task=task, expected=expected, came=came, mend=mend or "See the file and line after the error."
    )
