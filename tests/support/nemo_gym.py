"""A client of resources servers that sends what NeMo Gym 0.7.0's agents send, written from its source."""

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

_NUMBERS = itertools.count()


def build_response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Responses object with an id of its own, as a model server gives one to each."""
    fixed = {"object": "response", "created_at": 0, "model": "scripted", "status": "completed"}
    options = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": f"resp_{next(_NUMBERS)}", **fixed, **options, "output": [*items], **more}


def say(text: str, **tokens: Any) -> dict[str, Any]:
    """A message of the model; in training with token ids."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part], **tokens}


def build_row(task_id: str, task_index: int, rollout_index: int, **more: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Hm?"}]}
    indices = {"_ng_task_index": task_index, "_ng_rollout_index": rollout_index}
    return {"responses_create_params": params, "task_id": task_id, **indices, **more}


@dataclass
class NemoGym:
    """Cookies of replies are merged."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)

    async def post(self, path: str, body: Any) -> httpx.Response:
        async with httpx.AsyncClient(timeout=180, cookies=self.cookies) as client:
            reply = await client.post(f"{self.url}/{path}", json=body)
            self.cookies |= dict(reply.cookies)
            return reply

    async def verify(self, row: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
        reply = await self.post("verify", row | {"response": response})
        told: dict[str, Any] = reply.raise_for_status().json()
        return told

    async def verify_all(self, *rollouts: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
        return await asyncio.gather(*(self.verify(*one) for one in rollouts))


def write_items(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A chat message of the model as items of a response."""
    calls = [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": json.dumps(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return [*([say(message["content"])] if message.get("content") else []), *calls]


async def play_simple(client: NemoGym, row: dict[str, Any], replies: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """A rollout as `simple_agent` plays it: each call to its route, then all of it to `/verify`. `replies` are the
    items of the model's responses."""
    (await client.post("seed_session", row)).raise_for_status()
    output: list[dict[str, Any]] = []
    for items in replies:
        output += items
        calls = [item for item in items if item["type"] == "function_call"]
        for call in calls:
            result = (await client.post(call["name"], json.loads(call["arguments"]))).text
            output.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})
        if not calls:
            break
    return await client.verify(row, build_response(*output))


async def play_gymnasium(
    client: NemoGym, row: dict[str, Any], replies: list[list[dict[str, Any]]], *, times: int = 1
) -> list[httpx.Response]:
    """An episode as `gymnasium_agent` plays it; each step is sent so many times, and answered with the last."""
    (await client.post("reset", row)).raise_for_status()
    told: list[httpx.Response] = []
    for items in replies:
        body = row | {"response": build_response(*items)}
        said = [await client.post("step", body) for _ in range(times)]
        assert len({one.text for one in said}) == 1
        told.append(said[-1])
        if said[-1].is_error or said[-1].json()["terminated"] or said[-1].json()["truncated"]:
            break
    return told
