"""Ways of judging a group, before one simulated judge: the panel in every mode, and other projects' ideas made anew.

Each returns one value per reply, the calls that it took, and how many replies each of them showed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

from app.domain.judging import Case, Mode
from app.judges.aggregation import mean
from app.judges.panel import JudgePanel
from benchmarks.judging_tokens import Form
from benchmarks.simulated_judges import CRITERION_NOISE, RUBRIC, Faults, Reply, SimulatedJudge, perceive, start_call


@dataclass(frozen=True)
class Judged:
    values: tuple[float, ...]
    shown: tuple[int, ...]
    """By call: how many replies it showed."""


Idea = Callable[[Sequence[Reply], Faults], Judged]


def judge_with_panel(
    replies: Sequence[Reply],
    faults: Faults,
    *,
    mode: Mode = "listwise",
    votes: int = 1,
    judges: int = 1,
    readings: int = 4,
) -> Judged:
    asked = [
        SimulatedJudge({reply.text: reply for reply in replies}, faults, name=f"judge {place}")
        for place in range(judges)
    ]
    texts = tuple(reply.text for reply in replies)
    case = Case(key=texts[0], rubric=RUBRIC, document={}, candidates=texts)
    result = asyncio.run(JudgePanel(asked, 0.5, mode, votes, readings=readings).judge(case))
    return Judged(
        tuple(score.reward or 0.0 for score in result.scores),
        tuple(count for judge in asked for _, count in judge.shown),
    )


def score_in_one_list(replies: Sequence[Reply], faults: Faults, *, calls: int = 1, noise: float = 0.0) -> Judged:
    """RULER's idea: the group in the order in which it came, a score from 0 to 1 for each. Repeats are answered anew,
    as above temperature 0. `noise`: of the number itself, in levels of a criterion."""
    columns = []
    for vote in range(calls):
        chance = start_call("judge 0", "scores", vote, replies)
        read = perceive(faults, "judge 0", replies, chance)
        columns.append([_score_unit(value + read.leniency, faults, chance.gauss(0.0, noise)) for value in read.values])
    return Judged(tuple(map(mean, zip(*columns, strict=True))), (len(replies),) * calls)


def compare_pairs(replies: Sequence[Reply], faults: Faults, *, votes: int = 1) -> Judged:
    """Every pair in both orders: the share of wins, ties being half."""
    wins = [0.0] * len(replies)
    calls = 0
    for one, other in combinations(range(len(replies)), 2):
        for first, second in ((one, other), (other, one)):
            for vote in range(votes):
                shown = (replies[first], replies[second])
                read = perceive(faults, "judge 0", shown, start_call("judge 0", "pair", vote, shown))
                ahead = read.values[0] - read.values[1]
                share = 0.5 if abs(ahead) < faults.tie else float(ahead > 0)
                wins[first] += share
                wins[second] += 1.0 - share
                calls += 1
    return Judged(tuple(wins), (2,) * calls)


def score_one_by_one(replies: Sequence[Reply], faults: Faults, *, votes: int = 1) -> Judged:
    """Each reply by itself, on a scale from 1 to 10."""
    values = []
    for reply in replies:
        scores = []
        for vote in range(votes):
            read = perceive(faults, "judge 0", (reply,), start_call("judge 0", "alone", vote, (reply,)))
            scores.append(min(10.0, max(1.0, round(5.5 + 2.5 * faults.slope * (read.values[0] + read.leniency)))))
        values.append(mean(scores))
    return Judged(tuple(values), (1,) * (votes * len(replies)))


def _score_unit(value: float, faults: Faults, noise: float) -> float:
    """In steps of 0.05, as models write such scores."""
    return min(20, max(0, round(20 * (0.5 + (faults.slope * value + noise) / 4)))) / 20


IDEAS: Final[Mapping[str, tuple[Form, Idea]]] = {
    "ours, at most 4 readings": ("ours", judge_with_panel),
    "ours, 2 readings": ("ours", partial(judge_with_panel, readings=2)),
    "ours, 1 reading": ("ours", partial(judge_with_panel, readings=1)),
    "ours, 2 judges, at most 4 readings": ("ours", partial(judge_with_panel, judges=2)),
    "ours, 4 judges, a reading each": ("ours", partial(judge_with_panel, judges=4)),
    "ours, `pairwise`": ("ours", partial(judge_with_panel, mode="pairwise")),
    "ours, `pointwise`": ("ours", partial(judge_with_panel, mode="pointwise")),
    "ours, `pointwise`, 3 votes": ("ours", partial(judge_with_panel, mode="pointwise", votes=3)),
    "one call, fixed order (RULER's idea)": ("short", score_in_one_list),
    "the same, its number as noisy as one of our criteria": (
        "short",
        partial(score_in_one_list, noise=CRITERION_NOISE),
    ),
    "pairs in both orders": ("short", compare_pairs),
    "pairs in both orders, 3 votes (Atropos' idea)": ("short", partial(compare_pairs, votes=3)),
    "one by one, 1 to 10": ("short", score_one_by_one),
    "one by one, 1 to 10, 3 votes": ("short", partial(score_one_by_one, votes=3)),
}
LARGEST_FOR_PAIRS: Final = 8
"""Beyond this, comparing all pairs takes too many calls to be of interest."""
