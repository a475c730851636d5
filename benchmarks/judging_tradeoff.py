"""`python -m benchmarks.judging_tradeoff`: calls, tokens and accuracy of ways to judge, before simulated judges.

Writes docs/judging_tradeoff.md and its picture. A cell that is in the file given with `--cells` is not measured again,
unless the panel's version, or the calls that a budget buys, are others now. `--share 0.05` takes that share of the
groups, to try it.
"""

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from app.judges.panel import VERSION
from benchmarks.judging_cells import BUDGETS, Cell
from benchmarks.judging_ideas import IDEAS, LARGEST_FOR_PAIRS, Idea, score_in_one_list
from benchmarks.judging_tokens import Form, measure_tokens
from benchmarks.judging_tradeoff_page import write_page
from benchmarks.simulated_judges import JUDGES, MILD, Faults, correlate, make_replies

GROUPS: Final[Mapping[int, int]] = {2: 4000, 4: 1000, 8: 1000, 16: 600}
"""By size, before the mild judge."""
GROUPS_OF_OTHERS: Final[Mapping[int, int]] = {2: 4000, 4: 500, 8: 250, 16: 150}
FOR_EVERY_JUDGE: Final = frozenset(
    (
        "ours, at most 4 readings",
        "ours, 1 reading",
        "ours, 4 judges, a reading each",
        "one call, fixed order (RULER's idea)",
    )
)
"""The other ideas meet the mild judge, some the weak one too."""


@dataclass(frozen=True)
class Plan:
    judge: str
    faults: Faults
    idea: str
    form: Form
    way: Idea
    size: int
    groups: int
    calls: int | None = None
    """Where a budget decides it."""

    @property
    def name(self) -> str:
        made_by = f"panel {VERSION}" if self.form == "ours" else f"{self.calls or 'own'} calls"
        return f"{self.judge} | {self.idea} | {self.size} | {self.groups} | {made_by}"


def measure(plan: Plan) -> Cell:
    """The mean over groups of Pearson's r within the group; a group whose rewards are all equal counts 0."""
    found, calls, shown = [], [], 0
    for number in range(plan.groups):
        replies = make_replies(plan.size, number)
        judged = plan.way(replies, plan.faults)
        found.append(correlate(judged.values, [reply.quality for reply in replies]))
        calls.append(len(judged.shown))
        shown += sum(judged.shown)
    mean = math.fsum(found) / len(found)
    spread = math.fsum((each - mean) ** 2 for each in found) / max(1, len(found) - 1)
    return Cell(
        plan.judge,
        plan.idea,
        plan.size,
        plan.groups,
        mean,
        math.sqrt(spread / len(found)),
        sum(calls) / len(calls),
        max(calls),
        plan.form,
        shown / len(found),
    )


def list_plans(share: float = 1.0) -> list[Plan]:
    judges = {**JUDGES, "mild, 2 % false reports": replace(MILD, false_reports=0.02)}
    plans = [
        Plan(judge, faults, idea, form, way, size, _count_groups(judge, size, share))
        for size in GROUPS
        for judge, faults in judges.items()
        for idea, (form, way) in IDEAS.items()
        if ("false" not in judge or idea == "ours, at most 4 readings")
        and (size <= LARGEST_FOR_PAIRS or "pair" not in idea)
        and (judge in ("mild", "weak") or idea in FOR_EVERY_JUDGE)
    ]
    for size in GROUPS:
        for budget in BUDGETS:
            calls = int(budget // measure_tokens()["short"].count(1, size))
            plans += [
                Plan(
                    judge,
                    JUDGES[judge],
                    f"RULER's idea for {budget:,} tokens",
                    "short",
                    partial(score_in_one_list, calls=calls),
                    size,
                    _count_groups(judge, size, share),
                    calls,
                )
                for judge in ("mild", "weak")
                if calls
            ]
    return sorted(plans, key=_rank_plan)


def _count_groups(judge: str, size: int, share: float) -> int:
    groups = (GROUPS if judge.startswith("mild") else GROUPS_OF_OTHERS)[size]
    return max(20, round(share * groups))


def _rank_plan(plan: Plan) -> tuple[bool, bool, bool]:
    """What the page is about comes first, so that a run that is broken off has it."""
    is_extra = plan.idea not in FOR_EVERY_JUDGE and "tokens" not in plan.idea
    return not plan.judge.startswith("mild"), is_extra, plan.size == 2


def measure_all(plans: Sequence[Plan], kept: Path | None) -> list[Cell]:
    known = {} if kept is None or not kept.exists() else json.loads(kept.read_text(encoding="utf-8"))
    owed = [plan for plan in plans if plan.name not in known]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for plan, cell in zip(owed, pool.map(measure, owed), strict=True):
            known[plan.name] = asdict(cell)
            print(f"{plan.name}: r {cell.r:.3f} ± {1.96 * cell.error:.3f}, {cell.calls:.2f} calls", flush=True)
            if kept is not None:
                kept.write_text(json.dumps(known), encoding="utf-8")
    return [Cell(**known[plan.name]) for plan in plans]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--measured-only", action="store_true", help="Write the page of what the file has.")
    asked = parser.parse_args()
    plans = list_plans(asked.share)
    if asked.measured_only:
        measured = json.loads(asked.cells.read_text(encoding="utf-8"))
        plans = [plan for plan in plans if plan.name in measured]
    write_page(measure_all(plans, asked.cells), Path(__file__).parents[1] / "docs")


if __name__ == "__main__":
    main()
