"""verifiers' NeMo Gym task set, unmodified, with given replies in the place of a model.

Runs in verifiers' own Python: file with rows, address, and for each rollout its row and replies; file to write."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from job_files import answer, in_turns
from verifiers.v1.tasksets.nemo_gym import NeMoGymConfig, NeMoGymTask, NeMoGymTaskConfig, NeMoGymTaskset
from verifiers.v1.tasksets.nemo_gym.toolset import NeMoGymState, NeMoGymToolset
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage


@dataclass
class Trace:
    """What the task set reads of a rollout and writes to it."""

    id: str
    state: NeMoGymState = field(default_factory=NeMoGymState)
    info: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)

    @property
    def branches(self) -> list[Any]:
        return [SimpleNamespace(nodes=self.nodes)]

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value

    def add(self, message: Any, *, sampled: bool) -> None:
        self.nodes.append(SimpleNamespace(message=message, sampled=sampled, timestamp=len(self.nodes)))


async def call_tools(trace: Trace, calls: list[dict[str, Any]]) -> None:
    """As its tool server does for a harness."""
    toolset = SimpleNamespace(state=trace.state)
    for call in calls:
        result = await NeMoGymToolset.call_tool(toolset, call["name"], call["arguments"])
        said = "".join(part.text for part in result.content)
        trace.add(ToolMessage(tool_call_id=call["id"], content=said), sampled=False)


async def roll_out(task: NeMoGymTask, number: int, replies: list[Any], times: int) -> list[dict[str, Any]]:
    """What each of `times` requests for the same reward told."""
    trace = Trace(f"trace{number}")
    await task.setup(trace, None)
    for reply in replies:
        calls = reply.get("calls", [])
        made = [ToolCall(id=one["id"], name=one["name"], arguments=json.dumps(one["arguments"])) for one in calls]
        trace.add(AssistantMessage(content=reply.get("text"), tool_calls=made or None), sampled=True)
        await call_tools(trace, calls)
    told = []
    for _ in range(times):
        reward = await task.nemo_gym(trace)
        told.append({"reward": reward, "metrics": dict(trace.metrics), "info": trace.info["nemo_gym"]})
    return told


async def play_all(job: dict[str, Any]) -> list[list[dict[str, Any]]]:
    config = NeMoGymTaskConfig(resources_url=job["url"])
    tasks = list(NeMoGymTaskset(NeMoGymConfig(dataset=Path(job["rows"]), task=config)).load())
    rollouts = enumerate(job["rollouts"])

    async def play(numbered: tuple[int, tuple[int, list[Any]]]) -> list[dict[str, Any]]:
        number, (place, replies) = numbered
        return await roll_out(tasks[place], number, replies, job["times"])

    return await in_turns(play, rollouts, job["at_once"])


if __name__ == "__main__":
    answer(play_all)
