"""Weighted schedule: assigns each position to a member, with weights exact in every block of 1,000 positions."""

import math
import random
from dataclasses import dataclass
from functools import lru_cache

BLOCK_SIZE = 1_000


@dataclass(frozen=True)
class ScheduleBlock:
    """`members[i]` is drawn at place i and was drawn `before[i]` times earlier in the block."""

    members: tuple[int, ...]
    before: tuple[int, ...]
    quotas: tuple[int, ...]


def find_draw(weights: tuple[float, ...], seed: int, position: int) -> tuple[int, int]:
    """The member drawn at a position, and how often it was drawn before. At most BLOCK positive `weights`."""
    number, place = divmod(position, BLOCK_SIZE)
    block = _build_block(weights, seed, number)
    member = block.members[place]
    return member, number * block.quotas[member] + block.before[place]


def count_draws_below(weights: tuple[float, ...], seed: int, position: int) -> tuple[int, ...]:
    """How often each member is drawn at positions below `position`."""
    number, place = divmod(position, BLOCK_SIZE)
    block = _build_block(weights, seed, number)
    return tuple(number * quota + block.members[:place].count(member) for member, quota in enumerate(block.quotas))


@lru_cache(maxsize=256)
def _build_block(weights: tuple[float, ...], seed: int, number: int) -> ScheduleBlock:
    quotas = _compute_quotas(weights)
    members = [member for member, quota in enumerate(quotas) for _ in range(quota)]
    random.Random(f"mix:{seed}:{number}").shuffle(members)  # noqa: S311  # order, not secrecy
    drawn = [0] * len(weights)
    before = []
    for member in members:
        before.append(drawn[member])
        drawn[member] += 1
    return ScheduleBlock(tuple(members), tuple(before), quotas)


def _compute_quotas(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Integer quotas of a block by largest remainder. Every member gets at least one place, from the heaviest one."""
    total = math.fsum(weights)
    exact = [weight / total * BLOCK_SIZE for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda member: (shares[member] - exact[member], member))
    for member in by_remainder[: BLOCK_SIZE - sum(shares)]:
        shares[member] += 1
    for member, share in enumerate(shares):
        if share == 0:
            shares[shares.index(max(shares))] -= 1
            shares[member] = 1
    return tuple(shares)
