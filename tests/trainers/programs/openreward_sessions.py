"""The released client of the Open Reward Standard, with given replies in the place of a model.

Runs in its own Python: file with address and episodes; file to write."""

from typing import Any

from job_files import answer, in_turns
from openreward import AsyncOpenReward
from openreward.api.environments.client import AsyncEnvironment
from openreward.api.environments.types import GroupCandidate, Message, TextBlock


async def play(env: AsyncEnvironment, episode: dict[str, Any]) -> dict[str, Any]:
    """The rewards of each call, and of the group."""
    async with env.session(split="train", index=episode["index"]) as session:
        calls = [await session.call_tool(name, arguments) for name, arguments in episode["calls"]]
        candidates = [GroupCandidate([Message("assistant", [TextBlock(text)])]) for text in episode["group"]]
        scores = await session.score_group(candidates) if candidates else []
        if episode["last"] is not None:
            calls.append(await session.call_terminal_tool(episode["last"]))
    return {"calls": [one.reward for one in calls], "group": [one.reward for one in scores]}


async def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    environments = AsyncOpenReward(api_key="none").environments
    env = environments.get("any", base_url=job["url"])
    try:
        return await in_turns(lambda episode: play(env, episode), job["episodes"], at_once=8)
    finally:
        await environments.aclose()


if __name__ == "__main__":
    answer(main)
