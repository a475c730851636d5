"""`python -m benchmarks.judging_defects`: which reports of a defect should count, before simulated judges.

A tenth of the replies has a fault. Counted both ways: by more than half of a reply's readings, as the panel does, and
by two of four as well.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.judging import Case, PanelResult
from app.domain.scores import Score
from app.judges.aggregation import mean
from app.judges.panel import JudgePanel
from benchmarks.simulated_judges import MILD, RUBRIC, Faults, SimulatedJudge, correlate, make_replies
from docs.markdown import table

GROUPS: Final = 500
SIZES: Final = (2, 8)
DETECTION: Final = (0.8, 0.6)
FALSE_REPORTS: Final = (0.0, 0.01, 0.02, 0.05)
_FAULTY: Final = 0.1
_CAP: Final = 0.3
_CAPPED_QUALITY: Final = -0.8
"""A reply of this quality earns about what the cap leaves."""
_HEADS: Final = ("replies", "detection", "false reports", "counts", "faults capped", "good replies capped", "r")


@dataclass
class Outcome:
    """What a rule makes of many groups."""

    found: list[bool] = field(default_factory=list)
    """Of each faulty reply, whether it was capped."""
    wronged: list[bool] = field(default_factory=list)
    """The same of each good one."""
    correlations: list[float] = field(default_factory=list)

    def tell(self) -> tuple[str, str, str]:
        return f"{mean(self.found):.1%}", f"{mean(self.wronged):.2%}", f"{mean(self.correlations):.3f}"


def measure(size: int, faults: Faults, groups: int) -> tuple[Outcome, Outcome]:
    """By more than half of the readings, and by two of four as well."""
    strict, lenient = Outcome(), Outcome()
    for number in range(groups):
        replies = make_replies(size, number, faulty=_FAULTY)
        texts = tuple(reply.text for reply in replies)
        judge = SimulatedJudge({reply.text: reply for reply in replies}, faults, name="judge 0")
        case = Case(key=texts[0], rubric=RUBRIC, document={}, candidates=texts)
        result = asyncio.run(JudgePanel([judge], 0.5).judge(case))
        worth = [min(reply.quality, _CAPPED_QUALITY) if reply.faulty else reply.quality for reply in replies]
        for outcome, capped in (
            (strict, [score.cap is not None for score in result.scores]),
            (lenient, [score.cap is not None or _is_halved(result, score) for score in result.scores]),
        ):
            for reply, is_capped in zip(replies, capped, strict=True):
                (outcome.found if reply.faulty else outcome.wronged).append(is_capped)
            outcome.correlations.append(correlate(_pay(result.scores, capped), worth))
    return strict, lenient


def _is_halved(result: PanelResult, score: Score) -> bool:
    """Whether two of four readings report the same defect."""
    verdicts = [
        verdict
        for judgement in result.judgements
        for verdict in judgement.verdicts
        if verdict.candidate == score.candidate
    ]
    counts = Counter(defect.code for verdict in verdicts for defect in verdict.defects)
    return len(verdicts) == 4 and 2 in counts.values()


def _pay(scores: Sequence[Score], capped: Sequence[bool]) -> list[float]:
    rewards = [score.reward or 0.0 for score in scores]
    return [min(_CAP, reward) if is_capped else reward for reward, is_capped in zip(rewards, capped, strict=True)]


def _iterate_rows(groups: int) -> Iterator[tuple[str, ...]]:
    for size in SIZES:
        for detection in DETECTION:
            for false in FALSE_REPORTS:
                strict, lenient = measure(size, replace(MILD, detection=detection, false_reports=false), groups)
                setting = str(size), f"{detection:g}", f"{false:g}"
                yield *setting, "more than half", *strict.tell()
                yield *setting, "and two of four", *lenient.tell()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=GROUPS)
    print(table(_HEADS, list(_iterate_rows(parser.parse_args().groups))))


if __name__ == "__main__":
    main()
