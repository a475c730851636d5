"""Budgets of runs: what judging a group is expected to cost is reserved before a judge is asked."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.domain.budgets import Amount
from app.domain.errors import ScoringFailed, StoreUnavailable
from app.domain.judging import Case, Judgement, PanelResult, Spending
from app.domain.runs import PanelOptions
from app.domain.token_estimate import estimate_tokens
from app.ports.judges import BackedJudge, Judge, Panels, PricedJudge
from app.ports.store import RunStore

log = logging.getLogger(__name__)

HOLD_SECONDS: Final = 1200.0
"""Longer than a group may be judged. Then its process counts as dead."""
POLL_SECONDS: Final = 0.5
"""How often a group that waits looks at what groups of other processes turned out to cost."""
LARGEST_QUESTION: Final = 8
"""Replies that a judge is assumed to read at once."""
MOST_READINGS: Final = 4
MOST_NEIGHBOURS: Final = 4


UNKNOWN_TASK_TOKENS: Final = 5000
"""A rubric and a character sheet: the median of the shipped sheets is 4,524 (docs/judge_reference.md)."""
UNKNOWN_REPLY_TOKENS: Final = 500


class BudgetSpent(ScoringFailed):
    """The group does not fit into what is left of its run's budget."""

    reason = "budget"


@dataclass(frozen=True)
class GroupBudget:
    """Reserves what one group of a run with a budget is expected to cost."""

    runs: RunStore
    panels: Panels
    run: str
    environment: str
    group_id: str
    options: PanelOptions
    turn: asyncio.Lock
    """Of the run in this process: groups that have to wait do so in line."""

    async def reserve(self, case: Case) -> None:
        """BudgetSpent when the group does not fit. Waits while only groups that are being judged stand against it."""
        if unpriced := find_unpriced(self.panels, self.options.judges):
            raise BudgetSpent(f"the run has a budget, and judge {unpriced[0]!r} has no prices")
        estimate = estimate_group_cost(case, self.options, self.panels)
        async with self.turn:
            while not await self._try_reserve(estimate):  # noqa: ASYNC110  # other processes wake nobody
                await asyncio.sleep(POLL_SECONDS)

    async def _try_reserve(self, estimate: float) -> bool:
        answer = await self.runs.reserve_cost(self.run, self.environment, self.group_id, estimate, HOLD_SECONDS)
        if answer == "never":
            raise BudgetSpent("judging this group is expected to cost more than is left of the run's `budget_usd`")
        return answer == "now"

    async def reserve_further(self, case: Case) -> bool:
        """Reserves what one more reading of the group may cost, and says whether the budget allows it. Nobody waits
        for that."""
        estimate = estimate_group_cost(case, self.options.model_copy(update={"readings": 1}), self.panels)
        try:
            answer = await self.runs.reserve_cost(
                self.run, self.environment, self._further_hold, estimate, HOLD_SECONDS
            )
        except StoreUnavailable:
            return False
        return answer == "now"

    @property
    def _further_hold(self) -> str:
        return f"{self.group_id} further"

    async def settle(self, made: Sequence[Judgement], *, further: bool = False) -> None:
        """What the group cost is known, though it is not stored: other groups of its request may be waiting for it.
        With `further` nothing is reserved for one more reading any longer: `made` has it."""
        total = Spending()
        for judgement in made:
            total = total.add_judgement(judgement)
        await self._settle_hold(self.group_id, total.cost_usd + total.unanswered_usd)
        if further:
            await self._settle_hold(self._further_hold, 0.0)

    async def _settle_hold(self, hold: str, usd: float) -> None:
        try:
            await self.runs.settle_cost(hold, usd)
        except StoreUnavailable:
            log.warning("what a group cost could not be stored: %s", hold)


@dataclass
class EstimatingPanel:
    """Takes the questions to a panel and asks nobody."""

    judges: tuple[str, ...]
    models: tuple[str, ...]
    digest: str
    cases: list[Case] = field(default_factory=list)

    async def judge(self, case: Case) -> PanelResult:
        self.cases.append(case)
        raise ScoringFailed("this is an estimate, and no judge is asked")


def find_unpriced(panels: Panels, names: Sequence[str]) -> list[str]:
    """The judges whose calls cost what nobody has said, fallbacks included."""
    asked = [judge for name in names if (judge := panels.judges.get(name)) is not None]
    return [each.name for judge in asked for each in _list_asked(judge) if _compute_most(each, 0) is None]


@dataclass(frozen=True)
class JudgingBound:
    """What judging a group takes at most, but for retries: every answer as long as it may be, every reading in doubt.
    Judges without a model take nothing."""

    calls: int
    input_tokens: int
    usd: float | None
    """None where a judge has no prices."""


def estimate_group_cost(case: Case, options: PanelOptions, panels: Panels) -> float:
    return bound_judging(case, options, panels).usd or 0.0


def bound_judging(case: Case, options: PanelOptions, panels: Panels) -> JudgingBound:
    count = len(set(case.candidates))
    calls, replies = _count_calls(options, count)
    shared = [case.document, case.rubric.model_dump(mode="json"), case.probes.model_dump(mode="json")]
    tokens = estimate_tokens(json.dumps(shared, ensure_ascii=False))
    tokens += replies * sum(map(estimate_tokens, case.candidates)) // max(1, count)
    judges = [each for name in options.judges for each in _list_asked(panels.judges[name])]
    asked = calls * sum(isinstance(judge, PricedJudge) for judge in judges)
    prices = [price for judge in judges if (price := _compute_most(judge, tokens)) is not None]
    return JudgingBound(asked, asked * tokens, calls * sum(prices) if len(prices) == len(judges) else None)


def bound_unknown_group(options: PanelOptions, panels: Panels) -> Amount:
    """What judging a group takes at most of which nothing is known but its judges: of as many replies as one question
    has room for, each and the task as long as labs' usually are."""
    calls, replies = _count_calls(options, LARGEST_QUESTION)
    tokens = UNKNOWN_TASK_TOKENS + replies * UNKNOWN_REPLY_TOKENS
    asked = [each for name in options.judges for each in _list_asked(panels.judges[name])]
    models = sum(isinstance(judge, PricedJudge) for judge in asked)
    return Amount(calls * models * tokens, calls * sum(_compute_most(judge, tokens) or 0.0 for judge in asked))


def _count_calls(options: PanelOptions, count: int) -> tuple[int, int]:
    """Questions to one judge at most, and the replies in each."""
    if options.mode == "pointwise" or count == 1:
        return count * options.votes, 1
    if options.mode == "pairwise":
        return count * min(count - 1, MOST_NEIGHBOURS) * options.votes, 2
    parts = -(-count // (LARGEST_QUESTION // 2))
    chunks = 1 if count <= LARGEST_QUESTION else parts * min(parts - 1, MOST_NEIGHBOURS) // 2
    return chunks * (options.readings or MOST_READINGS), min(count, LARGEST_QUESTION)


def _list_asked(judge: Judge) -> Iterator[Judge]:
    yield judge
    if isinstance(judge, BackedJudge):
        yield judge.fallback


def _compute_most(judge: Judge, input_tokens: int) -> float | None:
    """0 for a judge without a model."""
    return judge.compute_most(input_tokens) if isinstance(judge, PricedJudge) else 0.0
