"""Pages over a whole service: something is trained, and somebody looks at it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx

from app.store.store import Store
from tests.support.databases import MIGRATIONS
from tests.support.outline import Outline
from tests.support.playground import World, gateway, panels

Scene = Callable[[httpx.AsyncClient, Store, World], Awaitable[None]]


def play(tmp_path: Path, migrated_file: Path, scene: Scene) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())

    async def act() -> None:
        world = World()
        async with gateway(world, path, panels(world.judge)) as client:
            store = Store.open(f"sqlite:///{path}", MIGRATIONS)
            try:
                await scene(client, store, world)
            finally:
                await store.close()

    asyncio.run(act())


async def train(client: httpx.AsyncClient, run: str, said: Sequence[tuple[str, str]], environment: str = "toy") -> None:
    """One group for each step, of two completions."""
    for step, texts in enumerate(said):
        asked = {"run": run, "batch_size": 1, "policy": {"step": step}}
        task = (await client.post(f"/envs/{environment}/next-batch", json=asked)).json()["tasks"][0]
        group = {**{name: task[name] for name in ("task_id", "lease_id")}, "completions": [{"text": t} for t in texts]}
        body = {"run": run, "groups": [group], "policy": {"model": "m", "step": step}}
        assert (await client.post(f"/envs/{environment}/score", json=body)).status_code == 200


async def look(client: httpx.AsyncClient, path: str) -> Outline:
    response = await client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    outline = Outline(response.text)
    assert outline.open == []
    assert [a for a in outline.attributes if a[1] == "style" or a[1].startswith("on")] == []
    return outline
