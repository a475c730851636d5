"""Tests that are a scene: a coroutine given what it plays on, which is opened before it and closed after it."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

Played = Callable[[Path, Path], None]
"""A test with the fixtures `tmp_path` and `migrated_file`."""


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
