"""verifiers' OpenEnv task set, unmodified, plays with given replies in the place of a model.

Runs in verifiers' own Python: file with the base URL, the resets and the replies to each, file to write."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from verifiers.v1.tasksets.openenv import OpenEnvConfig, OpenEnvEnv, OpenEnvTaskset


@dataclass
class Record:
    """What the task set tells of an episode."""

    rewards: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None

    def record_reward(self, name: str, reward: float) -> None:
        self.rewards[name] = reward

    def stop(self, reason: str) -> None:
        self.stopped = reason


class Player:
    """Says the replies one after the other."""

    def __init__(self, replies: list[str]) -> None:
        self.trace = Record()
        self.shown: list[dict[str, Any]] = []
        self._replies = iter(replies)

    @asynccontextmanager
    async def interaction(self, _task: Any) -> AsyncIterator["Player"]:
        yield self

    async def turn(self, shown: str) -> Any:
        self.shown.append(json.loads(shown))
        reply = next(self._replies, None)
        return SimpleNamespace(last_reply=reply or "", terminated=reply is None)


async def played(task: Any, replies: list[str]) -> dict[str, Any]:
    player = Player(replies)
    try:
        await OpenEnvEnv.run(SimpleNamespace(), task, SimpleNamespace(player=player))
    except Exception as error:  # what verifiers records as an error of the rollout
        return {"error": str(error)}
    return {
        "rewards": player.trace.rewards,
        "stopped": player.trace.stopped,
        "turns": len(player.shown),
        "prompted": bool(player.shown[0]["observation"]["text"]),
        "title": player.shown[0]["action_schema"]["title"],
    }


async def play_all(job: dict[str, Any]) -> list[dict[str, Any]]:
    config = OpenEnvConfig(base_url=job["base_url"], resets=job["resets"])
    tasks = list(OpenEnvTaskset(config).load())
    return [await played(task, replies) for task, replies in zip(tasks, job["replies"], strict=True)]


if __name__ == "__main__":
    job_file, out = map(Path, sys.argv[1:])
    told = asyncio.run(play_all(json.loads(job_file.read_text(encoding="utf-8"))))
    out.write_text(json.dumps(told), encoding="utf-8")
