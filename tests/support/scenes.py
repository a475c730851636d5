"""Scenes that are played against a gateway in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from app.judges.panel import ConfiguredPanels
from tests.support.playground import World, gateway

Scene = Callable[[httpx.AsyncClient], Awaitable[None]]


def play(world: World, database: Path, *scenes: Scene, judging: ConfiguredPanels | None = None) -> None:
    """Each scene against a gateway that starts and stops around it, over the same store."""

    async def play_all() -> None:
        for scene in scenes:
            async with gateway(world, database, judging) as client:
                await scene(client)

    asyncio.run(play_all())
