"""All checks in order of execution."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.ports.environment import Environment
from app.toolkit.conformance.about_episodes import episodes_end, what_is_forged_is_refused
from app.toolkit.conformance.about_scores import (
    a_list_of_answers_earns_nothing,
    gold_earns_one,
    junk_earns_nothing,
    no_text_breaks_it,
    scores_come_in_order,
    scoring_twice_says_the_same,
    strangers_earn_nothing,
)
from app.toolkit.conformance.about_tasks import (
    labels_agree,
    says_what_it_is,
    splits_stay_apart,
    tasks_differ,
    the_answer_is_hidden,
    the_same_bytes,
)
from app.toolkit.conformance.findings import Checked, Finding
from app.toolkit.conformance.subject import Broke, Subject

MOST_FINDINGS: Final = 20
"""Maximum findings per check."""


def _any(kind: type[Environment]) -> bool:
    return True


def _has_turns(kind: type[Environment]) -> bool:
    return kind.multi_turn


def _verifies(kind: type[Environment]) -> bool:
    return kind.rubric is None


@dataclass(frozen=True)
class Check:
    asks: str
    """The guarantee that it checks, in one sentence."""
    run: Callable[[Subject], AsyncIterator[Finding]]
    applies: Callable[[type[Environment]], bool] = _any

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
    Check("Another task's right answer earns nothing.", strangers_earn_nothing, _verifies),
    Check("Junk earns nothing.", junk_earns_nothing),
    Check("A list of answers earns nothing.", a_list_of_answers_earns_nothing, _verifies),
    Check("No text breaks scoring or earns a reward by accident.", no_text_breaks_it),
    Check("A group gets one score per completion, in order.", scores_come_in_order),
    Check("Scoring twice gives the same scores.", scoring_twice_says_the_same),
    Check("Episodes end, and replay identically.", episodes_end, _has_turns),
    Check("Forged observations are refused.", what_is_forged_is_refused, _has_turns),
)


async def checked(subject: Subject, check: Check) -> Checked:
    """Runs a check. Never raises: exceptions of the environment become findings."""
    applied = check.applies(type(subject.environment))
    findings: list[Finding] = []
    if applied:
        try:
            async for finding in check.run(subject):
                findings.append(finding)
                if len(findings) == MOST_FINDINGS:
                    break
        except Broke as broke:
            findings.append(_broken(broke.where, broke.said, f"nothing raised while {broke.doing}"))
        except Exception as error:  # whatever an environment may raise
            findings.append(_broken("", f"{type(error).__name__}: {error}", "nothing raised"))
    return Checked(name=check.name, asks=check.asks, applied=applied, findings=tuple(findings))


def _broken(task: str, came: str, expected: str) -> Finding:
    mend = "Text from a model must never raise: unreadable text earns 0." if "scoring" in expected else ""
    return Finding(task=task, expected=expected, came=came, mend=mend or "See the file and line after the error.")
