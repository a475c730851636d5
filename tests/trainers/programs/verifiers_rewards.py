"""What verifiers itself gives for replies to the tasks of a package, none of the service's code between.

Runs in verifiers' own Python: file with the package and pairs of a task and a reply, file to write."""

from typing import Any

import verifiers.v1 as vf
from job_files import answer
from verifiers.v1.state import state_cls
from verifiers.v1.trace import AgentInfo, TraceTask
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type


async def reward(task: Any, reply: str) -> float:
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state_cls(type(task))(),
        agent=AgentInfo(config=vf.AgentConfig(runtime={"type": "subprocess"})),
    )
    message = vf.AssistantMessage(content=reply)
    trace.nodes = [vf.MessageNode(parent=None, message=message, sampled=True)]
    await task.score(trace)
    return float(trace.reward)


async def reward_all(job: dict[str, Any]) -> list[float]:
    config = taskset_config_type(job["package"])(id=job["package"])
    tasks = list(load_taskset(config).take(100))
    return [await reward(tasks[place], reply) for place, reply in job["replies"]]


if __name__ == "__main__":
    answer(reward_all)
