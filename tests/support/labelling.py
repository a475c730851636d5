"""Groups of an environment that a judge scores by what somebody says of it, to be labelled."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx

from app.domain.judging import JudgeRequest
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from tests.support.playground import World, gateway

Opinion = Callable[[JudgeRequest, int], Mapping[str, float]]
QUALITIES = {"fair": 0.8125, "foul": 0.1875}


def opinionated(request: JudgeRequest, count: int) -> Mapping[str, float]:
    return {candidate.id: QUALITIES[candidate.text.split()[0]] for candidate in request.candidates}


def contrary(request: JudgeRequest, count: int) -> Mapping[str, float]:
    return {name: 1 - value for name, value in opinionated(request, count).items()}


def labelled_gateway(
    database: Path | str, judge: Opinion = opinionated, *, api_key: str | None = None
) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return gateway(
        World(),
        database,
        ConfiguredPanels({"judge": ScriptedJudge(judge, "judge")}, {}, fallback=("judge",)),
        api_key=api_key,
    )


async def store_groups(client: httpx.AsyncClient, count: int, number: int = 0, policy: str = "student") -> list[str]:
    handed = await client.post("/envs/arena/next-batch", json={"batch_size": count, "cursor": 0, "run": "a"})
    said = [{"text": f"fair {number}", "extra": {"reward": 1}}, {"text": f"foul {number}"}]
    groups = [{"task_id": task["task_id"], "completions": said} for task in handed.json()["tasks"]]
    body = {"groups": groups, "run": "a", "policy": {"model": policy, "step": 3}}
    told = await client.post("/envs/arena/score", json=body)
    assert told.status_code == 200, told.text
    return [group["group_id"] for group in told.json()["groups"]]
