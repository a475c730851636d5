"""The order in which a stream visits tasks: seeded permutations, the same in every process."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from app.domain.digests import digest_of_text
from app.domain.runs import Slot
from app.ports.store import SlotLocator
from app.service.weighted_schedule import find_draw

ENDLESS_OFFSETS = 2**40

LocatorFilter = Callable[[SlotLocator], SlotLocator]
"""Filters the slots of a locator."""


def keep_all(locate: SlotLocator) -> SlotLocator:
    return locate


@lru_cache(maxsize=64)
def _permute(seed: int, epoch: int, size: int) -> Sequence[int]:
    return random.Random(f"{seed}:{epoch}").sample(range(size), size)  # noqa: S311  # order, not secrecy


def derive_seed(name: str) -> int:
    """The default seed of a run, derived from its name."""
    return int(digest_of_text(name)[:12], 16)


def order_tasks(
    size: int | None, seed: int | None, *, one_epoch: bool, chosen: tuple[int, ...] | None = None
) -> SlotLocator:
    """`size` None means endless; `seed` None means natural order; `chosen` restricts a finite set to these indexes."""
    if size is None:
        start = 0 if seed is None else random.Random(seed).randrange(ENDLESS_OFFSETS)  # noqa: S311
        return lambda position: Slot(position=position, epoch=0, index=start + position)
    visible = len(chosen) if chosen is not None else size

    def locate(position: int) -> Slot | None:
        epoch, place = divmod(position, visible) if visible else (1, 0)
        if visible == 0 or (one_epoch and epoch > 0):
            return None
        shuffled = place if seed is None else _permute(seed, epoch, visible)[place]
        return Slot(position=position, epoch=epoch, index=shuffled if chosen is None else chosen[shuffled])

    return locate


def order_by_weight(
    pools: Sequence[tuple[float, tuple[int, ...]]], seed: int | None, narrowed: LocatorFilter = keep_all
) -> SlotLocator:
    """Endless weighted draws from pools of indexes. Each pool is drawn without replacement until it is used up, unless
    `narrowed` chooses otherwise. The epoch of a slot is the round of its pool."""
    weights = tuple(weight for weight, _ in pools)
    locators = [
        narrowed(order_tasks(0, _derive_pool_seed(seed, number), one_epoch=False, chosen=pool))
        for number, (_, pool) in enumerate(pools)
    ]

    def locate(position: int) -> Slot | None:
        pool, place = find_draw(weights, 0 if seed is None else seed, position)
        slot = locators[pool](place)
        return None if slot is None else replace(slot, position=position)

    return locate


def _derive_pool_seed(seed: int | None, pool: int) -> int | None:
    return None if seed is None else int(digest_of_text(f"{seed}:{pool}")[:12], 16)
