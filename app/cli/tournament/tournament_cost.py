"""What the duels of a tournament take, and what they have taken."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from app.cli.evaluate.estimate import average_reading_usd
from app.cli.gateway_client import GatewayClient
from app.cli.tournament.duel_ledger import PlannedDuel
from app.domain.errors import InvalidRequest, NotFound
from app.evaluation.tournament import Duel
from app.http.api.models import JudgeInfo
from app.service.rescoring import RescoreEstimate, RescoreRequest

ESTIMATED: Final = 12
"""Groups whose re-scoring by the judge is estimated, spread over the duels."""
ORDERS: Final = 2


@dataclass(frozen=True)
class TournamentCost:
    """Of the duels without an outcome, by some of them. Corrections and retries come on top."""

    duels: int
    calls: int
    input_tokens: int | None
    usd: float | None
    """None where it is not known."""

    def describe(self) -> str:
        tokens = "" if self.input_tokens is None else f", about {self.input_tokens:,} prompt tokens"
        price = "an unknown price" if self.usd is None else f"about {self.usd:,.2f} US dollars"
        return f"{self.duels:,} duels, {self.calls:,} calls of the judge{tokens}, {price}; retries come on top"


async def estimate_duels(gateway: GatewayClient, duels: Sequence[PlannedDuel], judge: JudgeInfo) -> TournamentCost:
    """By what it would take this judge to read some of the stored groups in pairs."""
    if not judge.for_training:
        return TournamentCost(len(duels), ORDERS * len(duels), None, 0.0)
    count = min(len(duels), ESTIMATED)
    sampled = {duels[place * len(duels) // count].replies[0].group_id for place in range(count)}
    asked = RescoreRequest(judges=(judge.name,), mode="pairwise", votes=1)
    some: list[RescoreEstimate] = []
    for group_id in sorted(sampled):
        try:
            some.append(await gateway.estimate_rescore(group_id, asked))
        except (NotFound, InvalidRequest):  # it is gone, or its text is not kept: others say enough
            continue
    calls, known = sum(one.calls for one in some), ORDERS * len(duels)
    if not calls:
        return TournamentCost(len(duels), known, None, None)
    prices = [one.cost_usd for one in some]
    usd = None if None in prices else sum(price for price in prices if price is not None) / calls * known
    return TournamentCost(len(duels), known, round(sum(one.input_tokens for one in some) / calls * known), usd)


def describe_spending(duels: Collection[Duel]) -> str:
    prices = [duel.usd for duel in duels if duel.calls]
    price = "price unknown" if None in prices else f"${sum(price for price in prices if price is not None):.4f}"
    return f"{sum(duel.calls for duel in duels):,} calls, {price}"


def estimate_unplayed(judge: JudgeInfo, duels: int) -> TournamentCost:
    """While there are no replies: by what a reading of this judge has cost so far."""
    each = average_reading_usd(judge) if judge.for_training else 0.0
    return TournamentCost(duels, ORDERS * duels, None, None if each is None else ORDERS * duels * each)
