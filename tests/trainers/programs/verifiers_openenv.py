"""verifiers' OpenEnv task set, unmodified, plays with given replies in the place of a model.

Runs in verifiers' own Python: file with the base URL, the resets and the replies to each, file to write."""

from types import SimpleNamespace
from typing import Any

from job_files import answer
from scripted_player import Player
from verifiers.v1.tasksets.openenv import OpenEnvConfig, OpenEnvEnv, OpenEnvTaskset


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
    answer(play_all)
