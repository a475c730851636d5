"""Seeded mixtures: which member each position of a mixed stream belongs to, exact in every block of 1,000."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.domain.runs import Stream
from app.prompts import digest
from app.service.requests import MixMember

BLOCK = 1_000


@dataclass(frozen=True)
class Draw:
    """`position` counts this member's own tasks."""

    member: int
    position: int


@dataclass(frozen=True)
class Block:
    """`members[i]` owns place i and has drawn `before[i]` times earlier in the block."""

    members: tuple[int, ...]
    before: tuple[int, ...]
    quotas: tuple[int, ...]


def mix_stream(run: str, mix: Sequence[MixMember]) -> Stream:
    """The stream whose positions a leased mixture counts. Its environment's name is no environment's."""
    identity = digest(["mix", *(member.model_dump(mode="json") for member in mix)])
    return Stream(run=run, environment="mix", split="train", params={}, select={}, digest=identity)


def draw(mix: Sequence[MixMember], seed: int, first: int, count: int) -> tuple[Draw, ...]:
    """Who is drawn at positions first … first + count - 1."""
    weights = tuple(member.weight for member in mix)
    drawn = []
    for position in range(first, first + count):
        number, place = divmod(position, BLOCK)
        block = _block(weights, seed, number)
        member = block.members[place]
        drawn.append(Draw(member, number * block.quotas[member] + block.before[place]))
    return tuple(drawn)


def drawn_before(mix: Sequence[MixMember], seed: int, position: int) -> tuple[int, ...]:
    """How often each member is drawn at positions below `position`."""
    number, place = divmod(position, BLOCK)
    block = _block(tuple(member.weight for member in mix), seed, number)
    return tuple(number * quota + block.members[:place].count(member) for member, quota in enumerate(block.quotas))


@lru_cache(maxsize=256)
def _block(weights: tuple[float, ...], seed: int, number: int) -> Block:
    quotas = _quotas(weights)
    members = [member for member, quota in enumerate(quotas) for _ in range(quota)]
    random.Random(f"mix:{seed}:{number}").shuffle(members)  # noqa: S311  # order, not secrecy
    drawn = [0] * len(weights)
    before = []
    for member in members:
        before.append(drawn[member])
        drawn[member] += 1
    return Block(tuple(members), tuple(before), quotas)


def _quotas(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Whole shares of a block by largest remainder. A member too light for a place gets one of the heaviest's."""
    total = math.fsum(weights)
    exact = [weight / total * BLOCK for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda member: (shares[member] - exact[member], member))
    for member in by_remainder[: BLOCK - sum(shares)]:
        shares[member] += 1
    for member, share in enumerate(shares):
        if share == 0:
            shares[shares.index(max(shares))] -= 1
            shares[member] = 1
    return tuple(shares)
