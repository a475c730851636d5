"""Ingest of posts: waiting posts are parsed together in one thread call and stored by one write."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass

from app.domain.trajectories import Packed

Read = Callable[[], Sequence[Packed]]

LOT = 16
"""Posts that are parsed and stored together. While one lot is stored, the next is parsed."""

LARGE = 1024 * 1024
"""Bytes from which a post is handled alone, so that no other waits for it."""


@dataclass(eq=False)
class _Post:
    run: str
    read: Read
    count: asyncio.Future[int]
    groups: Sequence[Packed] = ()

    def fail(self, error: Exception) -> None:
        if not self.count.done():
            self.count.set_exception(error)

    def succeed(self) -> None:
        if not self.count.done():
            self.count.set_result(len(self.groups))


class Intake:
    """`store` makes a run's groups durable before it returns."""

    def __init__(self, store: Callable[[str, Sequence[Packed]], Awaitable[None]]) -> None:
        self._store = store
        self._waiting: deque[_Post] = deque()
        self._reading = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, run: str, read: Read, size: int) -> int:
        """Runs `read` in a thread, stores its groups and returns their number. Raises what `read` raises. `size` is the
        post's length in bytes."""
        post = _Post(run, read, asyncio.get_running_loop().create_future())
        if size >= LARGE:
            self._start(self._take_in([post]))
        else:
            self._waiting.append(post)
            if not self._reading:
                self._reading = True
                self._start(self._work())
        return await post.count

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        try:
            while self._waiting:
                lot = [self._waiting.popleft() for _ in range(min(LOT, len(self._waiting)))]
                self._start(self._keep(await asyncio.to_thread(_read, lot)))
        finally:
            self._reading = False

    async def _take_in(self, lot: Sequence[_Post]) -> None:
        await self._keep(await asyncio.to_thread(_read, lot))

    async def _keep(self, lot: Sequence[tuple[_Post, Exception | None]]) -> None:
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


def _read(lot: Sequence[_Post]) -> list[tuple[_Post, Exception | None]]:
    return [(post, _error_of(post)) for post in lot]


def _error_of(post: _Post) -> Exception | None:
    try:
        post.groups = post.read()
    except Exception as error:
        return error
    return None
