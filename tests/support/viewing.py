"""Pages over a whole service: something is trained, and somebody looks at it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx

from app.judges.panel import ConfiguredPanels
from app.main.store import Store
from tests.support.databases import MIGRATIONS
from tests.support.outline import Outline
from tests.support.playground import World, gateway, panels

Scene = Callable[[httpx.AsyncClient, Store, World], Awaitable[None]]


def play(tmp_path: Path, migrated_file: Path, scene: Scene) -> None:
    path = tmp_path / "store.db"

    async def with_store(client: httpx.AsyncClient, world: World) -> None:
        store = Store.open(f"sqlite:///{path}", MIGRATIONS)
        try:
            await scene(client, store, world)
        finally:
            await store.close()

    _play(path, migrated_file, None, with_store)


def play_judged(
    tmp_path: Path,
    migrated_file: Path,
    judging: ConfiguredPanels,
    scene: Callable[[httpx.AsyncClient], Awaitable[None]],
) -> None:
    """By judges of the scene's own."""
    _play(tmp_path / "store.db", migrated_file, judging, lambda client, _: scene(client))


def _play(
    path: Path,
    migrated_file: Path,
    judging: ConfiguredPanels | None,
    scene: Callable[[httpx.AsyncClient, World], Awaitable[None]],
) -> None:
    path.write_bytes(migrated_file.read_bytes())

    async def act() -> None:
        world = World()
        async with gateway(world, path, judging or panels(world.judge)) as client:
            await scene(client, world)

    asyncio.run(act())


async def answer(
    client: httpx.AsyncClient, run: str, step: int, said: Sequence[Sequence[str]], environment: str = "toy"
) -> list[str]:
    """What a run says at a step to the first tasks, one group for each. Returns the groups."""
    asked = {"run": run, "batch_size": 4, "cursor": 0, "split": "train"}
    tasks = (await client.post(f"/envs/{environment}/next-batch", json=asked)).json()["tasks"]
    order = sorted(tasks, key=lambda task: task["metadata"]["number"])
    groups = [
        {"task_id": task["task_id"], "completions": [{"text": text} for text in texts]}
        for task, texts in zip(order, said, strict=False)
    ]
    body = {"run": run, "policy": {"model": "m", "step": step}, "groups": groups}
    replies = (await client.post("/score", json=body)).raise_for_status().json()["groups"]
    return [reply["group_id"] for reply in replies]


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
