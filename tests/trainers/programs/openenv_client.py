"""OpenEnv's generic client, unmodified, as trainers use it.

Runs in the tuners' Python: URL, run, file with right actions by environment, file to write."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openenv.core.generic_client import GenericEnvClient

SEED = 11


def client(url: str, environment: str) -> Any:
    return GenericEnvClient(base_url=f"{url}/compat/openenv/{environment}")


def played(url: str, environment: str, actions: list[dict[str, Any]]) -> dict[str, Any]:
    """As code without an event loop does it."""
    with client(url, environment).sync() as env:
        prompt = env.reset(seed=SEED).observation["text"]
        for action in actions:
            result = env.step(action)
        state = env.state()
    return {"prompted": bool(prompt), "reward": result.reward, "done": result.done, "steps": state["step_count"]}


def refused(url: str) -> list[str]:
    told = []
    with client(url, "gsm8k").sync() as env:
        asks: tuple[Callable[[], Any], ...] = (lambda: env.step({"text": "1"}), lambda: env.reset(sed=1))
        for ask in asks:
            try:
                ask()
            except RuntimeError as error:
                told.append(str(error))
        env.reset(seed=SEED)
        told.append(type(env.step({"message": 42}).reward).__name__)
    return told


def continued(url: str, right: dict[str, Any]) -> float:
    """As trainers do it that connect anew before they step again."""
    with client(url, "mastermind").sync() as env:
        env.reset(seed=SEED)
        named = env.state()["episode_id"]
        env.step({"text": "I pass.", "episode_id": named})
    with client(url, "mastermind").sync() as env:
        return float(env.step({**right, "episode_id": named}).reward)


def tools(url: str) -> list[Any]:
    """As verifiers asks for them of a server of MCP tools, before a reset."""
    with client(url, "gsm8k").sync() as env:
        return list(env.step({"type": "list_tools"}).observation["tools"])


async def group(url: str, run: str) -> dict[str, Any]:
    """Four members at once, as a trainer with an event loop plays them."""

    async def member(text: str) -> Any:
        async with client(url, "gsm8k") as env:
            await env.reset(run=run, group={"key": "p0", "size": 4}, policy={"model": "tiny", "step": 1})
            return (await env.step({"text": text})).metadata

    told = await asyncio.gather(*(member(f"#### {place}") for place in range(4)))
    return {"groups": len({one["group_id"] for one in told}), "flags": [one["group_flags"] for one in told]}


def main(url: str, run: str, actions: str, out: str) -> None:
    right = json.loads(Path(actions).read_text(encoding="utf-8"))
    record = {
        "played": {name: played(url, name, steps) for name, steps in right.items()},
        "refused": refused(url),
        "continued": continued(url, right["mastermind"][0]),
        "tools": tools(url),
        "group": asyncio.run(group(url, run)),
    }
    Path(out).write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
