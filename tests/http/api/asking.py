"""How tests of scoring ask for tasks and scores, and for what was pending."""

from collections.abc import Sequence

import httpx
from pydantic import JsonValue

from app.http.api.models import GroupReplies
from app.service.requests import GroupProblem, GroupReply, HandedOutTask, ScoreResponse, TaskBatch
from tests.support.playground import WAIT


async def lease(
    client: httpx.AsyncClient, environment: str = "toy", count: int = 1, **asked: JsonValue
) -> tuple[HandedOutTask, ...]:
    """Of the run `a`, unless another is asked for."""
    body = {"run": "a", "batch_size": count, **asked}
    reply = await client.post(f"/envs/{environment}/next-batch", json=body)
    return TaskBatch.model_validate_json(reply.content).tasks


async def take(client: httpx.AsyncClient, environment: str = "toy", **asked: JsonValue) -> HandedOutTask:
    (task,) = await lease(client, environment, 1, **asked)
    return task


def answer(task: HandedOutTask, *texts: str, **more: JsonValue) -> dict[str, JsonValue]:
    completions: JsonValue = [{"text": text} for text in texts]
    return {"task_id": task.task_id, "lease_id": task.lease_id, "completions": completions, **more}


async def tell(
    client: httpx.AsyncClient, *groups: object, wait: float | None = None, **more: JsonValue
) -> Sequence[GroupReply | GroupProblem]:
    reply = await client.post("/score", json={"groups": groups, "wait_seconds": wait, **more}, timeout=WAIT)
    assert reply.status_code == 200, reply.text
    return ScoreResponse.model_validate_json(reply.content).groups


async def score(client: httpx.AsyncClient, *groups: object, wait: float | None = None) -> list[GroupReply]:
    """None is refused."""
    told = await tell(client, *groups, wait=wait)
    replies = [one for one in told if isinstance(one, GroupReply)]
    assert len(replies) == len(told), told
    return replies


async def collect(client: httpx.AsyncClient, *group_ids: str) -> tuple[GroupReply, ...]:
    """Once none is pending."""
    reply = await client.get("/groups", params=[*(("id", one) for one in group_ids), ("wait", str(WAIT))])
    return GroupReplies.model_validate_json(reply.content).groups
