"""A task that went out without the passages it should have had says so, as its scores do, and stays the same task."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import JsonValue

from app.domain.errors import RetrieverFailed
from app.domain.tasks import Context, ContextQuery, Passage
from app.settings import RagSettings
from tests.support.playground import World, gateway

WITHOUT = RagSettings.model_validate({"on_failure": "without"})


@dataclass
class Library:
    """Of the operator's; closed at times."""

    is_open: bool = False

    async def retrieve(self, query: ContextQuery) -> Context:
        if not self.is_open:
            raise RetrieverFailed("the library is closed")
        return Context(passages=(Passage(id="news", text="The library is open.", source="library"),))


async def handed_out(client: httpx.AsyncClient, cursor: int) -> dict[str, JsonValue]:
    reply = await client.post("/envs/tavern/next-batch", json={"run": "a", "cursor": cursor, "batch_size": 1})
    (task,) = reply.raise_for_status().json()["tasks"]
    assert isinstance(task, dict)
    return task


def mark_of(task: Mapping[str, JsonValue]) -> str | None:
    metadata = task["metadata"]
    assert isinstance(metadata, dict)
    mark = metadata.get("context")
    return mark if isinstance(mark, str) else None


async def scored(client: httpx.AsyncClient, *tasks: dict[str, JsonValue]) -> list[tuple[float, list[str]]]:
    groups: JsonValue = [{"task_id": task["task_id"], "completions": [{"text": "0.5"}]} for task in tasks]
    reply = await client.post("/score", json={"groups": groups})
    return [
        (score["reward"], score["flags"])
        for group in reply.raise_for_status().json()["groups"]
        for score in group["scores"]
    ]


async def test_metadata_and_scores_say_that_there_was_no_context(database: Path) -> None:
    library = Library()
    async with gateway(World(), database, rag=WITHOUT, retriever=library) as client:
        without = await handed_out(client, 0)
        library.is_open = True
        told = await handed_out(client, 1)
        again = await handed_out(client, 0)
        stored = (await client.get(f"/tasks/{without['task_id']}")).json()
        scores = await scored(client, without, told)
    async with gateway(World(version="2"), database, rag=WITHOUT, retriever=library) as client:
        (listed,) = (await client.get("/groups", params={"task_id": str(without["task_id"])})).json()["groups"]
        rescored = await client.post(f"/groups/{listed['group_id']}/rescore", json={})
    assert {
        "metadata": [mark_of(task) for task in (without, told, stored)],
        "same": again == without,
        "scores": scores,
        "remade": rescored.json()["scoring"]["flags"],
    } == {
        "metadata": ["failed", None, "failed"],
        "same": True,
        "scores": [(0.5, ["no_context"]), (0.5, [])],
        "remade": ["task_remade"],
    }
