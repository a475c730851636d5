"""Episodes for the trainers' agent loops: rows as `atropos-envs tasks` writes them, and what a scripted model says."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from app.envs.mastermind.environment import Mastermind, MastermindParams
from app.envs.tool_agent.environment import ToolAgent, ToolAgentParams
from tests.support.commands import ended

PARAMS: Final[Mapping[str, Mapping[str, object]]] = {
    "npc_arena": {"turns": "multi"},
    "mastermind": {"level": "easy"},
    "tool_agent": {},
}
SIZE: Final = 4
LINES: Final = (
    "Aye. Sit down first, and tell me who sent you.",
    "As an AI language model, I am happy to help!",
    "No.",
    "I could not say. The harbour was dark, and I keep my nose out of what is not mine. Ask the miller.",
)


@dataclass(frozen=True)
class Job:
    """A prompt's row, and the replies of each of its samples."""

    row: dict[str, Any]
    replies: list[list[str]]


def write_rows(folder: Path, url: str, trainer: str, environment: str, *more: str, **params: object) -> list[Any]:
    file = folder / f"{trainer}-{environment}.jsonl"
    said = json.dumps({**PARAMS.get(environment, {}), **params})
    done = ended(
        "tasks", file, "--force", "--env", environment, "--for", trainer, "--params", said, "--url", url, *more
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def plan_jobs(folder: Path, url: str, trainer: str, environment: str, count: int, **params: object) -> list[Job]:
    rows = write_rows(folder, url, trainer, environment, "--count", str(count), **params)
    return [Job(row, plan_replies(environment, place)) for place, row in enumerate(rows)]


def plan_replies(environment: str, place: int) -> list[list[str]]:
    """Of a group. More than an episode needs: it ends by itself, or is cut."""
    match environment:
        case "mastermind":
            game = Mastermind()
            gold = game.gold(game.task("train", place, MastermindParams(level="easy")))
            code = (gold.text if gold else None) or ""
            guesses = [f"<answer>{letters}</answer>" for letters in ("ABC", "BCD", "CDE", "DEA", "EAB", "ABD", "BAE")]
            return [[*guesses[:early], code, *guesses] for early in (0, 2, 5)] + [[*guesses, "I give up.", *guesses]]
        case "tool_agent":
            agent = ToolAgent()
            solved = agent.gold(agent.task("train", place, ToolAgentParams(tool_format="hermes")))
            calls = [one.content or "" for one in solved.messages or () if one.role == "assistant"]
            return [calls, ["Done."] * 20, [*calls[:1], *["That is all."] * 20], calls[:-1] + ["I do not know."] * 20]
    return [[LINES[(member + turn + place) % 4] for turn in range(20)] for member in range(SIZE)]


def read_groups(url: str, run: str) -> list[dict[str, Any]]:
    """Of a run, oldest first, in full."""
    names: list[str] = []
    before: dict[str, Any] = {}
    while True:
        found = (
            httpx.get(f"{url}/groups", params={"run": run, "limit": 100, **before}, timeout=60)
            .raise_for_status()
            .json()
        )
        names += [one["group_id"] for one in found["groups"]]
        if found["next_before"] is None:
            break
        before = {"before": found["next_before"]}
    return [httpx.get(f"{url}/groups/{name}", timeout=60).json()["group"] for name in reversed(names)]


def score_natively(url: str, environment: str, groups: Sequence[dict[str, Any]]) -> list[list[float | None]]:
    """What the native route pays for the completions of stored groups."""
    rewards = []
    for group in groups:
        sent = [without_nulls(one["completion"]) for one in group["rollouts"]]
        body = {"run": "native", "groups": [{"task_id": group["task_id"], "completions": sent}]}
        reply = httpx.post(f"{url}/envs/{environment}/score", json=body, timeout=120).raise_for_status().json()
        rewards.append(reply["groups"][0]["rewards"])
    return rewards


def without_nulls(completion: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in completion.items() if value is not None}
