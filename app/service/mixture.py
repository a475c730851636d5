"""Seeded mixtures: which member each position of a mixed stream belongs to. Weights are exact per block of 1,000."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.digests import digest
from app.domain.runs import Stream
from app.service.request_models import MixMember
from app.service.weighted_schedule import count_draws_below, find_draw


@dataclass(frozen=True)
class Draw:
    """`position` counts this member's own tasks."""

    member: int
    position: int


def build_mix_stream(run: str, mix: Sequence[MixMember]) -> Stream:
    """The stream that counts the positions of a leased mixture. Its environment name is a placeholder."""
    identity = digest(["mix", *(member.model_dump(mode="json") for member in mix)])
    return Stream(run=run, environment="mix", split="train", params={}, select={}, digest=identity)


def draw_members(weights: Sequence[float], seed: int, first: int, count: int) -> tuple[Draw, ...]:
    """The members drawn at positions first … first + count - 1."""
    return tuple(Draw(*find_draw(tuple(weights), seed, position)) for position in range(first, first + count))


def count_draws_before(weights: Sequence[float], seed: int, position: int) -> tuple[int, ...]:
    """How often each member is drawn at positions below `position`."""
    return count_draws_below(tuple(weights), seed, position)
