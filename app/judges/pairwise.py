"""Pairwise mode: one judge compares two texts at a time, each pair in both orders, once per vote."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from app.domain.judging import Judgement
from app.judges.aggregation import (
    BY_POSITION,
    DISAGREEMENT,
    NEUTRAL,
    CandidateGroup,
    GroupResult,
    JudgeView,
    UsableJudgement,
    ask_judge,
    build_failed_result,
    build_result,
    build_view,
    kendall_tau,
    mean,
    read_lone_text,
    to_usable,
)
from app.judges.comparisons import compute_win_rates, list_pairings
from app.judges.presentation_order import arrange_circle, build_mirrored_orders
from app.ports.judges import Judge


@dataclass(frozen=True)
class PairComparison:
    """Two texts, read in both orders in each of `votes`. A vote with only one order does not count."""

    pair: CandidateGroup
    votes: tuple[tuple[UsableJudgement, UsableJudgement], ...]

    @property
    def share(self) -> float:
        """Win share of the first text: the mean over all judgements, or a tie when the two orders contradict each
        other."""
        one, other = self._compute_standings()
        return NEUTRAL if (one - NEUTRAL) * (other - NEUTRAL) < 0 else mean((one, other))

    @property
    def by_text(self) -> float:
        """Agreement of the orders by text, from -1 to 1."""
        one, other = self._compute_standings()
        return kendall_tau((one, 1.0 - one), (other, 1.0 - other))

    @property
    def by_slot(self) -> float:
        """Agreement of the orders by slot, from -1 to 1."""
        one, other = (
            mean(reading.order_by_slot(reading.standings)[0] for reading in readings)
            for readings in zip(*self.votes, strict=True)
        )
        return kendall_tau((one, 1.0 - one), (other, 1.0 - other))

    def _compute_standings(self) -> tuple[float, float]:
        one, other = (mean(reading.standings[0] for reading in readings) for readings in zip(*self.votes, strict=True))
        return one, other


async def read_pairwise(judge: Judge, group: CandidateGroup, votes: int = 1) -> GroupResult:
    """Compares every pair up to ROUND_ROBIN texts, above that each text with its next NEIGHBOURS in a circle. A single
    text is read once."""
    if len(group.texts) == 1:
        return await read_lone_text(judge, group, "pointwise")
    texts = arrange_circle(group.case.key, group.texts)
    pairs = [group.select_texts((texts[one], texts[other])) for one, other in list_pairings(len(texts))]
    made = await asyncio.gather(*(_compare_pair(judge, pair, votes) for pair in pairs))
    duels = [_build_comparison(pair, judgements) for pair, judgements in zip(pairs, made, strict=True)]
    if not all(duel.votes for duel in duels):
        made_of = [(pair, judgement) for pair, listed in zip(pairs, made, strict=True) for judgement in listed]
        return build_failed_result(judge, made_of)
    return build_result(judge, tuple(chain.from_iterable(made)), _aggregate_comparisons(judge.name, group, duels))


async def _compare_pair(judge: Judge, pair: CandidateGroup, votes: int) -> tuple[Judgement, ...]:
    orders = build_mirrored_orders(pair.case.key, pair.texts, 0)
    requests = [pair.build_request(order, "pairwise", vote) for vote in range(votes) for order in orders]
    return tuple(await asyncio.gather(*(ask_judge(judge, request) for request in requests)))


def _build_comparison(pair: CandidateGroup, judgements: Sequence[Judgement]) -> PairComparison:
    readings = [to_usable(pair, judgement) for judgement in judgements]
    votes = zip(readings[::2], readings[1::2], strict=True)
    return PairComparison(pair, tuple((one, other) for one, other in votes if one is not None and other is not None))


def _aggregate_comparisons(judge: str, group: CandidateGroup, duels: Sequence[PairComparison]) -> JudgeView | None:
    shares = {}
    for duel in duels:
        low, high = group.locate_texts(duel.pair)
        shares[low, high] = duel.share
    by_slot, by_text = mean(duel.by_slot for duel in duels), mean(duel.by_text for duel in duels)
    follows = by_slot >= BY_POSITION and by_slot > by_text
    return build_view(
        judge,
        group,
        [(duel.pair, tuple(chain.from_iterable(duel.votes))) for duel in duels],
        compute_win_rates(len(group.texts), shares),
        follows_position=follows,
        agrees=not follows and by_text >= DISAGREEMENT,
    )
