"""Ingest of posts: waiting posts are parsed together in one thread call and stored by one write."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass

from app.domain.trajectories import PackedGroup

ReadGroups = Callable[[], Sequence[PackedGroup]]

POSTS_PER_LOT = 16
"""Posts that are parsed and stored together. While one lot is stored, the next is parsed."""

LARGE = 1024 * 1024
"""Bytes from which a post is handled alone, so that no other waits for it."""


@dataclass(eq=False)
class _PendingPost:
    run: str
    read: ReadGroups
    count: asyncio.Future[int]
    groups: Sequence[PackedGroup] = ()

    def fail(self, error: Exception) -> None:
        if not self.count.done():
            self.count.set_exception(error)

    def succeed(self) -> None:
        if not self.count.done():
            self.count.set_result(len(self.groups))


class GroupIngest:
    """`store` makes a run's groups durable before it returns."""

    def __init__(self, store: Callable[[str, Sequence[PackedGroup]], Awaitable[None]]) -> None:
        self._store = store
        self._waiting: deque[_PendingPost] = deque()
        self._reading = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, run: str, read: ReadGroups, size: int) -> int:
        """Runs `read` in a thread, stores its groups and returns their number. Raises what `read` raises. `size` is the
        post's length in bytes."""
        post = _PendingPost(run, read, asyncio.get_running_loop().create_future())
        if size >= LARGE:
            self._start_task(self._ingest_posts([post]))
        else:
            self._waiting.append(post)
            if not self._reading:
                self._reading = True
                self._start_task(self._parse_and_store_posts())
        return await post.count

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _parse_and_store_posts(self) -> None:
        try:
            while self._waiting:
                lot = [self._waiting.popleft() for _ in range(min(POSTS_PER_LOT, len(self._waiting)))]
                self._start_task(self._store_posts(await asyncio.to_thread(_read_posts, lot)))
        finally:
            self._reading = False

    async def _ingest_posts(self, lot: Sequence[_PendingPost]) -> None:
        await self._store_posts(await asyncio.to_thread(_read_posts, lot))

    async def _store_posts(self, lot: Sequence[tuple[_PendingPost, Exception | None]]) -> None:
        for post, error in lot:
            if error is not None:
                post.fail(error)
        good = [post for post, error in lot if error is None]
        for run in dict.fromkeys(post.run for post in good):
            posts = [post for post in good if post.run == run]
            try:
                await self._store(run, [group for post in posts for group in post.groups])
            except Exception as error:
                for post in posts:
                    post.fail(error)
            else:
                for post in posts:
                    post.succeed()


def _read_posts(lot: Sequence[_PendingPost]) -> list[tuple[_PendingPost, Exception | None]]:
    return [(post, _read_post(post)) for post in lot]


def _read_post(post: _PendingPost) -> Exception | None:
    try:
        post.groups = post.read()
    except Exception as error:
        return error
    return None
