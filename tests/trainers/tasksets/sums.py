"""Tasks of one reply, for verifiers."""

from collections.abc import Iterator

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        if trace.last_reply == "raise":
            raise ValueError("the reward broke")
        if trace.last_reply == "no number":
            return float("nan")
        return float(self.data.answer in trace.last_reply.split())

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 10)


class SumConfig(vf.TasksetConfig):
    count: int = 4
    image: str | None = None


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self) -> Iterator[SumTask]:
        for number in range(self.config.count):
            prompt = f"What is {number} + {number}?"
            about = {"system_prompt": "Answer with a number.", "image": self.config.image}
            yield SumTask(SumData(prompt=prompt, answer=str(2 * number), **about), self.config.task)


async def wrote_a_file(trace: vf.Trace, runtime: vf.Runtime) -> float:
    """A reward that needs a runtime, to be plugged in by the settings."""
    await runtime.write("reply", trace.last_reply.encode())
    return float((await runtime.read("reply")).decode() == trace.last_reply)


__all__ = ["SumTaskset"]
