"""How the recorded store came to be: a run over every environment, a world, an evaluation, a group scored anew."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx
from pydantic import JsonValue

from app.characters.archives import read_world
from app.domain.tasks import Completion, Task
from app.features.worlds.commands import SAMPLE, load_world
from app.terminal.client import GatewayClient
from tests.record.completions import completions_of, right_answer
from tests.record.hosting import all_hosted
from tests.record.serving import answered

MOMENT: Final = datetime(2030, 1, 1, tzinfo=UTC)
RUN: Final = "recorded"
HELD_SECONDS: Final = 86_400
CASES: Final = ("gold", "nothing", "another's gold", "gold and more", "gold cut off")
ASKED: Final[Mapping[str, dict[str, JsonValue]]] = {
    "npc_arena in a world": {"world": "reedgate", "as_of": "1312-04-06T12:00:00Z"},
    "npc_arena in turns": {"turns": "multi"},
    "rlaif by a rubric": {"rubric": [{"name": "short", "description": "In few words."}]},
    "countdown for the able": {"level": "hard"},
    "tool_calling in text": {"tool_format": "hermes"},
}
"""Beside every environment with its default params, by a name that begins with its own."""


@dataclass(frozen=True)
class Request:
    """Something to be scored, and what the answer was; None for what has not been sent."""

    path: str
    body: JsonValue
    headers: dict[str, str]
    answer: JsonValue = None


async def play(client: httpx.AsyncClient) -> AsyncIterator[Request]:
    """Every other task of each environment stays leased, for later."""
    await load_world(GatewayClient(client), read_world(SAMPLE))
    settings: JsonValue = {"seed": 7, "options": {"relative_weight": 0.4, "on_truncated": "score"}}
    await _required(client, "PUT", "/runs/chosen", settings)
    asked: dict[str, dict[str, JsonValue]] = {**{name: {} for name in all_hosted()}, **ASKED}
    for step, (what, params) in enumerate(asked.items()):
        name = what.split()[0]
        body = {"run": RUN, "batch_size": 3, "lease_seconds": HELD_SECONDS, "params": params}
        batch = await _required(client, "POST", f"/envs/{name}/next-batch", body)
        for place, task in enumerate(batch["tasks"]):
            wanted = await _to_score(client, task, batch["tasks"][place - 1])
            more: dict[str, JsonValue] = {"run": RUN, "policy": {"model": "student", "step": step}, "wait_seconds": 60}
            request = Request(f"/envs/{name}/score", {"groups": [wanted], **more}, {})
            yield await _sent(client, request) if place % 2 == 0 else request
    async for request in _others(client):
        yield await _sent(client, request)


async def _others(client: httpx.AsyncClient) -> AsyncIterator[Request]:
    """An evaluation, a mixture under options of its own with a key, and what comes late, without a run."""
    for name in ("countdown", "npc_arena"):
        looked = {"cursor": 0, "batch_size": 2, "purpose": "eval", "split": "test"}
        batch = await _required(client, "POST", f"/envs/{name}/next-batch", looked)
        groups: list[JsonValue] = [await _to_score(client, task, task) for task in batch["tasks"]]
        yield Request("/score", {"groups": groups, "purpose": "eval", "policy": {"model": "student"}}, {})
        yield Request("/score", {"groups": groups[:1]}, {})
    mixture = {"run": "chosen", "batch_size": 6, "lease_seconds": HELD_SECONDS}
    members: JsonValue = [{"env": "mcqa", "weight": 2.0}, {"env": "rlaif"}, {"env": "blackjack"}]
    batch = await _required(client, "POST", "/next-batch", {**mixture, "mix": members})
    groups = [await _to_score(client, task, task) for task in batch["tasks"]]
    yield Request("/score", {"groups": groups, "run": "chosen"}, {"Idempotency-Key": "once"})


async def _sent(client: httpx.AsyncClient, request: Request) -> Request:
    answer = await answered(client, "POST", request.path, request.body, request.headers)
    return Request(request.path, request.body, request.headers, answer)


async def _to_score(client: httpx.AsyncClient, task: Mapping[str, Any], other: Mapping[str, Any]) -> JsonValue:
    """Completions of a task that was handed out; some with what trainers keep beside them."""
    made, gold = await _look_up(client, task)
    found = completions_of(made, gold, (await _look_up(client, other))[1])
    said = [found[name] for name in CASES]
    said[1] = said[1].model_copy(update={"token_ids": (1, 2, 3), "logprobs": (-0.5, -0.25, 0.0), "extra": {"a": [1]}})
    completions: list[JsonValue] = [one.model_dump(mode="json", exclude_defaults=True) for one in said]
    return {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": completions}


async def _look_up(client: httpx.AsyncClient, task: Mapping[str, Any]) -> tuple[Task, Completion]:
    """The whole task, and its right answer."""
    hosted = all_hosted()[task["environment"]]
    view = await _required(client, "GET", f"/tasks/{task['task_id']}")
    made = hosted.environment.task(view["split"], view["index"], hosted.validate_params(view["params"]))
    return made, right_answer(hosted.environment, made, view["index"])


async def _required(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    response = await client.request(method, path, json=body)
    response.raise_for_status()
    return response.json()
