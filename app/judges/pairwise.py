"""Pairwise mode: one judge compares two texts at a time, each pair in both orders, once per vote."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from app.domain.judging import Judgement
from app.judges.comparisons import pairings, win_rates
from app.judges.orders import circle, mirrored_orders
from app.judges.readings import (
    BY_POSITION,
    DISAGREEMENT,
    NEUTRAL,
    Group,
    Reading,
    Report,
    View,
    asked,
    failed,
    kendall,
    mean,
    read_alone,
    usable,
    view_of,
    viewed,
)
from app.ports.judges import Judge


@dataclass(frozen=True)
class Duel:
    """Two texts, read in both orders in each of `votes`. A vote with only one order does not count."""

    pair: Group
    votes: tuple[tuple[Reading, Reading], ...]

    @property
    def share(self) -> float:
        """Win share of the first text: the mean over all judgements, or a tie when the two orders contradict each
        other."""
        one, other = self._standings()
        return NEUTRAL if (one - NEUTRAL) * (other - NEUTRAL) < 0 else mean((one, other))

    @property
    def by_text(self) -> float:
        """Agreement of the orders by text, from -1 to 1."""
        one, other = self._standings()
        return kendall((one, 1.0 - one), (other, 1.0 - other))

    @property
    def by_slot(self) -> float:
        """Agreement of the orders by slot, from -1 to 1."""
        one, other = (
            mean(reading.by_slot(reading.standings)[0] for reading in readings)
            for readings in zip(*self.votes, strict=True)
        )
        return kendall((one, 1.0 - one), (other, 1.0 - other))

    def _standings(self) -> tuple[float, float]:
        one, other = (mean(reading.standings[0] for reading in readings) for readings in zip(*self.votes, strict=True))
        return one, other


async def read_pairwise(judge: Judge, group: Group, votes: int = 1) -> Report:
    """Compares every pair up to ROUND_ROBIN texts, above that each text with its next NEIGHBOURS in a circle. A single
    text is read once."""
    if len(group.texts) == 1:
        return await read_alone(judge, group, "pointwise")
    texts = circle(group.case.key, group.texts)
    pairs = [group.part((texts[one], texts[other])) for one, other in pairings(len(texts))]
    made = await asyncio.gather(*(_compare(judge, pair, votes) for pair in pairs))
    duels = [_duel(pair, judgements) for pair, judgements in zip(pairs, made, strict=True)]
    if not all(duel.votes for duel in duels):
        made_of = [(pair, judgement) for pair, listed in zip(pairs, made, strict=True) for judgement in listed]
        return failed(judge, made_of)
    return viewed(judge, tuple(chain.from_iterable(made)), _view(judge.name, group, duels))


async def _compare(judge: Judge, pair: Group, votes: int) -> tuple[Judgement, ...]:
    orders = mirrored_orders(pair.case.key, pair.texts, 0)
    requests = [pair.request(order, "pairwise", vote) for vote in range(votes) for order in orders]
    return tuple(await asyncio.gather(*(asked(judge, request) for request in requests)))


def _duel(pair: Group, judgements: Sequence[Judgement]) -> Duel:
    readings = [usable(pair, judgement) for judgement in judgements]
    votes = zip(readings[::2], readings[1::2], strict=True)
    return Duel(pair, tuple((one, other) for one, other in votes if one is not None and other is not None))


def _view(judge: str, group: Group, duels: Sequence[Duel]) -> View | None:
    shares = {}
    for duel in duels:
        low, high = group.places(duel.pair)
        shares[low, high] = duel.share
    by_slot, by_text = mean(duel.by_slot for duel in duels), mean(duel.by_text for duel in duels)
    follows = by_slot >= BY_POSITION and by_slot > by_text
    return view_of(
        judge,
        group,
        [(duel.pair, tuple(chain.from_iterable(duel.votes))) for duel in duels],
        win_rates(len(group.texts), shares),
        follows_position=follows,
        agrees=not follows and by_text >= DISAGREEMENT,
    )
