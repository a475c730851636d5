"""Posts that wait are read and stored together, and each is answered for itself."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.errors import StoreUnavailable
from app.features.atropos.model import PackedGroup
from app.features.atropos.service import LARGE, POSTS_PER_LOT, GroupIngest, ReadGroups


class Shelf:
    """Keeps what it is given, by run; is down for the run `lost`."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, list[str]]] = []
        self.intake = GroupIngest(self.store)

    async def store(self, run: str, groups: Sequence[PackedGroup]) -> None:
        await asyncio.sleep(0)
        if run == "lost":
            raise StoreUnavailable("down")
        self.writes.append((run, [group.digest for group in groups]))

    async def post(self, *posts: tuple[str, ReadGroups], size: int = 1) -> list[object]:
        return await asyncio.gather(*(self.intake.add(run, read, size) for run, read in posts), return_exceptions=True)


def reads(*names: str) -> ReadGroups:
    return lambda: [PackedGroup(0, 8, name, b"") for name in names]


def refuses() -> Sequence[PackedGroup]:
    raise ValueError("refused")


def test_many_posts_are_one_write_in_their_order() -> None:
    shelf = Shelf()
    names = [str(number) for number in range(2 * POSTS_PER_LOT + 1)]
    counts = asyncio.run(shelf.post(*(("run", reads(name)) for name in names)))
    lots = [names[:POSTS_PER_LOT], names[POSTS_PER_LOT : 2 * POSTS_PER_LOT], names[2 * POSTS_PER_LOT :]]
    assert (counts, shelf.writes) == ([1] * len(names), [("run", lot) for lot in lots])


def test_what_one_posts_fails_nobody_else() -> None:
    shelf = Shelf()
    posts = [("red", reads("a", "b")), ("red", refuses), ("lost", reads("c")), ("blue", reads()), ("red", reads("d"))]
    outcomes = asyncio.run(shelf.post(*posts))
    told = [repr(one) for one in outcomes]
    assert (told, shelf.writes) == (
        ["2", "ValueError('refused')", repr(StoreUnavailable("down")), "0", "1"],
        [("red", ["a", "b", "d"]), ("blue", [])],
    )


async def test_after_everything_was_read_the_next_post_is_read_too() -> None:
    shelf = Shelf()
    told = [*await shelf.post(("run", reads("a"))), *await shelf.post(("run", refuses), ("run", reads("b")))]
    assert (told[::2], shelf.writes) == ([1, 1], [("run", ["a"]), ("run", ["b"])])


async def test_who_waits_no_longer_holds_nobody_up() -> None:
    shelf = Shelf()
    left = asyncio.ensure_future(shelf.intake.add("run", reads("a"), 1))
    stays = asyncio.ensure_future(shelf.intake.add("run", reads("b"), 1))
    await asyncio.sleep(0)
    left.cancel()
    assert (await stays, shelf.writes) == (1, [("run", ["a", "b"])])


@pytest.mark.parametrize(("size", "writes"), [(LARGE - 1, [["a", "b"]]), (LARGE, [["a"], ["b"]])])
def test_a_large_post_goes_its_own_way(size: int, writes: list[list[str]]) -> None:
    shelf = Shelf()
    asyncio.run(shelf.post(("run", reads("a")), ("run", reads("b")), size=size))
    assert sorted(names for _, names in shelf.writes) == writes
