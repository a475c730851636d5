"""Tests that are a scene: a coroutine given what it plays on, which is opened before it and closed after it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from app.main.store import Store
from tests.support.store_cases import MovableClock, opened, using

T = TypeVar("T")

Played = Callable[[Path, Path], None]
"""A test with the fixtures `tmp_path` and `migrated_file`."""


def on_each_store(scene: Callable[[Store], Awaitable[None]]) -> Callable[[str], None]:
    def test(store_url: str) -> None:
        using(store_url, scene)

    return name_after(scene, test)


def on_each_store_at(scene: Callable[[Store, MovableClock], Awaitable[None]]) -> Callable[[str], None]:
    """With the clock of the store."""

    async def play(url: str) -> None:
        clock = MovableClock()
        async with opened(url, clock) as store:
            await scene(store, clock)

    def test(store_url: str) -> None:
        asyncio.run(play(store_url))

    return name_after(scene, test)


def on(play: Callable[[Path, Path, T], None]) -> Callable[[T], Played]:
    """On what `play` opens."""

    def decorate(scene: T) -> Played:
        def test(tmp_path: Path, migrated_file: Path) -> None:
            play(tmp_path, migrated_file, scene)

        return name_after(scene, test)

    return decorate


def name_after(scene: object, test: T) -> T:
    """Without what `functools.wraps` would add: pytest would look for the scene's parameters."""
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, name, getattr(scene, name))
    return test
