"""Pairwise mode: one judge compares two texts at a time, each pair in both orders, once per vote."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from app.judges.aggregation import (
    BY_POSITION,
    CandidateGroup,
    GroupResult,
    JudgeView,
    UsableJudgement,
    build_failed_result,
    build_result,
    build_view,
)
from app.judges.presentation_order import arrange_circle, build_mirrored_orders
from app.judges.questions import Answer, Question, ask_questions, list_judgements, read_lone_text
from app.judges.ranks import Pairings, compute_win_rates, kendall_tau, list_pairings, mean, suffice_for_order
from app.ports.judges import Judge


@dataclass(frozen=True)
class PairComparison:
    """Two texts, read in both orders in each of `votes`. A vote with only one order does not count."""

    pair: CandidateGroup
    votes: tuple[tuple[UsableJudgement, UsableJudgement], ...]

    @property
    def share(self) -> float:
        """Win share of the first text: the mean over both orders."""
        return mean(self._compute_standings())

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
    answers = await ask_questions(judge, [question for pair in pairs for question in _build_questions(pair, votes)])
    each = 2 * votes
    duels = [_build_comparison(pair, answers[each * n : each * (n + 1)]) for n, pair in enumerate(pairs)]
    made = [duel for duel in duels if duel.votes]
    asked = list_judgements(answers)
    if not suffice_for_order(_list_index_pairs(group, duels), _list_index_pairs(group, made)):
        return build_failed_result(judge, asked)
    view = _aggregate_comparisons(group, made, lacks_readings=len(made) < len(duels))
    return build_result(judge, [judgement for _, judgement in asked], view)


def _build_questions(pair: CandidateGroup, votes: int) -> Iterator[Question]:
    orders = build_mirrored_orders(pair.case.key, pair.texts, 0)
    yield from (
        Question(pair, pair.build_request(order, "pairwise", vote)) for vote in range(votes) for order in orders
    )


def _list_index_pairs(group: CandidateGroup, duels: Sequence[PairComparison]) -> Pairings:
    return tuple((low, high) for low, high in (group.locate_texts(duel.pair) for duel in duels))


def _build_comparison(pair: CandidateGroup, answers: Sequence[Answer]) -> PairComparison:
    readings = [answer.reading for answer in answers]
    votes = zip(readings[::2], readings[1::2], strict=True)
    return PairComparison(pair, tuple((one, other) for one, other in votes if one is not None and other is not None))


def _aggregate_comparisons(
    group: CandidateGroup, duels: Sequence[PairComparison], lacks_readings: bool
) -> JudgeView | None:
    shares = {}
    for duel in duels:
        low, high = group.locate_texts(duel.pair)
        shares[low, high] = duel.share
    by_slot, by_text = mean(duel.by_slot for duel in duels), mean(duel.by_text for duel in duels)
    return build_view(
        group,
        [(duel.pair, tuple(chain.from_iterable(duel.votes))) for duel in duels],
        compute_win_rates(len(group.texts), shares),
        lacks_readings=lacks_readings,
        follows_position=by_slot >= BY_POSITION and by_slot > by_text,
    )
